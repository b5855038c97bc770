"""`python -m lab.scripts.on_meta SCRIPT ARGUMENTS`: the script's own first two optimizer steps, with its GPU on torch's
meta device, and nothing recorded: what following it costs is measured against that. Of a script that makes no optimizer
and updates its parameters by hand, two backwards and what follows them.

The exit code is 0 after the second step, 3 where the script ends before it. Values that it reads are ones.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from typing import Any

import torch
from torch.optim import optimizer as _optimizer
from torch.overrides import TorchFunctionMode

from oomcast.capture.torch.vision_operators import prepare_torchvision
from oomcast.spec import read_launch

_STEPS = 2
_Tensor = torch.Tensor


def _device(value: Any) -> Any:
    is_cuda = isinstance(value, torch.device) and value.type == "cuda"
    return torch.device("meta") if is_cuda or (isinstance(value, str) and value.startswith("cuda")) else value


def _ones(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ones((), dtype=tensor.dtype).expand(tensor.shape) if tensor.is_meta else tensor


def _to(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    args, kwargs = tuple(map(_device, args)), {name: _device(value) for name, value in kwargs.items()}
    if any(str(value) == "cpu" for value in (*args, *kwargs.values())):
        tensor = _ones(tensor)
    return _Tensor.to(tensor, *args, **kwargs)


_INSTEAD: dict[Any, Any] = {
    _Tensor.to: _to,
    _Tensor.cuda: lambda tensor, *args, **kwargs: _Tensor.to(tensor, "meta"),
    _Tensor.cpu: _ones,
    _Tensor.item: lambda tensor: _ones(tensor).item(),
    _Tensor.tolist: lambda tensor: _ones(tensor).tolist(),
    _Tensor.__bool__: lambda tensor: bool(_ones(tensor).all()),
    _Tensor.__float__: lambda tensor: float(_ones(tensor)),
    _Tensor.__format__: lambda tensor, form: format(_ones(tensor), form),
    _Tensor.pin_memory: lambda tensor, *args: tensor,
}


class _OnMeta(TorchFunctionMode):
    backwards = 0
    optimizers = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _Tensor.backward:
            if self.backwards == _STEPS and not _OnMeta.optimizers:
                os._exit(0)
            self.backwards += 1
        instead = _INSTEAD.get(func)
        if instead is not None:
            return instead(*args, **kwargs)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": _device(kwargs["device"])}
        return func(*args, **kwargs)


def main() -> None:
    launch = read_launch(tuple(sys.argv[1:]))
    os.environ.update(launch.variables)
    steps = 0

    def after_step(*_: Any) -> None:
        nonlocal steps
        steps += 1
        if steps == _STEPS:
            os._exit(0)

    _optimizer.register_optimizer_step_post_hook(after_step)
    made = torch.optim.Optimizer.__init__

    def make(self: Any, *args: Any, **options: Any) -> None:
        _OnMeta.optimizers += 1
        made(self, *args, **options)

    torch.optim.Optimizer.__init__ = make  # type: ignore[method-assign]
    answers = {"is_available": True, "device_count": 1, "current_device": 0, "_lazy_init": None, "manual_seed": None}
    answers |= {"manual_seed_all": None, "synchronize": None, "empty_cache": None, "set_device": None}
    for name, answer in answers.items():  # a function for each: Dynamo's table of them wants no two to be the same
        setattr(torch.cuda, name, lambda *_, _answer=answer, **__: _answer)
    torch.accelerator.is_available = lambda: True
    torch.accelerator.current_device_index = lambda: 0
    # Optimizers ask the accelerator's stream whether a graph is captured.
    torch.optim.Optimizer._accelerator_graph_capture_health_check = lambda self: None  # type: ignore[method-assign]
    torch.accelerator.current_accelerator = lambda *_, **__: torch.device("cuda")
    torch.compile = lambda model=None, **_: model if model is not None else (lambda one: one)  # type: ignore[assignment]
    loader, init = torch.utils.data.DataLoader, torch.utils.data.DataLoader.__init__
    loader.__init__ = lambda self, *args, **options: init(self, *args, **{**options, "pin_memory": False})  # type: ignore[method-assign]
    prepare_torchvision()
    sys.argv = [launch.target, *launch.arguments]
    sys.path.insert(0, os.getcwd() if launch.is_module else os.path.dirname(os.path.abspath(launch.target)))
    try:
        with _OnMeta():
            (runpy.run_module if launch.is_module else runpy.run_path)(launch.target, run_name="__main__")
    except BaseException:
        traceback.print_exc()
    os._exit(3)


if __name__ == "__main__":
    main()
