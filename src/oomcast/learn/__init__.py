"""Learners that know nothing of memory: numbers in, numbers out."""

from ._conformal import GroupCoverage, group_quantile, group_range, leave_group_out

__all__ = ["GroupCoverage", "group_quantile", "group_range", "leave_group_out"]
