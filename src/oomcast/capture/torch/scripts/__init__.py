"""Whole training scripts on the virtual GPU: run as they are, watched, shortened where they repeat themselves."""

from __future__ import annotations

from .running import capture_script

__all__ = ["capture_script"]
