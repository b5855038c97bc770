"""PyTorch → Trace: a virtual GPU on which torch code written for CUDA runs as it is, on fake tensors.

How it works, from the outside in:

- `functions.py` stands between Python code and torch: what the code calls `cuda:0` is a fake tensor on `cpu:0`
  (with an index; the host's own tensors are on `cpu`, without one), so C++ autograd runs on any build of torch.
- `personality/` makes those tensors take the paths that CUDA tensors take on the target GPU.
- `recorder.py` stands beneath autograd, runs each operator on fakes, and follows every storage from birth to death.
- It writes to a `TraceBuilder`; `scope.py` knows module and source line, `machine.py` phase and step.
- `values.py` keeps the values of small tensors, so that code which reads them works.
- `cuda.py` answers for `torch.cuda`.
- `hooks.py` is what the capture process knows of torch; `run.py` captures a job in the process at hand.
"""
