"""Estimators that learn from real runs: each method is complete in itself, and the core never imports one.

They are found through the entry points `oomcast.estimators` and `oomcast.commands`, as those of other packages are.
"""
