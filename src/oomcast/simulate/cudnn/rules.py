"""What a convolution takes from the allocator beside its tensors, as rules for `WorkspaceTable.with_rules`.

Most answers are cuDNN's own. Three rules are not: `runs_in_place`, `converted_gradient` and `grouped_on_early_ada` are
read off measured runs that contradict what cuDNN says without a GPU. Their limits are the constants below; where they
were read, where they were shown to hold and where they were not is said with each. (A fourth of this kind, for
convolutions that older versions of cuDNN answer otherwise, is `table._is_as_in_9_10`.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from ...devices import Gpu
from ...trace import KernelCall, Phase
from ..workspace import NOTHING, DeviceFacts, Rule, Transient
from .ask import Answer, Cudnn, CudnnUnavailable, shared_cudnn
from .benchmark import TRIAL
from .query import KINDS, Query, native_columns, query_of, takes_cudnn
from .table import generation_table, shipped_table

__all__ = ["ConvolutionRules", "Source", "convolution_rules", "runs_in_place"]

Source = Literal["auto", "cudnn", "table", "none"]

_POINTWISE_CHANNELS = 256
"""For `runs_in_place`: the most channels on the smaller side."""
_FIRST_LAYER_INPUTS = 3
"""For `converted_gradient`: the most channels in, …"""
_FIRST_LAYER_OUTPUTS = 112
"""… more than so many out, where a tile of 128 is nearly full, …"""
_FIRST_LAYER_SIDE = 100
"""… and images of at least so many pixels on their shorter side."""

_ADA = (8, 9)
"""For `grouped_on_early_ada`."""

ITEMSIZE = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


class _Answering(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def is_general(self) -> bool:
        """Whether it answers for every convolution, not for some that are known to differ."""

    def ask(self, gpu: Gpu, query: Query, *, tf32: bool = True) -> Answer | None: ...


def convolution_rules(
    gpu: Gpu,
    stack_cudnn_version: tuple[int, int],
    *,
    allow_tf32: bool = True,
    benchmark: bool = False,
    deterministic: bool = False,
    source: Source = "auto",
) -> ConvolutionRules:
    """The rules for `conv_fprop`, `conv_dgrad` and `conv_wgrad` on that GPU.

    `stack_cudnn_version` decides which convolutions torch gives to cuDNN; what these take is asked of the version that
    is installed, or was distilled, since cuDNN before 9.8 cannot answer without a GPU. Where the distilled answers of
    the stack's own generation are at hand, they come first.

    `source` says who is asked: the installed `cudnn`, the `table` that ships with oomcast, `none` (convolutions are
    then counted as kernels without a rule), or `auto`: cuDNN if it is installed, else the table. With "cudnn",
    CudnnUnavailable is raised where it is not. `deterministic`: the job wants no kernels whose results may differ from
    run to run; only cuDNN itself knows which these are. `benchmark` is `torch.backends.cudnn.benchmark`; its trial runs
    are in the trace once `with_benchmark` has put them there.
    """
    answering: list[_Answering] = []
    note = ""
    of_generation = generation_table(stack_cudnn_version) if source in ("auto", "table") else None
    if of_generation is not None:
        answering.append(of_generation)
    if source in ("auto", "cudnn"):
        try:
            answering.append(shared_cudnn())
        except CudnnUnavailable as problem:
            if source == "cudnn":
                raise
            note = str(problem)
    if source in ("auto", "table"):
        answering.append(shipped_table())
    return ConvolutionRules(
        gpu, stack_cudnn_version, allow_tf32, benchmark, tuple(answering), note, deterministic=deterministic
    )


def runs_in_place(query: Query) -> bool:
    """Whether a convolution takes no workspace in measured runs, though cuDNN's heuristic would give it one.

    These are 1×1 convolutions with at most `_POINTWISE_CHANNELS` channels on one side: perhaps a matrix product on the
    tensors as they lie, where the heuristic's list begins with engines that convert them.

    - Read on: A100 (sm_80), fp32 with TF32, cuDNN 9.1 (stacks of 2024) and 9.10 (2025 and 2026).
    - Shown to hold on: the same card and dtype, networks that were looked at afterwards.
    - Not shown on: other architectures, dtypes and newer cuDNN, where it is applied all the same. On sm_86 and sm_89,
      MobileNetV2 and MnasNet contradict it at some batch sizes (xMem's runs).

    With one constant for each set, median and p90 of the error (cuDNN 9.20 asked) for limits of 0, 128, 256 channels
    and none at all:

        real models of 2024, 9 runs               1.9 13.2    0.5 1.1    0.4 0.9    0.9 2.7 %
        timm, A100, 72 runs of CNNs               3.2  9.0    1.7 5.6    1.6 3.3    1.6 4.1 %
        48 others of timm, looked at afterwards   3.6 15.2    1.5 7.9    1.3 4.9    1.7 5.4 %

    The limit was chosen on the first two, among some fifteen such conditions.
    """
    return all(size == 1 for size in query.w[2:]) and min(query.w[0], query.w[1]) <= _POINTWISE_CHANNELS


def converted_gradient(query: Query, stack_cudnn: tuple[int, int], itemsize: int) -> int:
    """The workspace in which cuDNN before 9.8 turns an output's gradient to channels-last; 0 where it does not.

    It is that of a network's first layer, for its weights: few channels in, many out, on images that are not small
    (see the constants); channels are filled up to a multiple of 8. cuDNN 9.10 and 9.20 take another engine there,
    without any workspace; 9.1 cannot be asked.

    - Read on: A100 (sm_80), fp32, cuDNN 9.1, GPUMemNet's networks of one convolution: of eleven such layers eight hold
      this much more to 6 MiB, two hold more still, one nothing; of the 41 others one does.
    - Shown to hold on: nothing else. Deeper networks cannot show it, as all else is free by then.
    - Not shown on: other architectures under cuDNN 9.0 to 9.7, where it is applied all the same.
    """
    if query.kind != "wgrad" or query.dtype != "float32" or query.channels_last or not (9, 0) <= stack_cudnn < (9, 8):
        return 0
    batch, outputs, *image = query.y
    if query.w[1] > _FIRST_LAYER_INPUTS or outputs <= _FIRST_LAYER_OUTPUTS or min(image) < _FIRST_LAYER_SIDE:
        return 0
    return batch * math.prod(image) * -(-outputs // 8) * 8 * itemsize


def grouped_on_early_ada(query: Query, capability: tuple[int, int], stack_cudnn: tuple[int, int]) -> bool:
    """Whether a grouped convolution takes no workspace since cuDNN has no engine for it that wants one on Ada (sm_89).

    Newer versions (9.20 was asked) have engines there that pad each group, or sum the weights' gradient in several
    hundred parts: 0.6 GiB for a depthwise layer of ConvNeXt-T with channels last, at 423 images.

    - Read on: RTX 4060, fp32, cuDNN 9.1, xMem's runs of ConvNeXt-T and RegNetX-400MF (6 rows of 11 that were at hand).
    - Shown to hold on: the same two networks and card, six rows that were captured afterwards: ConvNeXt-T from 4, 7 and
      9 % too high to within 2, 3 and 2 %; of three rows of RegNetX two are nearer, one is not (2 → 5 % too low).
    - Not shown on: halves, other groups, cuDNN 9.2 to 9.7, where it is applied all the same. On sm_86 it does not hold.
    """
    return query.groups > 1 and capability == _ADA and (9, 0) <= stack_cudnn < (9, 8)


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
        deterministic: bool = False,
    ) -> None:
        self.gpu = gpu
        self.benchmark = benchmark
        self.note = note
        """Why cuDNN itself was not asked; empty if it was, or was not wanted."""
        self._stack_cudnn = stack_cudnn
        self._tf32 = tf32
        self._answering = answering
        self._deterministic = deterministic
        self._cudnn = next((source for source in answering if isinstance(source, Cudnn)), None)
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
        names = sorted(self._answered) or [source.name for source in self._answering if source.is_general][:1]
        return ", ".join(names) or "none"

    @property
    def knows_deterministic_kernels(self) -> bool:
        return self._cudnn is not None

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
        if runs_in_place(query) or grouped_on_early_ada(query, self.gpu.compute_capability, self._stack_cudnn):
            return NOTHING
        if converted := converted_gradient(query, self._stack_cudnn, ITEMSIZE.get(query.dtype, 4)):
            return Transient((converted, 0))
        for source in self._answering:
            answer, name = source.ask(self.gpu, query, tf32=self._tf32), source.name
            if self._deterministic and (other := self._if_deterministic(query)) is not None:
                answer, name = other
            if answer is not None:
                self._answered[name] += 1
                return _trial(answer) if attributes.get(TRIAL) else Transient(answer.plans)
        return None

    def _if_deterministic(self, query: Query) -> tuple[Answer, str] | None:
        """cuDNN's answer without the kernels that a deterministic job cannot have, where these would be among its
        plans; else what the others say of all kernels holds for such a job, too."""
        if self._cudnn is None:
            return None
        of_all = self._cudnn.ask(self.gpu, query, tf32=self._tf32)
        answer = self._cudnn.ask(self.gpu, query, tf32=self._tf32, deterministic=True)
        return None if answer is None or answer == of_all else (answer, self._cudnn.name)


def _trial(answer: Answer) -> Transient:
    """The benchmark's one block for all plans: the largest, and half of it again and again while it does not fit."""
    sizes = []
    size = answer.largest
    while size >= 1:
        sizes.append(size)
        size //= 2
    return Transient((*sizes, 0))
