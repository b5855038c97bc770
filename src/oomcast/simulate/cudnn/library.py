"""cuDNN through its own C interface (the backend API of cudnn_graph.h), for GPUs that are described and not here.

Only nvidia-cudnn-cu12 or -cu13 is needed, which CUDA builds of torch bring along. The numbers are those of the header,
which NVIDIA keeps from version to version.

Its libraries want a libcuda.so.1; where no driver is installed, a stand-in that ships is loaded (`load_driver`).
"""

from __future__ import annotations

import ctypes
import importlib.util
import platform
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .query import Query

__all__ = ["MACHINES", "SOURCE", "Library", "LibraryError", "library_path", "load_driver", "stub_name"]

NAME = "libcudnn_graph.so.9"

# cudnnBackendDescriptorType_t
CONVOLUTION, ENGINE, ENGINE_CONFIG, HEURISTIC = 1, 2, 3, 4
OPERATION_GRAPH, TENSOR, DEVICE = 15, 17, 38
# cudnnBackendAttributeType_t
DATA_TYPE, INT64, FLOAT, MODE, HEUR_MODE, NOTE, DESCRIPTOR, CHAR = 1, 3, 4, 7, 8, 11, 15, 24
# cudnnBackendHeurMode_t: torch asks INSTANT first, FALLBACK if nothing of it runs
INSTANT, FALLBACK = 0, 2
# cudnnBackendNumericalNote_t
TENSOR_CORE, DOWN_CONVERT_INPUTS, NONDETERMINISTIC = 0, 1, 4
# cudnnDataType_t
TYPES = {"float32": 0, "float64": 1, "float16": 2, "bfloat16": 9}
# The operation's descriptor and its attributes: alpha, beta, convolution, w, x, y
OPERATIONS = {
    "fprop": (10, (700, 701, 702, 703, 704, 705)),
    "wgrad": (11, (712, 713, 714, 715, 716, 717)),
    "dgrad": (12, (706, 707, 708, 709, 710, 711)),
}


class LibraryError(Exception):
    """cuDNN refused; the text has its status."""


