"""Configuration files of training frameworks, read as they are: what each asks for, in the options of a job."""

from __future__ import annotations

from .combining import with_configurations
from .found import Recipe
from .reading import is_model_configuration, read_configuration

__all__ = ["Recipe", "is_model_configuration", "read_configuration", "with_configurations"]
