"""What the page hands out as a command line or as Python asks the same question again."""

from __future__ import annotations

import argparse
import ast
import shlex
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from oomcast.cli.job_options import add_job_options, given_options
from oomcast.spec import Spec
from oomcast.web.questions import Limits, read_question
from oomcast.web.spelling import as_command_line, as_python

ASKED: list[dict[str, Any]] = [
    {"job": "zoo:resnet50", "batch_size": 64, "device": "a100-40gb"},
    {"job": "zoo:resnet50", "batch_size": 8, "device": "t4", "input_shape": [3, 320, 320], "channels_last": True},
    {"job": "zoo:gpt2", "batch_size": 8, "device": "8xh100-80gb", "seq_len": 512, "parallel": "fsdp2,tp=2"},
    {"job": "hf:gpt2", "batch_size": 2, "device": "t4", "adapter": "lora,r=16,target_modules=c_attn+c_proj"},
    {"job": "zoo:gpt2", "batch_size": 1, "device": "t4", "checkpointing": True, "precision": "amp-bf16"},
    {
        "job": "zoo:gpt2",
        "batch_size": 1,
        "device": "t4",
        "checkpointing": ["layers.0", "layers.1"],
        "compile": "blocks",
    },
    {"job": "hf:gpt2", "batch_size": 1, "device": "24GiB", "lengths": [64, 128], "set_to_none": False, "coverage": 0.9},
]


@pytest.mark.parametrize("asked", ASKED)
def test_both_spellings_read_back_as_the_same(asked: dict[str, Any]) -> None:
    question = read_question("estimate", asked, Limits())
    expected = Spec.read(question.job, **question.options)
    parser = argparse.ArgumentParser()
    add_job_options(parser)
    words = shlex.split(as_command_line(question))
    read = parser.parse_args(words[2:])
    assert Spec.read(read.job, **given_options(read)) == expected
    call = next(node for node in ast.walk(ast.parse(as_python(question))) if isinstance(node, ast.Call))
    options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert Spec.read(ast.literal_eval(call.args[0]), **options) == expected
