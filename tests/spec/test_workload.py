"""Jobs and workloads: how names are read, and what is refused."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from oomcast.errors import BadInput, UnknownName
from oomcast.spec import OPTIMIZERS, Job, JobKind, Precision, Workload, ZeroGrad, parse_input_shape


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("zoo:resnet50", JobKind.ZOO, "resnet50"),
        ("ZOO:resnet50", JobKind.ZOO, "resnet50"),
        ("timm:vit_base_patch16_224.augreg_in21k", JobKind.TIMM, "vit_base_patch16_224.augreg_in21k"),
        ("torchvision:vgg16", JobKind.TORCHVISION, "vgg16"),
        ("hf:gpt2", JobKind.HF, "gpt2"),
        ("hf:some/config.json", JobKind.HF, "some/config.json"),
    ],
)
def test_names(text: str, kind: JobKind, name: str) -> None:
    job = Job.parse(text)
    assert (job.kind, job.name) == (kind, name)
    assert Job.parse(job.reference) == job


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text("")
    assert Job.parse(str(path)).kind is JobKind.FILE
    assert Job.parse(path) == Job.parse(str(path))
    config = tmp_path / "config.json"
    config.write_text("{}")
    assert Job.parse(str(config)).kind is JobKind.HF
    for wrong in (tmp_path, tmp_path / "missing.py", tmp_path / "missing" / "job.py"):
        with pytest.raises(BadInput):
            Job.parse(str(wrong))
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(BadInput, match=r"\.py"):
        Job.parse(str(tmp_path / "notes.txt"))


def test_objects() -> None:
    whole = SimpleNamespace(model=lambda: None, batch=lambda n: None)
    assert Job.parse(whole).kind is JobKind.OBJECT
    with pytest.raises(BadInput, match=r"model\(\) and batch"):
        Job.parse(SimpleNamespace(model=lambda: None))
    with pytest.raises(BadInput):
        Job.parse(42)


def test_options_are_read_as_people_write_them() -> None:
    workload = Workload.create(
        "zoo:resnet50",
        batch_size=4,
        precision="AMP_BF16",
        optimizer="SGD_Momentum",
        input_shape="3x64x64",
        zero_grad="after_step",
    )
    assert workload.precision is Precision.AMP_BF16
    assert workload.optimizer == "sgd-momentum"
    assert workload.input_shape == (3, 64, 64)
    assert workload.zero_grad is ZeroGrad.AFTER_STEP


def test_a_workload_survives_json() -> None:
    workload = Workload.create("hf:gpt2", batch_size=4, seq_len=128, precision="bf16", checkpointing=True)
    assert Workload.from_dict(workload.as_dict()) == workload


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 0},
        {"batch_size": -1},
        {"batch_size": 1.5},
        {"batch_size": True},
        {"batch_size": 1, "accumulation": 0},
        {"batch_size": 1, "steps": 0},
        {"batch_size": 1, "seq_len": 0},
        {"batch_size": 1, "input_shape": (3, 0, 4)},
    ],
)
def test_sizes_must_be_whole_and_positive(options: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="whole number of at least 1"):
        Workload.create("zoo:resnet50", **options)


@pytest.mark.parametrize(
    ("options", "near"),
    [({"precision": "fp-32"}, "fp32"), ({"optimizer": "adamx"}, "adam"), ({"zero_grad": "before"}, "before-forward")],
)
def test_unknown_choices_show_near_ones(options: dict[str, str], near: str) -> None:
    with pytest.raises(UnknownName) as caught:
        Workload.create("zoo:resnet50", batch_size=1, **options)
    assert near in caught.value.near


def test_the_optimizers_asked_for_are_there() -> None:
    for name in ("sgd", "sgd-momentum", "adam", "adamw", "rmsprop", "adagrad", "adafactor"):
        assert name in OPTIMIZERS
        assert f"{name}-foreach" in OPTIMIZERS
    assert "adamw-fused" in OPTIMIZERS


@pytest.mark.parametrize("text", ["3x224x224", "3,224,224", " 3×224×224 ", "3X224X224"])
def test_input_shapes(text: str) -> None:
    assert parse_input_shape(text) == (3, 224, 224)


@pytest.mark.parametrize("text", ["", "x", "3x", "3x-1x2", "3 224 224", "axb"])
def test_what_is_no_input_shape(text: str) -> None:
    with pytest.raises(BadInput, match="3x224x224"):
        parse_input_shape(text)


@pytest.mark.parametrize(
    ("job", "options", "libraries"),
    [
        ("zoo:mlp", {}, ()),
        ("timm:resnet18", {}, ("timm",)),
        ("hf:bert", {}, ("transformers",)),
        ("hf:bert", {"adapter": "lora"}, ("transformers", "peft")),
    ],
)
def test_the_libraries_that_a_server_loads_for_a_job(
    job: str, options: dict[str, str], libraries: tuple[str, ...]
) -> None:
    assert Workload.create(job, batch_size=1, **options).libraries == libraries
