"""What oomcast promises, measured: `python -m bench GROUNDTRUTH [name …]`. One module a bench, one row a case."""
