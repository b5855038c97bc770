"""Truth files: small ones made here, bad ones, and the real folder where it is."""

from __future__ import annotations

import csv
import importlib.util
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from lab.accuracy import DATA_SETS, Measure, read_sets
from lab.accuracy import real_models as _real_models
from lab.accuracy import timm_a100 as _timm_a100
from lab.accuracy.decoder_jobs import Lora
from lab.accuracy.fine_tuning import read_fine_tuning
from lab.accuracy.gpumemnet_jobs import CnnJob, MlpJob
from lab.accuracy.gpumemnet_rows import read_cnn, read_mlp_step1, read_mlp_step2, read_transformer
from lab.accuracy.real_models import read_real_models
from oomcast.errors import BadInput, UnknownName
from oomcast.units import MiB

ROOT = Path(__file__).resolve().parents[3]
GROUNDTRUTH = Path(os.environ.get("OOMCAST_GROUNDTRUTH", ROOT.parent / "shared" / "groundtruth"))
HAS_UNET = importlib.util.find_spec("segmentation_models_pytorch") is not None
HAS_TORCHAO = importlib.util.find_spec("torchao") is not None
HAS_PEFT = importlib.util.find_spec("peft") is not None
HAS_BITSANDBYTES = find_spec("bitsandbytes") is not None

MLP_HEADER = "Filename,Total Parameters,Batch Size,Max GPU Memory (MiB)"
MLP_ROW = "input:8_output:2_depth:2_arch:pyramid_batch:16.out,52,16,1479"
REAL_HEADER = (
    "workload,framework_model,batch_size,optimizer,a100_2024_10_mib,a100_2025_09_mib,a100_2026_aegis_mib,"
    "rtx2080ti_2026_06_mib"
)
REAL_ROW = "vgg16_bs32,torchvision vgg16,32,Adam lr1e-3,8222,6684,,7072"
TRANSFORMER_HEADER = (
    "num_classes,embedding_size,num_layers,num_heads,ff_hidden_size,seq_length,vocab_size,batch_size,"
    "max_gpu_memory_mib,status"
)


def table(folder: Path, name: str, *lines: str) -> Path:
    path = folder / f"{name}.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_an_mlp_row_tells_its_network(tmp_path: Path) -> None:
    (case,) = read_mlp_step1(table(tmp_path, "gpumemnet_mlp_step1", MLP_HEADER, MLP_ROW)).cases
    assert case.workload.job.target == MlpJob((8, 4, 2, 2), "relu", False, None, False)
    assert case.workload.batch_size == 16
    assert case.measured == 1479 * MiB
    assert (case.family, case.gpu, case.stack) == ("pyramid", "a100-40gb", "torch-2.4-cu121-eager")


def test_dropout_is_named_twice_the_rate_and_whether_it_is_used(tmp_path: Path) -> None:
    name = "input:8_output:2_depth:1_arch:uniform_batch:4_act:leaky_relu_dropout:0.25_dropout:{}_batchnorm:True.out"
    rows = [f"{name.format(used)},{8 * 8 + 8 + 16 + 18},4,1500" for used in (True, False)]
    cases = read_mlp_step2(table(tmp_path, "gpumemnet_mlp_step2", MLP_HEADER, *rows)).cases
    jobs = [case.workload.job.target for case in cases]
    assert jobs == [MlpJob((8, 8, 2), "leaky_relu", True, rate, True) for rate in (0.25, None)]


def test_a_network_with_another_parameter_count_is_left_out(tmp_path: Path) -> None:
    found = read_mlp_step1(table(tmp_path, "x", MLP_HEADER, MLP_ROW, MLP_ROW.replace(",52,", ",53,")))
    assert len(found.cases) == 1
    assert [skip.row for skip in found.skipped] == ["3"]


def test_a_crashed_cnn_has_no_figure(tmp_path: Path) -> None:
    name = (
        "input_channels:3_num_classes:10_depth:2_arch:uniform_base_filters:4_batch:2_input_size:16_act:gelu_"
        "dropout:0.5_dropout:False_batchnorm:False.out"
    )
    parameters = 9 * 3 * 4 + 4 + 9 * 4 * 4 + 4 + 4 * 10 + 10
    rows = [f"{name},{parameters},2,1700,{status}" for status in ("SUCCESSFUL", "OOM_CRASH")]
    ran, crashed = read_cnn(table(tmp_path, "x", MLP_HEADER + ",Status", *rows)).cases
    assert isinstance(ran.workload.job.target, CnnJob)
    assert (ran.ran, ran.measured) == (True, 1700 * MiB)
    assert (crashed.ran, crashed.measured) == (False, None)


