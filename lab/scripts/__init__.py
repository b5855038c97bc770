"""Public training scripts, unmodified, on tiny data made for them: how many `oomcast run` can follow, and how far."""
