"""Names resolve to jobs that train: zoo, transformers by type and by configuration, and what is refused."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from oomcast.capture import capture
from oomcast.errors import BadInput, UnknownName, UnreadableFile
from oomcast.spec import Spec
from oomcast.trace import Category, EventKind, Trace, verify

GPU = "a100-40gb"
SMALL_BERT = {
    "model_type": "bert",
    "architectures": ["BertForSequenceClassification"],
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "vocab_size": 1000,
}


def record(job: str, **options: Any) -> Trace:
    trace = capture(Spec.read(job, **{"device": GPU, "batch_size": 2, "steps": 1, "optimizer": "sgd", **options}))
    verify(trace)
    return trace


def size(trace: Trace, category: Category) -> int:
    return sum(a.nbytes for a in trace.allocations if a.category is category)


def needs(package: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=f"{package} is not installed")


def test_zoo_models_have_their_parameters_and_gradients() -> None:
    trace = record("zoo:resnet18", input_shape=(3, 64, 64))
    assert size(trace, Category.PARAMETER) == size(trace, Category.GRADIENT) == 4 * 11_689_512
    assert trace.versions["torch"]
    assert trace.workload["job"] == "zoo:resnet18"


@pytest.mark.parametrize("name", ["lstm-lm", "unet2d", "mlp", "bert-base"])
def test_zoo_models_of_every_kind(name: str) -> None:
    trace = record(f"zoo:{name}", precision="amp-bf16")
    assert size(trace, Category.GRADIENT) >= size(trace, Category.PARAMETER) > 0
    assert size(trace, Category.ACTIVATION) > 0


def test_sequence_length_reaches_the_model() -> None:
    short, long = (record("zoo:gpt2", seq_len=length) for length in (64, 256))
    assert size(long, Category.ACTIVATION) > 2 * size(short, Category.ACTIVATION)


def test_what_the_zoo_refuses_is_told_before_anything_runs() -> None:
    with pytest.raises(BadInput, match="channels"):
        record("zoo:vgg16", input_shape=(4, 64, 64))
    with pytest.raises(BadInput):
        record("zoo:gpt2", seq_len=5000)


@needs("transformers")
def test_hf_configurations(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(SMALL_BERT))
    by_file = record(f"hf:{path}", seq_len=32)
    by_folder = record(f"hf:{tmp_path}", seq_len=32)
    by_path = record(str(path), seq_len=32)
    assert by_file.allocations == by_folder.allocations == by_path.allocations
    assert any("BertForSequenceClassification" in sentence for sentence in by_file.assumptions)
    assert by_file.versions["transformers"]


@needs("transformers")
def test_hf_causal_models_take_the_kernel_of_a_real_run(tmp_path: Path) -> None:
    """transformers builds a mask for fake tensors, which would keep flash attention from being chosen."""
    path = tmp_path / "config.json"
    config = {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
              "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 1000}  # fmt: skip
    path.write_text(json.dumps(config))
    trace = record(f"hf:{path}", seq_len=64, precision="bf16")
    assert any("flash_attention" in a.operator for a in trace.allocations)
    assert not any("efficient_attention" in a.operator for a in trace.allocations)


@needs("transformers")
@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("{", UnreadableFile),
        ("[]", UnreadableFile),
        ('{"hidden_size": 3}', UnreadableFile),
        ('{"model_type": "bertt"}', UnknownName),
        ('{"model_type": "bert", "hidden_size": "wide"}', BadInput),
    ],
)
def test_files_that_are_no_configurations(tmp_path: Path, text: str, error: type[Exception]) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(BadInput) as caught:
        record(f"hf:{path}")
    assert len(str(caught.value).splitlines()) == 1
    # Errors come from another process: the kind survives where it has no parameters of its own.
    assert isinstance(caught.value, BadInput if error is UnknownName else error)


@needs("timm")
def test_timm_models() -> None:
    trace = record("timm:resnet18", input_shape=(3, 64, 64))
    assert size(trace, Category.PARAMETER) == 4 * 11_689_512
    with pytest.raises(BadInput, match="did you mean"):
        record("timm:resnet51")


@needs("torchvision")
def test_torchvision_models() -> None:
    trace = record("torchvision:resnet18", input_shape=(3, 64, 64))
    assert size(trace, Category.PARAMETER) == 4 * 11_689_512
    with pytest.raises(BadInput, match="job file"):
        record("torchvision:fasterrcnn_resnet50_fpn")


@pytest.mark.parametrize("library", ["timm", "torchvision", "transformers"])
def test_a_library_that_is_missing_is_named_with_its_extra(library: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from oomcast.capture.torch.jobs import vision as _vision

    def absent(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(_vision.importlib, "import_module", absent)
    with pytest.raises(BadInput, match=r"pip install 'oomcast\["):
        _vision.import_library(library)


@needs("transformers")
def test_more_tokens_than_positions_are_refused() -> None:
    with pytest.raises(BadInput, match="out of range for an embedding of 1024 rows"):
        record("hf:gpt2", seq_len=2000)


PREFETCHING = """
import torch

def model():
    return torch.nn.Linear(1000, 10)

def batch(batch_size):
    return torch.randn(batch_size, 1000), torch.randint(10, (batch_size,))

def batches(batch_size):
    stream, ready = torch.cuda.Stream(), None
    while True:
        with torch.cuda.stream(stream):
            coming = [part.cuda() for part in batch(batch_size)]
        if ready is not None:
            yield ready
        ready = coming
"""


def most_alive(trace: Trace, nbytes: int, stream: int) -> int:
    """How many allocations of that size on that stream are there at once, at most."""
    alive = most = 0
    for event in trace.events:
        allocation = trace.allocations[event.index] if event.kind in (EventKind.ALLOCATE, EventKind.FREE) else None
        if allocation is not None and (allocation.nbytes, allocation.stream) == (nbytes, stream):
            alive += 1 if event.kind is EventKind.ALLOCATE else -1
            most = max(most, alive)
    return most


def test_a_loader_that_prefetches_holds_its_batches_on_its_stream(tmp_path: Path) -> None:
    prefetching, plain = tmp_path / "prefetching.py", tmp_path / "plain.py"
    prefetching.write_text(PREFETCHING)
    plain.write_text(PREFETCHING.partition("def batches")[0])
    size_of_batch = 64 * 1000 * 4
    ahead = record(str(prefetching), batch_size=64, steps=4)
    assert most_alive(ahead, size_of_batch, stream=1) == 3  # the loop's, the next, and the one that is being made
    assert most_alive(ahead, size_of_batch, stream=0) == 0
    assert most_alive(record(str(plain), batch_size=64, steps=4), size_of_batch, stream=0) == 1


def test_a_loader_begins_again_when_it_ends(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(PREFETCHING.partition("def batches")[0] + "def batches(batch_size):\n    yield batch(batch_size)\n")
    trace = record(str(job), batch_size=64, steps=3)
    assert sum(a.category is Category.INPUT and a.nbytes == 64 * 1000 * 4 for a in trace.allocations) == 3


@pytest.mark.parametrize(
    ("batches", "complaint"),
    [
        ("def batches(batch_size):\n    return []\n", "gives no batch; it must give one at least"),
        ("batches = 3\n", r"is not a function; it must be batches\(batch_size\), or have another name"),
    ],
)
def test_a_loader_without_batches_is_refused(tmp_path: Path, batches: str, complaint: str) -> None:
    job = tmp_path / "job.py"
    job.write_text(PREFETCHING.partition("def batches")[0] + batches)
    with pytest.raises(BadInput, match=complaint):
        record(str(job))