def test_real_models_have_a_case_for_every_campaign_that_measured_them(tmp_path: Path) -> None:
    unknown = "unet,somebody's unet,8,AdamW,,1,2,3"
    found = read_real_models(table(tmp_path, "real_models", REAL_HEADER, REAL_ROW, unknown))
    assert [case.campaign for case in found.cases] == ["a100_2024_10", "a100_2025_09", "rtx2080ti_2026_06"]
    assert {case.measure for case in found.cases} == {Measure.DEVICE_TOTAL}
    assert found.cases[0].workload.optimizer == "adam"
    assert [skip.row for skip in found.skipped] == ["3"]


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_unet_is_judged_where_it_can_be_built(
    is_installed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_real_models, "find_spec", lambda name: object() if is_installed else None)
    row = "unet_resnet34_voc_bs8,segmentation_models_pytorch Unet(resnet34) 21 classes,8,AdamW,,9910,5636,5378"
    found = read_real_models(table(tmp_path, "real_models", REAL_HEADER, row))
    assert [case.campaign for case in found.cases] == ["a100_2026_aegis", "rtx2080ti_2026_06"][: 2 * is_installed]
    (skip,) = found.skipped
    assert skip.reason.endswith("validated with gradients" if is_installed else "its package is not installed")


def test_the_named_models_of_2024_have_a_context_of_their_own(tmp_path: Path) -> None:
    of_2024, *later = read_real_models(table(tmp_path, "real_models", REAL_HEADER, REAL_ROW)).cases
    assert of_2024.more_context > 0
    assert all(case.more_context == 0 for case in later)


@pytest.mark.parametrize(
    ("lines", "complaint"),
    [
        (["Filename,Total Parameters,Batch Size", MLP_ROW], r"x\.csv, row 1: the column 'Max GPU Memory"),
        ([MLP_HEADER, MLP_ROW.replace("1479", "")], r"row 2, column 'Max GPU Memory \(MiB\)': the cell is empty"),
        ([MLP_HEADER, MLP_ROW, MLP_ROW.replace("1479", "much")], r"row 3, .*'much' is not a number"),
        (
            [MLP_HEADER, MLP_ROW.replace("1479", "1550000000")],
            r"row 2, .*more than the .* of a a100-40gb: another unit",
        ),
        ([MLP_HEADER, MLP_ROW.replace("1479", "0.5")], r"row 2, .*less than any job takes: another unit"),
        ([MLP_HEADER, MLP_ROW.replace("1479", "nan")], r"row 2, .*is not a number of at least 0"),
        ([MLP_HEADER, MLP_ROW.rsplit(",", 1)[0]], r"row 2, .*the row ends before this cell"),
        ([MLP_HEADER, MLP_ROW.replace("depth:2_", "")], r"row 2, column 'Filename': it does not say 'depth'"),
        ([MLP_HEADER, MLP_ROW.replace("batch:16", "batch:many")], r"column 'Filename': 'batch' is 'many'"),
        ([""], r"x\.csv, row 1: the column 'Filename' is missing"),
    ],
)
def test_a_bad_file_says_where_it_is_bad(tmp_path: Path, lines: list[str], complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint):
        read_mlp_step1(table(tmp_path, "x", *lines))


def test_a_status_that_nobody_knows_is_an_error(tmp_path: Path) -> None:
    row = "570,128,9,2,344,256,1000,8,2297,MAYBE"
    with pytest.raises(BadInput, match="column 'status': 'MAYBE' is none of SUCCESSFUL, OOM_CRASH"):
        read_transformer(table(tmp_path, "x", TRANSFORMER_HEADER, row))


TIMM_HEADER = "model,batch_size_per_gpu,metric,value_gib"
TIMM_COUNTED = "model,batch_size_per_gpu,extra_settings,metric,value_gib"


def test_a_timm_run_whose_own_tensors_exceed_the_gpu_has_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_timm_a100, "timm_modules", lambda: {"vgg16": "vgg"})
    counted = "vgg16,{},FakeTensor estimate by authors (MB): {},nvidia-smi,{}"
    rows = (counted.format(8, 36000.5, 38.9), counted.format(16, 72000.1, 39.2))
    read = _timm_a100.read_timm_a100(table(tmp_path, "x", TIMM_COUNTED, *rows))
    assert [case.workload.batch_size for case in read.cases] == [8]
    assert [(one.row, "exceed the GPU" in one.reason) for one in read.skipped] == [("3", True)]


