"""In a process of its own, with a Python that has JAX: a program of another framework, compiled by XLA for a GPU.

It reads the GPU's name, a line, and the program (a serialized `HloModuleProto`) from its stdin, and writes what the
compiler told to its stdout, as JSON.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import re
import sys
import tempfile
from typing import Any

from ...devices import find_gpu
from ..explain import first_sentence
from ..stderr import silenced
from . import only_describe
from .plan import Compiled, NotAsked, compile_in, what_was_told

__all__ = ["main"]

_COPY = re.compile(r"mhlo\.copy (%\w+) : (tensor<[^>]*>)")
"""The one operator in TensorFlow's programs that is not StableHLO's."""


def main() -> int:
    only_describe()
    name, _, program = sys.stdin.buffer.read().partition(b"\n")
    with silenced():  # it says at length that there is no driver
        answer = _asked(name.decode(), program)
    json.dump(dataclasses.asdict(answer), sys.stdout)
    return 0


def _asked(name: str, program: bytes) -> Compiled | NotAsked:
    try:
        import jax

        from .target import mesh_devices
    except ImportError:
        return NotAsked("XLA's compiler for GPUs is not installed (pip install 'oomcast[jax-gpu]')")
    devices = mesh_devices(find_gpu(name), 1)
    if isinstance(devices, NotAsked):
        return devices
    with tempfile.TemporaryDirectory(prefix="oomcast-xla-") as folder:
        try:
            executable, reports, by_library = compile_in(
                folder, functools.partial(_compiled, program, devices), (jax.errors.JaxRuntimeError,)
            )
        except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
            return NotAsked(f"its compiler refused the step ({first_sentence(error)})")
        except (ImportError, AttributeError, TypeError) as error:  # parts of JAX that it does not promise to keep
            return NotAsked(f"jax {jax.__version__} does not take programs of other frameworks ({error})")
        text = executable.hlo_modules()[0].to_string()
        told = what_was_told(executable.get_compiled_memory_stats(), text, reports)
    return dataclasses.replace(told, version=f"jax {jax.__version__}", by_library=by_library)


def _compiled(program: bytes, devices: Any, given: dict[str, Any]) -> Any:
    import numpy as np
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax._src.lib.mlir import ir

    text = xla_client._xla.mlir.xla_computation_to_mlir_module(xla_client.XlaComputation(program))
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    build.num_replicas = build.num_partitions = options.num_replicas = 1
    build.device_assignment = xla_client.DeviceAssignment.create(np.array([[0]], dtype="int32"))
    options.env_option_overrides = list(given.items())
    with mlir.make_ir_context():
        # A copy is a new value with the same contents, and so is a reshape to the same shape.
        module = ir.Module.parse(_COPY.sub(r"stablehlo.reshape \1 : (\2) -> \2", text))
        return devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)
