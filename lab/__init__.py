"""The laboratory: what judges oomcast and what makes its data files. It is not part of the wheel.

`python -m lab` lists its commands.
"""