class Library:
    """The loaded library. Loads libcuda or its stand-in first, so this belongs into a process of its own."""

    def __init__(self) -> None:
        load_driver()
        self._c = ctypes.CDLL(str(library_path() or NAME), mode=ctypes.RTLD_GLOBAL)
        pointer, number = ctypes.c_void_p, ctypes.c_int64
        self._c.cudnnBackendCreateDescriptor.argtypes = [ctypes.c_int, ctypes.POINTER(pointer)]
        self._c.cudnnBackendSetAttribute.argtypes = [pointer, ctypes.c_int, ctypes.c_int, number, pointer]
        self._c.cudnnBackendGetAttribute.argtypes = [
            pointer, ctypes.c_int, ctypes.c_int, number, ctypes.POINTER(number), pointer,
        ]  # fmt: skip
        self._c.cudnnBackendFinalize.argtypes = [pointer]
        self._c.cudnnBackendDestroyDescriptor.argtypes = [pointer]
        self._c.cudnnGetVersion.restype = ctypes.c_size_t
        self.version = int(self._c.cudnnGetVersion())
        self._devices: dict[str, ctypes.c_void_p] = {}

    def plans(self, device: str, tf32: bool, query: Query, deterministic: bool = False) -> tuple[list[int], int]:
        """Workspaces in the order in which torch tries the plans, each smaller than those before, and the largest.

        `device` is JSON text. Raises LibraryError if there is no plan.
        """
        for mode in (INSTANT, FALLBACK):
            sizes = list(self._sizes(device, tf32, query, mode, 0, deterministic))
            if sizes:
                smaller = [size for i, size in enumerate(sizes) if i == 0 or size < min(sizes[:i])]
                return smaller, max(sizes)
        raise LibraryError("there is no plan")

    def first(self, device: str, tf32: bool, query: Query) -> int:
        """The workspace of the first plan alone, which is faster. Raises LibraryError."""
        for count, mode in ((1, INSTANT), (0, INSTANT), (0, FALLBACK)):
            for size in self._sizes(device, tf32, query, mode, count):
                return size
        raise LibraryError("there is no plan")

    def _sizes(
        self, device: str, tf32: bool, query: Query, mode: int, count: int, deterministic: bool = False
    ) -> Iterator[int]:
        """The workspaces of the first `count` plans (0: of all), those that torch would not run left out.

        A plan is not built for it: its configuration knows its workspace, and the engines that are compiled when a
        plan is built (grouped convolutions mostly) cannot be built without the GPU.
        """
        described = self._device(device)
        with self._descriptors() as made:
            heuristic = made.new(HEURISTIC)
            heuristic.set_int(200, HEUR_MODE, mode)
            heuristic.set_descriptor(201, self._graph(made, query))
            heuristic.set_descriptor(204, described)
            heuristic.finalize()
            total = heuristic.count(202, DESCRIPTOR)
            wanted = min(count or total, total)
            configs = [made.new(ENGINE_CONFIG) for _ in range(wanted)]
            for config in configs[: heuristic.get_descriptors(202, configs)]:
                is_wide = query.dtype in ("float32", "float64")
                if (is_wide or deterministic) and self._is_unwanted(made, config, is_wide, tf32, deterministic):
                    continue
                yield config.get_int64(303)

    def _is_unwanted(
        self, made: _Descriptors, config: _Descriptor, is_wide: bool, tf32: bool, deterministic: bool
    ) -> bool:
        """torch never rounds fp32 operands to half, uses TF32 only where allowed, and leaves engines out whose sums
        come in no fixed order, where a job asks for that (`filterEngineConfigs` in its cudnn/Conv_v8.cpp)."""
        engine = made.new(ENGINE)
        config.get_descriptors(300, [engine])
        notes = engine.get_ints(1303, NOTE, 16)
        if deterministic and NONDETERMINISTIC in notes:
            return True
        return is_wide and (DOWN_CONVERT_INPUTS in notes or (not tf32 and TENSOR_CORE in notes))

    def _graph(self, made: _Descriptors, query: Query) -> ctypes.c_void_p:
        kind, (alpha, beta, convolution, *operands) = OPERATIONS[query.kind]
        data_type = TYPES[query.dtype]
        how = made.new(CONVOLUTION)
        how.set_int(100, DATA_TYPE, TYPES["float64"] if query.dtype == "float64" else TYPES["float32"])
        how.set_int(101, MODE, 1)  # cross correlation
        how.set_int64(106, [len(query.stride)])
        for attribute, values in (
            (102, query.dilation),
            (103, query.stride),
            (104, query.padding),
            (105, query.padding),
        ):
            how.set_int64(attribute, values)
        how.finalize()
        operation = made.new(kind)
        operation.set_float(alpha, 1.0)
        operation.set_float(beta, 0.0)
        operation.set_descriptor(convolution, how.pointer)
        for number, (attribute, shape) in enumerate(zip(operands, (query.w, query.x, query.y), strict=True)):
            tensor = made.new(TENSOR)
            tensor.set_int(901, DATA_TYPE, data_type)
            tensor.set_int64(902, shape)
            tensor.set_int64(903, _strides(shape, query.channels_last))
            tensor.set_int64(906, [number + 1])
            tensor.set_int64(900, [16])
            tensor.finalize()
            operation.set_descriptor(attribute, tensor.pointer)
        operation.finalize()
        graph = made.new(OPERATION_GRAPH)
        graph.set_descriptor(801, operation.pointer)
        graph.finalize()
        return graph.pointer

    def _device(self, description: str) -> ctypes.c_void_p:
        if description not in self._devices:
            device = _Descriptor(self._c, DEVICE)
            device.set_text(2702, description)
            device.finalize()
            self._devices[description] = device.pointer
        return self._devices[description]

    @contextmanager
    def _descriptors(self) -> Iterator[_Descriptors]:
        made = _Descriptors(self._c)
        try:
            yield made
        finally:
            made.destroy()


