"""Rows of Megatron-LM's tests become command lines of a script; its kernels hold what the real ones hold."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pytest

from lab.accuracy.cases import Case
from lab.accuracy.megatron.rows import MEGATRON_COLUMNS, read_megatron
from lab.accuracy.table import Row
from oomcast.spec import read_launch

needs_megatron = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="the package megatron-core is not installed"
)
SIZES = {"--num-layers": 2, "--hidden-size": 64, "--num-attention-heads": 4, "--seq-length": 32, "--bf16": True,
         "--max-position-embeddings": 32, "--micro-batch-size": 2, "--global-batch-size": 16,
         "--no-gradient-accumulation-fusion": True}  # fmt: skip


def row(arguments: dict[str, Any], **cells: str) -> Row:
    told = {"model_family": "gpt", "test_case": "a test", "mem_max_allocated_bytes_max": "1000000", **cells}
    told["model_args_json"] = json.dumps({**SIZES, **arguments})
    return Row("megatron_golden.csv", 2, {column: told.get(column, "") for column in MEGATRON_COLUMNS})


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"--fp8-format": "hybrid"}, "8-bit floats"),
        ({"--optimizer": "muon"}, "the optimizer muon"),
        ({"--tokenizer-type": "HuggingFaceTokenizer"}, "the size of its vocabulary"),
        ({"--use-checkpoint-args": True, "--hidden-size": None}, "its sizes are in a checkpoint"),
    ],
)
def test_what_is_not_rebuilt_says_why(arguments: dict[str, Any], reason: str) -> None:
    told = read_megatron(row(arguments))
    assert isinstance(told, str)
    assert reason in told


@needs_megatron
def test_a_row_is_the_last_rank_of_its_machine() -> None:
    case = read_megatron(row({"--tensor-model-parallel-size": 2}, nodes="1;2", gpus_per_node="4;8"))
    assert isinstance(case, Case)
    assert (case.gpu, case.rank) == ("8xa100-80gb", 7)
    assert case.script is not None
    launch = read_launch(case.script.line)
    told = json.loads(launch.arguments[0])
    assert told["padded_vocab_size"] == 50432  # 50,257 to a multiple of 2 x 128
    assert "CUBLAS_WORKSPACE_CONFIG" not in launch.variables


@needs_megatron
def test_a_test_that_resumes_from_what_it_saved_names_its_sizes() -> None:
    assert isinstance(read_megatron(row({"--use-checkpoint-args": True})), Case)


@needs_megatron
@pytest.mark.parametrize("engine", ["local", "transformer_engine"])
def test_the_states_are_those_of_the_distributed_optimizer(engine: str) -> None:
    """2 bytes of weights, 4 of gradients, and 12 of master weights and Adam's states shared by eight ranks."""
    from oomcast.capture import capture
    from oomcast.trace import Category

    case = read_megatron(row({"--transformer-impl": engine, "--use-distributed-optimizer": True}))
    assert isinstance(case, Case)
    trace = capture(case.spec)
    assert trace.script is not None
    assert trace.script.optimizer_steps == 3
    block = 12 * 64 * 64 + 13 * 64
    parameters = 50304 * 64 + 32 * 64 + 2 * block + 2 * 64
    states = sum(a.nbytes for a in trace.allocations if a.category is Category.OPTIMIZER_STATE)
    assert states == pytest.approx(8 * parameters / 8, rel=0.01)


@needs_megatron
@pytest.mark.parametrize(
    ("file", "arguments", "backend"),
    [
        ("golden_values_lts_dgxa100_dracooci.json", {"--deterministic-mode": True}, "unfused"),
        ("golden_values_lts_dgxa100_dracooci.json", {}, None),
        ("golden_values_lts_dgx_a100.json", {"--deterministic-mode": True}, None),
        ("golden_values_lts_dgxa100_dracooci.json",
         {"--deterministic-mode": True, "--attention-backend": "flash"}, "flash"),
    ],
)  # fmt: skip
def test_old_records_of_deterministic_runs_had_no_flash_attention(
    file: str, arguments: dict[str, Any], backend: str | None
) -> None:
    case = read_megatron(row(arguments, file=f"tests/functional_tests/{file}"))
    assert isinstance(case, Case)
    assert case.script is not None
    assert json.loads(case.script.line[-1]).get("attention_backend") == backend


@needs_megatron
@pytest.mark.parametrize(
    ("environment", "steps", "backend"),
    [("lts", "21", "unfused"), ("lts", "100", None), ("dev", "21", None)],
)
def test_an_old_record_ran_unfused_where_it_was_deterministic(
    environment: str, steps: str, backend: str | None
) -> None:
    """Files of the image of then have a value for every fifth step."""
    arguments = {"--deterministic-mode": True, "--train-iters": 100}
    case = read_megatron(row(arguments, environment=environment, steps=steps))
    assert isinstance(case, Case)
    assert case.script is not None
    assert json.loads(read_launch(case.script.line).arguments[0]).get("attention_backend") == backend


@needs_megatron
@pytest.mark.parametrize(
    ("family", "more"),
    [
        # BERT compares its backend with the library's own names.
        ("bert", {"--spec": "local", "--attention-backend": "local"}),
        # Five micro-batches in groups of five: the library refuses the four that it would take by itself.
        ("gpt", {"--transformer-impl": "local", "--num-layers": 8, "--pipeline-model-parallel-size": 4,
                 "--num-layers-per-virtual-pipeline-stage": 1, "--global-batch-size": 20,
                 "--microbatch-group-size-per-virtual-pipeline-stage": 5}),
    ],
)  # fmt: skip
def test_arguments_that_the_library_knows_by_other_names(family: str, more: dict[str, Any]) -> None:
    from oomcast.capture import capture

    case = read_megatron(row(more, model_family=family))
    assert isinstance(case, Case)
    script = capture(case.spec).script
    assert script is not None
    assert script.optimizer_steps == 3, script.reason
