"""The models the papers use, written plainly in PyTorch, each as a job ready to be estimated.

`names()` lists them, `find("resnet50")` describes one, `find("resnet50").load()` is its job. Importing this package
does not import torch; loading a job does.
"""

from ._registry import Job, ZooModel, find, names

__all__ = ["Job", "ZooModel", "find", "names"]
