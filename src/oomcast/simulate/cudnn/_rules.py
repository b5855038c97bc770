"""What a convolution takes from the allocator beside its tensors, as rules for `WorkspaceTable.with_rules`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from ...devices import Gpu
from ...trace import KernelCall, Phase
from .._workspace import NOTHING, DeviceFacts, Rule, Transient
from ._ask import Answer, CudnnUnavailable, shared_cudnn
from ._benchmark import TRIAL
from ._query import KINDS, Query, native_columns, query_of, takes_cudnn
from ._table import shipped_table

__all__ = ["ConvolutionRules", "Source", "convolution_rules", "took_none_before_9_8"]

Source = Literal["auto", "cudnn", "table", "none"]

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}

FIRST_ANSWERING = (9, 8)


class _Answering(Protocol):
    @property
    def name(self) -> str: ...

    def ask(self, gpu: Gpu, query: Query, *, tf32: bool = True) -> Answer | None: ...


def convolution_rules(
    gpu: Gpu,
    stack_cudnn_version: tuple[int, int],
    *,
    allow_tf32: bool = True,
    benchmark: bool = False,
    source: Source = "auto",
) -> ConvolutionRules:
    """The rules for `conv_fprop`, `conv_dgrad` and `conv_wgrad` on that GPU.

    `source` says who is asked: the installed `cudnn`, the `table` that ships with oomcast, `none` (convolutions are
    then counted as kernels without a rule), or `auto`: cuDNN if it is installed, else the table. With "cudnn",
    CudnnUnavailable is raised where it is not. `benchmark` is `torch.backends.cudnn.benchmark`; its trial runs are in
    the trace once `with_benchmark` has put them there.
    """
    answering: list[_Answering] = []
    note = ""
    if source in ("auto", "cudnn"):
        try:
            answering.append(shared_cudnn())
        except CudnnUnavailable as problem:
            if source == "cudnn":
                raise
            note = str(problem)
    if source in ("auto", "table"):
        answering.append(shipped_table())
    return ConvolutionRules(gpu, stack_cudnn_version, allow_tf32, benchmark, tuple(answering), note)


def took_none_before_9_8(query: Query) -> bool:
    """Whether a convolution takes no workspace on stacks older than cuDNN 9.8, though 9.8 and later would give it one.

    cuDNN before 9.8 cannot be asked without a GPU. Measured runs of 2024 show one difference: 1×1 convolutions that
    have at most 128 channels on one side run as plain matrix products in place. With that, named models of
    `real_models.csv` (A100, 2024) come within 3.4 %; without it, MobileNetV2 and ResNet-50 are over-estimated.
    """
    return all(size == 1 for size in query.w[2:]) and min(query.w[0], query.w[1]) <= 128


class ConvolutionRules(Mapping[str, Rule]):
    """Operator → rule, and who answered so far."""

    def __init__(
        self,
        gpu: Gpu,
        stack_cudnn: tuple[int, int],
        tf32: bool,
        benchmark: bool,
        answering: tuple[_Answering, ...],
        note: str = "",
    ) -> None:
        self.gpu = gpu
        self.benchmark = benchmark
        self.note = note
        """Why cuDNN itself was not asked; empty if it was, or was not wanted."""
        self._stack_cudnn = stack_cudnn
        self._tf32 = tf32
        self._answering = answering
        self._answered: Counter[str] = Counter()
        self._rules: dict[str, Rule] = dict.fromkeys(KINDS, self._rule) if answering else {}

    def __getitem__(self, operator: str) -> Rule:
        return self._rules[operator]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rules)

    def __len__(self) -> int:
        return len(self._rules)

    def source_in_use(self) -> str:
        """Who answered, for an estimate's provenance: "cudnn 9.20", "table (cudnn 9.20)", both joined, or "none"."""
        names = sorted(self._answered) or [source.name for source in self._answering[:1]]
        return ", ".join(names) or "none"

    def answered(self) -> dict[str, int]:
        """Source → how many calls it answered."""
        return dict(self._answered)

    def _rule(self, call: KernelCall, phase: Phase, device: DeviceFacts) -> Transient | None:
        query = query_of(call)
        if query is None:
            return None
        if 0 in (*query.x, *query.w, *query.y):
            return NOTHING
        attributes = dict(call.attributes)
        if not takes_cudnn(
            query, self.gpu.compute_capability, self._stack_cudnn, transposed=bool(attributes.get("transposed", False))
        ):
            columns = native_columns(query, ITEMSIZE.get(query.dtype, 4))
            return Transient((columns,)) if columns else NOTHING
        if self._stack_cudnn < FIRST_ANSWERING and took_none_before_9_8(query):
            return NOTHING
        for source in self._answering:
            answer = source.ask(self.gpu, query, tf32=self._tf32)
            if answer is not None:
                self._answered[source.name] += 1
                return _trial(answer) if attributes.get(TRIAL) else Transient(answer.plans)
        return None


def _trial(answer: Answer) -> Transient:
    """The benchmark's one block for all plans: the largest, and half of it again and again while it does not fit."""
    sizes = []
    size = answer.largest
    while size >= 1:
        sizes.append(size)
        size //= 2
    return Transient((*sizes, 0))
