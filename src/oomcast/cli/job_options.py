"""The options that say what a job is and where it runs, the same for every command that takes a job.

They are the fields of the descriptions in `oomcast.spec`: a flag for each, with the field's help.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Sequence
from typing import Any

from ..errors import BadInput, UnknownName
from ..spec import DESCRIPTIONS, Option, options_of

__all__ = ["add_job_options", "add_options", "given_options"]


def add_job_options(
    parser: argparse.ArgumentParser,
    *,
    required: bool = True,
    without: Collection[str] = (),
    descriptions: Sequence[type] = DESCRIPTIONS,
) -> None:
    """JOB and the options of every job. `required`: whether the command does nothing without a job."""
    parser.add_argument(
        "job",
        metavar="JOB",
        nargs=None if required else "?",
        help="a job file, or zoo:NAME, timm:NAME, torchvision:NAME, hf:NAME, diffusers:NAME; see oomcast models",
    )
    add_options(parser, descriptions, required=("device",) if required else (), without=without)


def add_options(
    parser: argparse.ArgumentParser,
    descriptions: Sequence[type],
    *,
    required: Collection[str] = (),
    without: Collection[str] = (),
) -> None:
    """A flag for every option of the descriptions; what is not given stays out of the namespace."""
    for option in options_of(*descriptions):
        if option.name in without:
            continue
        for flag in option.flags:
            if flag.value is not None:
                parser.add_argument(
                    flag.name,
                    dest=flag.key,
                    action="store_true",
                    default=argparse.SUPPRESS,
                    help=flag.help.replace("%", "%%"),
                )
            else:
                parser.add_argument(
                    flag.name,
                    dest=flag.key,
                    default=argparse.SUPPRESS,
                    required=option.name in required,
                    metavar=flag.metavar or None,
                    help=flag.help.replace("%", "%%"),
                )


def given_options(namespace: argparse.Namespace, descriptions: Sequence[type] = DESCRIPTIONS) -> dict[str, Any]:
    """What the user gave, read, as keywords of `oomcast.estimate` and its like."""
    return {
        option.name: value for option in options_of(*descriptions) if (value := _given(namespace, option)) is not None
    }


def _given(namespace: argparse.Namespace, option: Option) -> Any:
    flags = [flag for flag in option.flags if hasattr(namespace, flag.key)]
    if not flags:
        return None
    if len(flags) > 1:
        raise BadInput(f"{' and '.join(flag.name for flag in flags)} exclude each other; give one.")
    flag = flags[0]
    if flag.value is not None:
        return flag.value
    try:
        return option.kind.parse(getattr(namespace, flag.key))
    except UnknownName:
        raise
    except BadInput as error:
        raise BadInput(f"{flag.name}: {error}") from None
