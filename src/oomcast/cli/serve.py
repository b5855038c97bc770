"""`oomcast serve`: a page to play with and a service to ask, on this machine."""

from __future__ import annotations

import argparse
import os
from typing import Any

__all__ = ["add_to"]

_TOKEN = "OOMCAST_TOKEN"


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser(
        "serve",
        help="a page to play with and a service to ask",
        description="Serve a page with sliders and the same answers as JSON: names and configuration files only, never "
        "code. Other machines are let in only with a token.",
    )
    parser.add_argument("--port", type=int, default=8642, metavar="N", help="(default: 8642; 0: any that is free)")
    parser.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="where it listens (default: 127.0.0.1)")
    parser.add_argument(
        "--token",
        metavar="TEXT",
        help=f"what askers must send (default: the variable {_TOKEN}); needed beyond loopback",
    )
    parser.add_argument(
        "--store",
        metavar="URL",
        help="where questions and answers are kept: a SQLite file, or postgresql://user@host/name",
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="captures at a time (default: 2)")
    parser.add_argument(
        "--time-limit", type=float, default=300.0, metavar="S", help="seconds a question (default: 300)"
    )
    parser.add_argument("--memory-limit", default="8GiB", metavar="SIZE", help="host memory a question (default: 8GiB)")
    parser.add_argument(
        "--engine",
        default="local",
        metavar="ENGINE",
        help="where captures are made: local, ray, or the address of a Ray cluster (default: local)",
    )
    parser.add_argument("--no-browser", action="store_true", help="open no browser")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from ..lazy import missing_package
    from ..units import parse_bytes

    try:
        from ..web.server import Settings, serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("oomcast"):
            raise
        raise missing_package(error, "serve") from None
    settings = Settings(
        host=options.host,
        port=options.port,
        token=options.token or os.environ.get(_TOKEN) or None,
        store=options.store,
        workers=options.workers,
        time_limit=options.time_limit,
        memory_limit=parse_bytes(options.memory_limit),
        engine=options.engine,
        browser=not options.no_browser,
    )
    return serve(settings)
