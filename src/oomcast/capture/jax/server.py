"""`python -m oomcast.capture.jax.server`: JAX loaded once, a fork for every request."""

from __future__ import annotations

from .._messages import Answer, Request
from .._serve import serve

__all__ = ["main"]


def main() -> None:
    serve(_answer, _load)


def _load() -> None:
    """Imported, but not used: a backend that was started has threads, which a fork does not inherit."""
    from .worker import prepare_process

    prepare_process()


def _answer(request: Request) -> Answer:
    from .worker import answer_request

    return answer_request(request)


if __name__ == "__main__":
    main()