LITGPT_HEADER = "model,task,gpu,precision,optimizer,batch_size_per_gpu,input_shape,extra_settings,metric,value_gib"
LITGPT_ROW = (
    "Llama 2 7 B (litgpt name Llama-2-7b-hf),finetune_lora Alpaca,1 x A100-SXM4-40GB,bf16-true,AdamW,2,"
    "2x1304 tokens,lora r=8 dropout=0.05,max_memory_allocated,27.074"
)


def test_a_litgpt_row_tells_its_decoder(tmp_path: Path) -> None:
    quantized = LITGPT_ROW.replace("bf16-true", "bf16-true + bnb.nf4")
    found = read_fine_tuning("litgpt", table(tmp_path, "litgpt", LITGPT_HEADER, LITGPT_ROW, quantized))
    case, *others = found.cases
    job = case.workload.job.target
    assert (job.length, job.lora, job.shape.layers, job.shape.norm) == (1304, Lora(8, 0.05), 32, "rms-float-out")
    assert (case.measure, case.gpu, case.workload.steps) == (Measure.ALLOCATED, "a100-40gb", 1)
    assert case.measured == round(27.074 * 1024 * MiB)
    if not HAS_BITSANDBYTES:
        assert ["bitsandbytes, which is not installed" in skip.reason for skip in found.skipped] == [True]
    else:
        assert [other.workload.job.target.quantization for other in others] == ["nf4"]


@pytest.mark.parametrize(
    ("name", "reader", "lines", "complaint"),
    [
        (
            "litgpt",
            "litgpt",
            [LITGPT_HEADER.replace(",metric", ""), LITGPT_ROW],
            "row 1: the column 'metric' is missing",
        ),
        (
            "litgpt",
            "litgpt",
            [LITGPT_HEADER, LITGPT_ROW.replace("27.074", "27724.1")],
            "row 2, .*'value_gib'.*another unit",
        ),
        (
            "litgpt",
            "litgpt",
            [LITGPT_HEADER, LITGPT_ROW.replace("27.074", "")],
            "row 2, column 'value_gib': the cell is empty",
        ),
        (
            "litgpt",
            "litgpt",
            [LITGPT_HEADER, LITGPT_ROW.replace(",2,2x", ",,2x")],
            "column 'batch_size_per_gpu': the cell is empty",
        ),
        (
            "litgpt",
            "litgpt",
            [LITGPT_HEADER, LITGPT_ROW.replace("max_memory_allocated", "felt")],
            "column 'metric': 'felt' is none of",
        ),
        (
            "real",
            "real_models",
            [REAL_HEADER, REAL_ROW.replace("8222", "8222000000")],
            "'a100_2024_10_mib'.*another unit",
        ),
        (
            "real",
            "real_models",
            [REAL_HEADER, REAL_ROW.replace(",32,", ",many,")],
            "column 'batch_size': 'many' is not a number",
        ),
        (
            "tr",
            "gpumemnet_transformer",
            [TRANSFORMER_HEADER, "570,128,9,2,344,256,1000,8,,SUCCESSFUL"],
            "'max_gpu_memory_mib': the cell",
        ),
        ("timm", "timm_a100_fp32", [TIMM_HEADER, "vgg16,8,nvidia-smi,3627"], "'value_gib'.*another unit"),
        ("timm", "timm_a100_fp32", [TIMM_HEADER, "vgg16,,nvidia-smi,3.6"], "'batch_size_per_gpu': the cell"),
        (
            "fits",
            "timm_rtx3090_fits",
            ["file,model,batch_size_per_gpu,input_shape,metric", "x-nchw.csv,vgg16,8,224,fits"],
            "column 'input_shape': '224' is not",
        ),
    ],
)
def test_every_reader_says_where_its_file_is_bad(
    tmp_path: Path, name: str, reader: str, lines: list[str], complaint: str
) -> None:
    if reader.startswith("timm") and importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    with pytest.raises(BadInput, match=rf"{name}\.csv, {complaint}" if complaint.startswith("row") else complaint):
        DATA_SETS[reader](table(tmp_path, name, *lines))


def test_a_binary_file_is_no_table(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"\xff\xfe\x00\x01")
    with pytest.raises(BadInput, match="not text in UTF-8"):
        read_mlp_step1(path)


