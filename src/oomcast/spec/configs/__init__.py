"""Configuration files of training frameworks, read as they are: what each asks for, in the options of a job."""

from __future__ import annotations

from .combining import with_configurations
from .found import Recipe
from .reading import library_of_configuration, read_configuration

__all__ = ["Recipe", "library_of_configuration", "read_configuration", "with_configurations"]
