"""Compiled regions: `torch.compile` as it would run on the target, followed without a GPU.

`regions` is what a job's `torch.compile` does; `tracing` lets Dynamo see the job; `backend` takes Dynamo's graphs
through AOTAutograd and Inductor; `target` answers for the GPU; `lowering` asks Inductor for its code, and `generated`
runs that code on the virtual GPU.
"""

from .regions import CompiledRegions

__all__ = ["CompiledRegions"]