def test_folders_and_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no folder"):
        read_sets(tmp_path / "nowhere")
    with pytest.raises(BadInput, match="holds no file of measurements"):
        read_sets(tmp_path)
    with pytest.raises(UnknownName, match="gpumemnet_cnn"):
        read_sets(tmp_path, ["gpumemnet_cnm"])
    with pytest.raises(BadInput, match=r"has no real_models\.csv"):
        read_sets(tmp_path, ["real_models"])


def test_torchtune_early_tables_are_in_decimal_gb(tmp_path: Path) -> None:
    columns = ("model", "package_to_build_it", "task", "gpu", "precision", "optimizer", "batch_size_per_gpu",
               "input_shape", "extra_settings", "metric", "value_gib")  # fmt: skip
    lora = ("Llama2-7B", "torchtune 0.1", "LoRA", "1x RTX 4090", "bf16", "", "4", "4x2048 tokens",
            "activation checkpointing on", "peak memory (which counter not stated)", "21.3")  # fmt: skip
    packed = ("Llama 3.2 3B (its builder)", "torchtune 0.5", "full", "A100", "bf16", "", "2", "2x4096 tokens packed",
              "packed=True", "max_memory_allocated", "60.0")  # fmt: skip
    unstated = (*packed[:7], "2 x variable Alpaca length", *packed[8:])
    path = tmp_path / "torchtune.csv"
    with path.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream).writerows([columns, lora, packed, unstated])
    (found,) = read_sets(tmp_path, ["torchtune"])
    early, late = found.cases
    assert (early.measured, late.measured) == (21_300_000_000, 60 * 2**30)
    assert early.workload.job.target.lora is not None
    assert (early.workload.job.target.recipe, late.workload.job.target.recipe) == ("2024-04", "2024-12")
    assert late.stack == "torch-2.5"  # of that November; 2.8 is of the next August
    assert [skip.reason for skip in found.skipped] == ["the lengths of its batches are not published"]


@pytest.mark.groundtruth
@pytest.mark.skipif(not GROUNDTRUTH.is_dir(), reason=f"no measurements under {GROUNDTRUTH}")
@pytest.mark.parametrize(
    ("name", "cases", "skipped"),
    [
        ("timm_a100_fp32", 2358, 272),
        ("timm_rtx3090_fits", 1709, 26),
        ("real_models", 53 + 2 * HAS_UNET, 1),
        ("gpumemnet_mlp_step1", 2392, 0),
        ("gpumemnet_mlp_step2", 2391, 0),
        ("gpumemnet_cnn", 1590, 2),
        ("gpumemnet_transformer", 16, 0),
        ("hf_docs_bert_large", 4, 6),
        ("rasbt_memory", 6, 5),
        ("torchtune", 5, 12),
        ("torchao", 4 + 7 * HAS_TORCHAO, 21 - 7 * HAS_TORCHAO),
        ("ms_swift", 42, 14),
        ("litgpt", 23 + 22 * HAS_BITSANDBYTES, 47 - 22 * HAS_BITSANDBYTES),
        ("peft_method_comparison", 37 * HAS_PEFT, 110 - 37 * HAS_PEFT),
        ("peft_bytes", 20 * HAS_PEFT, 31 - 20 * HAS_PEFT),
        ("qwen_finetune", 24, 18),
    ],
)
def test_the_real_files_are_read_whole(name: str, cases: int, skipped: int) -> None:
    if name.startswith("timm") and importlib.util.find_spec("timm") is None:
        pytest.skip("timm is not installed")
    (found,) = read_sets(GROUNDTRUTH, [name])
    assert (len(found.cases), len(found.skipped)) == (cases, skipped)
    assert name in DATA_SETS


@pytest.mark.groundtruth
@pytest.mark.skipif(not GROUNDTRUTH.is_dir(), reason=f"no measurements under {GROUNDTRUTH}")
def test_every_file_of_the_folder_has_a_reader_that_accounts_for_all_rows() -> None:
    for path in sorted(GROUNDTRUTH.glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as stream:
            rows = sum(1 for _ in csv.DictReader(stream))
        (found,) = read_sets(GROUNDTRUTH, [path.stem])
        read = {name.split()[0] for name in (*(case.row for case in found.cases), *(s.row for s in found.skipped))}
        assert len(read) == rows, path.stem
        assert all(skip.reason for skip in found.skipped)
