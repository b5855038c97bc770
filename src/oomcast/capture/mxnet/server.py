"""`python -m oomcast.capture.mxnet.server`: MXNet loaded once, a fork for every request."""

from __future__ import annotations

from .._serve import serve_worker

__all__ = ["main"]


def main() -> None:
    serve_worker(f"{__package__}.worker")


if __name__ == "__main__":
    main()
