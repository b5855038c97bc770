"""What oomcast promises, measured: `python -m lab bench NAME …`. One module a benchmark, one bar a promise."""
