"""`python -m oomcast.capture.tensorflow.server`: TensorFlow loaded once, a fork for every request."""

from __future__ import annotations

import os

from .._serve import serve_worker

__all__ = ["main"]


def main() -> None:
    serve_worker(f"{__package__}.worker")


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
