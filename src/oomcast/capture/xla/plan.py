"""What XLA's compiler for GPUs tells of a program that it has compiled, and the schedule that it makes.

Its sums are its own answer: arguments, results and one block for all temporaries, for one device. The texts tell what
lies in that block, when, and where in the user's program it comes from. Only what the compiler finds out by running
kernels on a card is missing: which algorithms win, and the scratch space of convolutions, which is taken from cuDNN's
rules as for other frameworks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ...trace import Category, KernelCall, Operand, Phase
from .compiled_text import Buffer, HloInstruction, HloProgram, Life, read_buffers, read_lives
from .schedule import Held, Place, Ran, Schedule, Slot, category_of

__all__ = ["BY_LIBRARY", "Compiled", "NotAsked", "compile_in", "schedule_of", "what_was_told"]

Executable = TypeVar("Executable")

_CAST = {"pred": "bool", "bf16": "bfloat16", "f16": "float16", "f32": "float32", "f64": "float64"}
_BITS = re.compile(r"(pred|bf16|[a-z]+\d+(?:e\d+m\d+\w*)?)\[([\d,]*)\]")


@dataclass(frozen=True)
class NotAsked:
    """XLA's compiler gave no plan."""

    reason: str


@dataclass(frozen=True)
class Compiled:
    """Bytes of one device, and three texts."""

    arguments: int
    temporaries: int
    results: int
    aliased: int
    """What the results take over from arguments."""
    program: str
    buffers: str = ""
    lives: str = ""
    version: str = ""
    """Of what came with the compiler."""
    by_library: bool = False
    """Whether it was told to leave matrix products to cuBLAS."""


Options = dict[str, str | bool | int]

_OPTIONS: Options = {
    "xla_dump_hlo_as_text": True,
    # Kernels are never run; what is allocated is decided before they are optimized.
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
}
_PRODUCTS_BY_LIBRARY: Options = {"xla_gpu_enable_triton_gemm": False}
BY_LIBRARY = (
    "XLA chooses the tiles of its own kernels for matrix products by timing them on the card; without one it found "
    "none that fit, so that all products were planned as calls of cuBLAS, which holds a little more or less"
)


def compile_in(
    folder: str, compile_with: Callable[[Options], Executable], refusals: tuple[type[Exception], ...]
) -> tuple[Executable, Path, bool]:
    """What `compile_with` made of the compiler's options, the folder of its reports, and whether products are cuBLAS'.

    Kernels that XLA writes itself get tiles of a default size where no card can be asked. Where these fit no shape, it
    refuses the whole program: then it is asked again for the library's products, which it would try on the card, too.
    """
    first, second = Path(folder, "first"), Path(folder, "second")
    try:
        return compile_with({**_OPTIONS, "xla_dump_to": str(first)}), first, False
    except refusals as refusal:
        try:
            return compile_with({**_OPTIONS, **_PRODUCTS_BY_LIBRARY, "xla_dump_to": str(second)}), second, True
        except refusals:
            raise refusal from None


def what_was_told(sums: Any, program: str, folder: Path) -> Compiled:
    """`sums` are XLA's `CompiledMemoryStats`; the folder has its reports of the program, and of small ones beside."""
    buffers = lives = ""
    # Small programs are of constants and random keys.
    found = sorted(folder.glob("*-buffer-assignment.txt"), key=lambda path: path.stat().st_size)
    if found:
        ranges = folder / f"{found[-1].name.removesuffix('buffer-assignment.txt')}live-range.txt"
        buffers = found[-1].read_text(encoding="utf-8", errors="replace")
        if ranges.exists():
            lives = ranges.read_text(encoding="utf-8", errors="replace")
    return Compiled(
        arguments=sums.argument_size_in_bytes,
        temporaries=sums.temp_size_in_bytes,
        results=sums.output_size_in_bytes,
        aliased=sums.alias_size_in_bytes,
        program=program,
        buffers=buffers,
        lives=lives,
    )


def schedule_of(
    compiled: Compiled,
    program: HloProgram,
    arguments: Sequence[Slot],
    own_results: Sequence[Slot],
    place_of: Callable[[str], tuple[Phase, str]],
) -> Schedule:
    """`program` is what `read_program` reads in `compiled.program`; `place_of` reads the name of an instruction."""
    # With the table of the results' addresses, which is no result itself.
    own = sum(slot.nbytes for slot in own_results)
    arena = compiled.temporaries + max(compiled.results - compiled.aliased - own, 0)
    buffers = read_buffers(compiled.buffers)
    order, lives = read_lives(compiled.lives)
    if not order or sum(nbytes for nbytes, _ in buffers.temporaries) != compiled.temporaries:
        # The texts are not as they were: the sum is still XLA's own.
        whole = Held(compiled.temporaries, 0, 0, Category.TEMPORARY, (), "")
        step_as_one = Ran("XLA: temporaries of the step", Place(Phase.FORWARD, "", ""))
        return Schedule(arguments, own_results, [step_as_one], [whole], arena, buffers.constants)
    instructions = [_ran(program.instructions.get(name), name, program, place_of) for name in order]
    opcodes = [program.instructions[name].opcode if name in program.instructions else "" for name in order]
    shapes = {slot.shape for slot in arguments if slot.category is Category.PARAMETER}
    temporaries = []
    for _, values in buffers.temporaries:
        temporaries += _held(values, lives, instructions, opcodes, shapes)
    return Schedule(arguments, own_results, instructions, temporaries, arena, buffers.constants)


