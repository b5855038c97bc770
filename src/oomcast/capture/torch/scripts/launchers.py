"""What `accelerate launch` sets for the processes that it starts: asked of accelerate's own code.

Its command line and its files have some two hundred settings (FSDP, DeepSpeed, Megatron, compiling …), which it hands
on as variables of the environment. Nothing is started here.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ....errors import BadInput

__all__ = ["set_by_accelerate"]

_NOT_OF_THE_JOB = ("PYTHONPATH", "CUDA_VISIBLE_DEVICES")
"""Where modules are looked for, and which GPUs there are, is known already."""


def set_by_accelerate(words: Sequence[str]) -> Mapping[str, str]:
    """`words` are those after `accelerate launch`. Within a virtual GPU: accelerate counts the GPUs that there are."""
    try:
        command = importlib.import_module("accelerate.commands.launch")
        helpers = importlib.import_module("accelerate.utils.launch")
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "accelerate":
            raise
        raise BadInput("accelerate is not installed; install it with: pip install accelerate") from None
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            options = command.launch_command_parser().parse_args(list(words))
            variables = _variables(command, helpers, options)
    except SystemExit:
        raise BadInput(f"accelerate rejects its line: {_last_line(said.getvalue())}.") from None
    except (ValueError, ImportError, RuntimeError, OSError) as error:
        raise BadInput(f"accelerate rejects its settings: {_last_line(str(error))}.") from None
    return {
        name: value
        for name, value in variables.items()
        if os.environ.get(name) != value and name not in _NOT_OF_THE_JOB
    }


def _variables(command: Any, helpers: Any, options: Any) -> Mapping[str, str]:
    """As `accelerate.commands.launch.launch_command` chooses between its launchers."""
    options, defaults, precision_of_file = command._validate_launch_command(options)
    variables: Mapping[str, str]
    if options.use_deepspeed and not options.cpu:
        fields = [*defaults.deepspeed_config, *(["mixed_precision"] * precision_of_file)] if defaults else []
        options.deepspeed_fields_from_accelerate_config = ",".join(fields)
        _, variables = helpers.prepare_deepspeed_cmd_env(options)
    elif (options.use_fsdp or options.use_megatron_lm or options.multi_gpu) and not options.cpu:
        variables = helpers.prepare_multi_gpu_env(options)
    else:
        _, variables = helpers.prepare_simple_launcher_cmd_env(options)
    return variables


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1].rstrip(".") if lines else "it gives no reason"
