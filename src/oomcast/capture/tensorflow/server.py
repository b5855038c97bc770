"""`python -m oomcast.capture.tensorflow.server`: TensorFlow loaded once, a fork for every request."""

from __future__ import annotations

import os

from .._messages import Answer, Request
from .._serve import serve

__all__ = ["main"]


def main() -> None:
    serve(_answer, _load)


def _load() -> None:
    """Imported, but not used: a TensorFlow that has run something has threads, which a fork does not inherit."""
    from .worker import prepare_process

    prepare_process()


def _answer(request: Request) -> Answer:
    from .worker import answer_request

    return answer_request(request)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