_HANDING_ON = ("tuple", "while", "parameter", "conditional", "call")
"""What reads a value only to give it to a loop's body, or to what comes after it."""


def _held(
    values: Sequence[Buffer],
    lives: Mapping[tuple[str, str], Life],
    ran: Sequence[Ran],
    opcodes: Sequence[str],
    shapes: set[tuple[int, ...]],
) -> list[Held]:
    """Values of one block. Where one takes the memory of another over, the other is gone from then on.

    `shapes` are those of parameters, which gradients share.
    """
    live = [
        (lives[value.instruction, value.part], value) for value in values if (value.instruction, value.part) in lives
    ]
    first = np.array([life.first for life, _ in live], dtype=np.int64)
    begin = np.array([value.offset for _, value in live], dtype=np.int64)
    end = begin + np.array([value.nbytes for _, value in live], dtype=np.int64)
    last_loop = max((number for number, opcode in enumerate(opcodes) if opcode == "while"), default=0)
    held = []
    for number, (life, value) in enumerate(live):
        last = life.last
        if last < len(ran) and opcodes[last] in _HANDING_ON:  # into a loop, whose rounds have no ranges of their own
            last = max(last, last_loop)
        taken_over = first[(first > life.first) & (begin < end[number]) & (end > begin[number])]
        last = min(last, len(ran) - 1, int(taken_over.min(initial=len(ran))) - 1)
        made, gone = ran[life.first].place.phase, ran[last].place.phase
        shape, dtype = _form(value.form)
        category = category_of(made, gone, optimizer_reads=gone is Phase.OPTIMIZER and shape in shapes)
        held.append(Held(value.nbytes, life.first, last, category, shape, dtype))
    return held


def _form(text: str) -> tuple[tuple[int, ...], str]:
    found = _BITS.match(text)
    if found is None:
        return (), ""
    dtype = _CAST.get(found[1]) or re.sub(r"^([su])(\d+)$", lambda m: f"{'u' * (m[1] == 'u')}int{m[2]}", found[1])
    return tuple(int(size) for size in found[2].split(",") if size), dtype


def _ran(
    instruction: HloInstruction | None, name: str, program: HloProgram, place_of: Callable[[str], tuple[Phase, str]]
) -> Ran:
    if instruction is None:
        return Ran(name, Place(Phase.OPTIMIZER, "", ""))
    phase, module = place_of(instruction.op_name)
    return Ran(name, Place(phase, module, instruction.source), _convolution(instruction, program))


_CUDNN = re.compile(r'custom_call_target="__cudnn\$conv(\w+)"')
_LABELS = re.compile(r"dim_labels=(\w+)_(\w+)->(\w+)")
_WINDOW = re.compile(r"window=\{([^}]*)\}")


def _convolution(instruction: HloInstruction, program: HloProgram) -> KernelCall | None:
    """As cuDNN has it: image, filter, output, whichever of them is computed."""
    target, labels = _CUDNN.search(instruction.text), _LABELS.search(instruction.text)
    if target is None or labels is None or len(instruction.operands) < 2:
        return None
    forms = [program.instructions[name].form for name in instruction.operands[:2] if name in program.instructions]
    if len(forms) != 2:
        return None
    left, right, made = (_laid_out(form) for form in (*forms, instruction.form.lstrip("(")))
    kind, (image, kernel, output) = {
        "BackwardInput": ("conv_dgrad", (made, right, left)),
        "BackwardFilter": ("conv_wgrad", (left, made, right)),
    }.get(target[1], ("conv_fprop", (left, right, made)))
    operands = []
    for (shape, strides, dtype), order, first in (
        (image, labels[1], "bf"),
        (kernel, labels[2], "oi"),
        (output, labels[3], "bf"),
    ):
        axes = [order.index(letter) for letter in first]
        axes += [order.index(str(number)) for number in range(len(order) - 2)]
        operands.append(Operand(tuple(shape[axis] for axis in axes), tuple(strides[axis] for axis in axes), dtype))
    window = _WINDOW.search(instruction.text)
    spatial = len(labels[1]) - 2
    told = dict(part.split("=", 1) for part in window[1].split()) if window else {}
    stride = _numbers(told.get("stride"), spatial, 1)
    dilation = _numbers(told.get("rhs_dilate"), spatial, 1)
    padding = tuple(int(pair.split("_")[0]) for pair in told.get("pad", "x".join(["0_0"] * spatial)).split("x"))
    groups = re.search(r"feature_group_count=(\d+)", instruction.text)
    attributes = (
        ("stride", stride),
        ("padding", padding),
        ("dilation", dilation),
        ("groups", int(groups[1]) if groups else 1),
    )
    return KernelCall(kind, tuple(operands), attributes)


def _laid_out(text: str) -> tuple[tuple[int, ...], tuple[int, ...], str]:
    """Shape, strides and dtype of `f32[8,3,32,32]{1,3,2,0}`, whose layout names the innermost dimension first."""
    shape, dtype = _form(text)
    layout = re.match(r"[^\[]*\[[^\]]*\]\{([\d,]+)", text)
    innermost = [int(axis) for axis in layout[1].split(",")] if layout else list(range(len(shape) - 1, -1, -1))
    strides, step = [1] * len(shape), 1
    for axis in innermost:
        strides[axis] = step
        step *= shape[axis]
    return shape, tuple(strides), dtype


def _numbers(text: str | None, spatial: int, default: int) -> tuple[int, ...]:
    return tuple(map(int, text.split("x"))) if text else (default,) * spatial