class _Descriptor:
    """One object of the backend API."""

    def __init__(self, c: ctypes.CDLL, kind: int) -> None:
        self._c = c
        self.pointer = ctypes.c_void_p()
        self._check(c.cudnnBackendCreateDescriptor(kind, ctypes.byref(self.pointer)))

    def finalize(self) -> None:
        self._check(self._c.cudnnBackendFinalize(self.pointer))

    def set_int(self, attribute: int, kind: int, value: int) -> None:
        self._set(attribute, kind, 1, ctypes.byref(ctypes.c_int(value)))

    def set_float(self, attribute: int, value: float) -> None:
        self._set(attribute, FLOAT, 1, ctypes.byref(ctypes.c_float(value)))

    def set_int64(self, attribute: int, values: Sequence[int]) -> None:
        self._set(attribute, INT64, len(values), (ctypes.c_int64 * len(values))(*values))

    def set_text(self, attribute: int, text: str) -> None:
        encoded = text.encode() + b"\0"
        self._set(attribute, CHAR, len(encoded), ctypes.c_char_p(encoded))

    def set_descriptor(self, attribute: int, pointer: ctypes.c_void_p) -> None:
        self._set(attribute, DESCRIPTOR, 1, ctypes.byref(pointer))

    def count(self, attribute: int, kind: int) -> int:
        count = ctypes.c_int64()
        self._check(self._c.cudnnBackendGetAttribute(self.pointer, attribute, kind, 0, ctypes.byref(count), None))
        return count.value

    def get_int64(self, attribute: int) -> int:
        value = ctypes.c_int64()
        self._get(attribute, INT64, 1, ctypes.byref(value))
        return value.value

    def get_ints(self, attribute: int, kind: int, most: int) -> list[int]:
        values = (ctypes.c_int * most)()
        return list(values[: self._get(attribute, kind, most, values)])

    def get_descriptors(self, attribute: int, into: Sequence[_Descriptor]) -> int:
        pointers = (ctypes.c_void_p * len(into))(*(descriptor.pointer for descriptor in into))
        return self._get(attribute, DESCRIPTOR, len(into), pointers)

    def destroy(self) -> None:
        self._c.cudnnBackendDestroyDescriptor(self.pointer)

    def _set(self, attribute: int, kind: int, count: int, values: object) -> None:
        pointer = ctypes.cast(values, ctypes.c_void_p)  # type: ignore[arg-type]
        self._check(self._c.cudnnBackendSetAttribute(self.pointer, attribute, kind, count, pointer))

    def _get(self, attribute: int, kind: int, most: int, into: object) -> int:
        count = ctypes.c_int64()
        pointer = ctypes.cast(into, ctypes.c_void_p)  # type: ignore[arg-type]
        self._check(self._c.cudnnBackendGetAttribute(self.pointer, attribute, kind, most, ctypes.byref(count), pointer))
        return min(count.value, most)

    @staticmethod
    def _check(status: int) -> None:
        if status:
            raise LibraryError(f"status {status}")


class _Descriptors:
    """Those of one question, freed together."""

    def __init__(self, c: ctypes.CDLL) -> None:
        self._c = c
        self._made: list[_Descriptor] = []

    def new(self, kind: int) -> _Descriptor:
        descriptor = _Descriptor(self._c, kind)
        self._made.append(descriptor)
        return descriptor

    def destroy(self) -> None:
        for descriptor in reversed(self._made):
            descriptor.destroy()


def library_path() -> Path | None:
    """Where the nvidia-cudnn package has it; None leaves the search to the system's loader."""
    try:
        spec = importlib.util.find_spec("nvidia.cudnn")
    except ModuleNotFoundError:
        return None
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        path = Path(folder) / "lib" / NAME
        if path.exists():
            return path
    return None


def _strides(shape: Sequence[int], channels_last: bool) -> list[int]:
    order = (1, *range(len(shape) - 1, 1, -1), 0) if channels_last else range(len(shape) - 1, -1, -1)
    strides = [0] * len(shape)
    step = 1
    for dimension in order:
        strides[dimension] = step
        step *= shape[dimension]
    return strides


SOURCE = Path(__file__).parent / "stub" / "libcuda.c"
MACHINES = ("x86_64", "aarch64")


def stub_name(machine: str) -> str:
    return f"libcuda-{machine}.so"


def load_driver() -> str:
    """Load the real libcuda, or ours if there is none; says which ("driver" or "stub"). Raises OSError.

    What is loaded under the name libcuda.so.1 is what every later look-up of that name in this process finds, so this
    belongs into a process of its own.
    """
    try:
        ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)
    except OSError:
        ctypes.CDLL(str(SOURCE.parent / stub_name(platform.machine())), mode=ctypes.RTLD_GLOBAL)
        return "stub"
    return "driver"
