"""Whether a change of the code changes a predicted byte: a fixed list of jobs, asked before and after.

`figures_of_0.1.0.json.gz` is what version 0.1.0 answered; a refactoring must answer the same.
"""
