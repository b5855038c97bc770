"""Where TensorFlow is not installed, nothing here runs."""

from __future__ import annotations

import os

import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["KERAS_BACKEND"] = "tensorflow"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

pytest.importorskip("tensorflow")
pytest.importorskip("keras")
