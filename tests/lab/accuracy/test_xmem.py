"""xMem's runs: which job, loop and figure a row stands for, and that the jobs run on the virtual GPU."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from lab.accuracy import Measure
from lab.accuracy.kept_outputs import ImageClassifierJob, LanguageModelJob
from lab.accuracy.public_models import PUBLIC_MODELS, PublicModel, find_public_model
from lab.accuracy.xmem import read_xmem_runs
from oomcast.capture import capture
from oomcast.capture.torch.jobs.vision import import_library
from oomcast.errors import BadInput
from oomcast.spec import Spec, ZeroGrad
from oomcast.trace import EventKind, Phase

HEADER = (
    "set,kind,model,optimizer,batch_size,gpu,gpu_total_bytes,ground_bytes,real_oom,zero_grad_mode,target_iteration,"
    "input_size"
)
CARD = "NVIDIA GeForce RTX 3060,12622168064"
needs_torchvision = pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="torchvision is not installed"
)


def read(folder: Path, *rows: str):  # type: ignore[no-untyped-def]
    path = folder / "xmem_runs.csv"
    path.write_text("\n".join((HEADER, *rows)) + "\n", encoding="utf-8")
    return read_xmem_runs(path)


def test_a_language_model(tmp_path: Path) -> None:
    (case,) = read(tmp_path, f"mc2,transformer,facebook/opt-125m,AdamW,18,{CARD},5000000000,False,1,3,86x86x3").cases
    assert case.workload.job.target == LanguageModelJob(PUBLIC_MODELS["opt-125m"], 128, of_spring_2025=True)
    assert (case.workload.optimizer, case.workload.steps) == ("adamw", 4)
    assert case.workload.zero_grad is ZeroGrad.BEFORE_BACKWARD
    assert (case.gpu, case.measure, case.measured) == ("rtx-3060", Measure.RESERVED, 5_000_000_000)


def test_runs_that_ended_badly_or_near_the_limit_tell_only_that(tmp_path: Path) -> None:
    squeezed, failed = read(
        tmp_path,
        f"mc1,transformer,gpt2,SGD,18,{CARD},12000000000,False,,3,86x86x3",
        f"mc1,transformer,gpt2,SGD,18,{CARD},12000000000,True,0,3,86x86x3",
    ).cases
    assert (squeezed.ran, squeezed.measured, squeezed.measure) == (True, None, Measure.BOUNDARY)
    assert (failed.ran, failed.measured, failed.measure) == (False, None, Measure.RESERVED)


@needs_torchvision
def test_image_models_by_their_names(tmp_path: Path) -> None:
    names = ("MobeNetV3Large", "RegNetX400MF", "MnasNet", "VGG16", "ConvNeXtTiny")
    found = read(tmp_path, *(f"mc1,cnn,{name},Adam,8,{CARD},500000000,False,,3,86x86x3" for name in names))
    jobs = [case.workload.job.target for case in found.cases]
    assert [job.name for job in jobs] == [
        "mobilenet_v3_large",
        "regnet_x_400mf",
        "mnasnet1_0",
        "vgg16",
        "convnext_tiny",
    ]
    assert [job.classes for job in jobs] == [10, 1000, 10, 1000, 1000]
    assert {job.input_shape for job in jobs} == {(3, 86, 86)}


def test_what_cannot_be_rebuilt_says_why(tmp_path: Path) -> None:
    skipped = read(
        tmp_path,
        f"mc1,transformer,nobody/no-model,Adam,8,{CARD},500000000,False,,3,86x86x3",
        "mc1,transformer,gpt2,Adam,8,Imaginary 9,1,500000000,False,,3,86x86x3",
        f"mc1,transformer,gpt2,Imaginary,8,{CARD},500000000,False,,3,86x86x3",
    ).skipped
    assert [skip.reason for skip in skipped] == [
        "the configuration of nobody/no-model is not written here",
        "Imaginary 9 is not in the catalogue of devices",
        "the optimizer Imaginary is not offered",
    ]
    with pytest.raises(BadInput, match="column 'zero_grad_mode': '7' is none of 0, 1, 2"):
        read(tmp_path, f"mc1,transformer,gpt2,Adam,8,{CARD},500000000,False,7,3,86x86x3")


def test_models_tuned_for_instructions_have_the_sizes_of_their_base() -> None:
    assert find_public_model("google/gemma-2-2b-it") == PUBLIC_MODELS["gemma-2-2b"]
    assert find_public_model("meta-llama/Llama-3.2-1B-Instruct") == PUBLIC_MODELS["llama-3.2-1b"]
    assert find_public_model("Nobody/else") is None


@pytest.mark.parametrize("of_spring_2025", [False, True])
def test_a_small_language_model_keeps_its_outputs_into_the_next_forward(of_spring_2025: bool) -> None:
    pytest.importorskip("transformers")
    sizes = (("n_embd", 32), ("n_layer", 2), ("n_head", 2), ("vocab_size", 1000))
    job = LanguageModelJob(PublicModel("GPT2LMHeadModel", "GPT2Config", sizes), 16, of_spring_2025)
    for library in job.libraries:  # as the benchmark does: it cannot be loaded among fake tensors
        import_library(library)
    trace = capture(Spec.read(job, device="rtx-3060", batch_size=4, optimizer="sgd"))
    assert not trace.unsupported
    logits = {
        index
        for index, made in enumerate(trace.allocations)
        if made.nbytes == 4 * 16 * 1000 * 4 and made.step == 0 and made.phase is Phase.FORWARD
    }
    begin = next(mark.position for mark in trace.marks if mark.step == 1 and mark.phase is Phase.FORWARD)
    freed = {index for kind, index in trace.events[:begin] if kind is EventKind.FREE}
    assert len(logits - freed) == 1


@needs_torchvision
def test_a_job_of_images_is_a_job() -> None:
    images, classes = ImageClassifierJob("resnet18", (3, 86, 86), 10).batch(2)
    assert (tuple(images.shape), tuple(classes.shape)) == ((2, 3, 86, 86), (2,))
