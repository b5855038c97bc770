from __future__ import annotations
from typing import Any
def small_configuration(transformers: Any, name: str) -> tuple[dict, dict]:
    raise NotImplementedError
