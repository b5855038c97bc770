"""`python -m oomcast.capture.torch.server`: torch loaded once, a fork for every request that comes on stdin."""

from __future__ import annotations

import sys

from .._frameworks import load_packages, missing_framework
from .._messages import Answer, Request
from .._serve import serve

__all__ = ["main"]


def main() -> None:
    """Answer requests until stdin closes; whether torch is there is said when one comes."""
    load_packages(["torch"])
    if "torch" not in sys.modules:
        serve(_without_torch, lambda: None)
        return
    from ._warm_up import load_library, warm_up
    from .worker import answer_request

    serve(answer_request, warm_up, load_library)


def _without_torch(request: Request) -> Answer:
    told = missing_framework("torch", "torch")
    return Answer(error=type(told).__name__, message=str(told), exit_code=told.exit_code)


if __name__ == "__main__":
    main()
