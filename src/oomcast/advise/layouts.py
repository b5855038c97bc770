"""The layouts of a job over several GPUs, and a stated model of what a step costs in each.

The cost of a step, in seconds. It orders layouts; it does not promise times:

- compute: 6 floating-point operations for each parameter and token, 8 with recomputation, at 40 % of the card's peak;
  where the question names no length, a sample has as many tokens as its largest input tensor tells (`_tokens_of`);
- a pipeline waits (stages - 1) micro-batches;
- tensor parallelism: four all-reduces of the hidden state for each block and micro-batch, not overlapped;
- DDP: the gradients once, FSDP: the parameters twice and the gradients once for each micro-batch, or once for each
  step of a pipeline, whose blocks stay gathered; both overlap with compute, so the longer of the two counts;
- context parallelism: keys and values of each block and micro-batch, as wide as the hidden state, passed on round the
  ring three times (in a forward, and with their gradients in a backward), not overlapped;
- expert parallelism: four all-to-alls of the hidden state for each block with experts and micro-batch, eight times as
  large since a token goes to eight experts (as in DeepSeek V3 and Qwen3), not overlapped; of the experts' parameters
  FSDP exchanges only the GPU's own;
- offload: parameters and gradients over PCIe in each step.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from ..devices import Gpu
from ..spec import DataParallel, Parallel, Precision, Spec
from ..trace import Category, EventKind, Trace

__all__ = ["Candidate", "Layouts", "ModelFacts"]

_UTILISATION = 0.4
_PEAK_FLOPS = {(7, 0): 125e12, (8, 0): 312e12, (8, 6): 142e12, (8, 9): 330e12, (9, 0): 989e12, (10, 0): 2250e12}
"""Dense 16-bit tensor-core peak by compute capability: NVIDIA's data sheets of V100, A100, A40/RTX 3090, RTX 4090/L40,
H100 SXM, B200."""
_NVLINK = {(7, 0): 150e9, (8, 0): 300e9, (9, 0): 450e9, (10, 0): 900e9}
"""Bytes per second in one direction, from the same sheets; cards without it use PCIe."""
_PCIE = 25e9
_NETWORK = 50e9
"""One 400 Gb/s adapter for each GPU, as in DGX H100."""
_ADAM = 2
_EXPERTS_OF_A_TOKEN = 8
_EXPERTS = "experts"
"""What transformers calls the module that has a layer's experts."""


@dataclass(frozen=True)
class Candidate:
    """A layout with the recomputation and the micro-batches it is tried with."""

    parallel: Parallel
    batch_size: int
    accumulation: int
    checkpointing: bool

    def words(self) -> list[str]:
        """As they are written on the command line."""
        words = ["--parallel", str(self.parallel), "--batch-size", str(self.batch_size)]
        if self.accumulation > 1:
            words += ["--accumulation", str(self.accumulation)]
        return words + ["--checkpointing"] * self.checkpointing


@dataclass(frozen=True)
class ModelFacts:
    """What the first capture tells of the job, for arithmetic."""

    parameters: int
    """Bytes, whole."""
    blocks: int
    block: int
    """Bytes of the largest block."""
    tokens: int
    """Of a sample."""
    activations: int
    """Bytes that a forward of the whole batch keeps for backward, on one GPU and without recomputation."""
    experts: int = 0
    """Bytes of the parameters that belong to experts."""
    has_sequences: bool = False
    """Whether samples are sequences of a length that the question names."""

    @property
    def width(self) -> float:
        """A Transformer's block has about twelve squares of its width."""
        return math.sqrt(self.block / 4 / 12)

    @classmethod
    def of(cls, trace: Trace, world: int, length: int | None) -> ModelFacts:
        """From a capture that is sharded over all GPUs: every block shows its size, the shards add up."""
        blocks: Counter[str] = Counter()
        whole = experts = 0
        for allocation in trace.allocations:
            if allocation.category is Category.PARAMETER and allocation.step <= 0 and allocation.phase.value == "build":
                whole += allocation.nbytes
                parts = allocation.module.split(".")
                experts += allocation.nbytes if _EXPERTS in parts else 0
                number = next((place for place, part in enumerate(parts) if part.isdigit()), None)
                if number is not None:
                    blocks[".".join(parts[: number + 1])] += allocation.nbytes
        return cls(
            parameters=whole * world,
            blocks=max(len(blocks), 1),
            block=max(blocks.values(), default=whole) * world,
            tokens=length or _tokens_of(trace),
            activations=_kept_by_forward(trace),
            experts=experts * world,
            has_sequences=length is not None,
        )


class Layouts:
    """Those that a job could have on the GPUs of its place; its samples of a step stay the same in all of them."""

    def __init__(self, spec: Spec, gpu: Gpu, model: ModelFacts) -> None:
        self._spec, self._gpu, self._model = spec, gpu, model
        self._world = spec.place.machines.world_size
        self._seen: dict[tuple[int, int, int, bool], tuple[int, int]] = {}
        """Tensor-parallel and context-parallel size, samples of a micro-batch, recomputation → stages of the shortest
        pipeline that was captured so, and the activations that its first stage held."""

    def by_cost(self) -> list[Candidate]:
        return sorted(self._candidates(), key=self.cost)

    def _candidates(self) -> Iterator[Candidate]:
        batch = self._spec.workload.batch_size
        for parallel in self._parallels():
            together = parallel.model_size
            for micro in _divisors(batch * together):
                if micro > batch or batch * together // micro < parallel.pipeline:
                    continue
                for recomputed in (False, True):
                    yield Candidate(parallel, micro, batch * together // micro, recomputed)
        yield Candidate(Parallel(DataParallel.FSDP2, offload=True), batch, 1, True)

    def _parallels(self) -> Iterator[Parallel]:
        on_node = min(self._spec.place.machines.gpus_per_node, self._world)
        for tensor in _divisors(on_node):
            for pipeline in _divisors(self._world // tensor):
                left = self._world // (tensor * pipeline)
                for context in _divisors(left) if self._model.has_sequences else [1]:
                    if left == 1:
                        yield Parallel(None, tensor, pipeline)
                        continue
                    for data in (DataParallel.DDP, DataParallel.FSDP2):
                        yield Parallel(data, tensor, pipeline, context)
        if self._model.experts:
            for expert in _divisors(on_node)[1:]:
                yield Parallel(DataParallel.FSDP2, expert=expert)

    @property
    def _wide(self) -> int:
        """Bytes of a number that is computed with."""
        return 4 if self._spec.workload.precision in (Precision.FP32, Precision.TF32) else 2

    def learn(self, candidate: Candidate, activations: int) -> None:
        """What the first stage of a captured layout kept of its forwards, at its peak."""
        key, stages = _form(candidate), candidate.parallel.pipeline
        if activations and (key not in self._seen or stages < self._seen[key][0]):
            self._seen[key] = (stages, activations)

    def least(self, candidate: Candidate) -> float:
        """Parameters, gradients and Adam's states, and what forwards keep: no worst rank of the layout holds less.

        The first stage of a pipeline keeps its share for as many micro-batches as there are stages, so all of a
        micro-batch's, and what stands before the blocks once for each: a longer pipeline keeps no less than a shorter
        one. Of a tensor-parallel group, each keeps its part at least, as of one that shares sequences. What
        recomputation leaves is known only of captures. A pipeline's stage of FSDP has all of its blocks gathered, and
        its gradients whole. Gradients are there beside activations where several micro-batches are summed, or where
        DDP's buckets hold them; else one comes as the other goes.
        """
        parallel, model = candidate.parallel, self._model
        if parallel.offload:
            return 0.0
        kept = 0.0
        if not candidate.checkpointing:
            share_of_batch = candidate.batch_size / self._spec.workload.batch_size
            kept = model.activations * share_of_batch / (parallel.tensor * parallel.context)
        stages, seen = self._seen.get(_form(candidate), (0, 0))
        if parallel.pipeline >= stages > 0:
            kept = max(kept, seen)
        share = gradients = model.parameters / (parallel.tensor * parallel.pipeline)
        gathered = 0.0
        if parallel.data is DataParallel.FSDP2:
            gathered = share * self._wide / 4 if parallel.pipeline > 1 else 0.0
            share /= parallel.data_size(self._world) * parallel.context
            gradients = gradients if parallel.pipeline > 1 else share
        state = _ADAM if self._spec.workload.optimizer in (None, "adam", "adamw") else 0
        stay = candidate.accumulation > 1 or parallel.data is DataParallel.DDP
        return share * (1 + state) + gathered + (gradients + kept if stay else max(gradients, kept))

    def cost(self, candidate: Candidate) -> float:
        """Seconds of a step by the stated model."""
        parallel, gpu, model, wide = candidate.parallel, self._gpu, self._model, self._wide
        elements = model.parameters / 4
        tokens = candidate.batch_size * candidate.accumulation * model.tokens
        flops = _PEAK_FLOPS.get(gpu.compute_capability, 71e12) * _UTILISATION / (wide // 2)
        compute = (8 if candidate.checkpointing else 6) * elements * tokens / parallel.model_size / flops
        compute *= 1 + (parallel.pipeline - 1) / candidate.accumulation
        near = _NVLINK.get(gpu.compute_capability, _PCIE)
        far = near if self._world <= self._spec.place.machines.gpus_per_node else _NETWORK
        local = (elements - model.experts / 4 * (1 - 1 / parallel.expert)) / (parallel.tensor * parallel.pipeline)
        exchanged = 0.0
        if parallel.data is DataParallel.DDP:
            exchanged = 2 * 4 * local / far
        elif parallel.data is DataParallel.FSDP2:
            turns = candidate.accumulation if parallel.pipeline == 1 else 1
            exchanged = (2 * wide + 4) * local * turns / far
        blocks = model.blocks / parallel.pipeline * candidate.accumulation
        hidden = candidate.batch_size * model.tokens / parallel.context * model.width * wide
        of_tensors = 4 * blocks * 2 * hidden * (parallel.tensor - 1) / parallel.tensor / near
        together_near = parallel.tensor * parallel.context <= self._spec.place.machines.gpus_per_node
        of_sequences = 3 * blocks * 2 * hidden * (parallel.context - 1) / (near if together_near else _NETWORK)
        of_experts = 4 * blocks * _EXPERTS_OF_A_TOKEN * hidden * (parallel.expert - 1) / parallel.expert / near
        host = 8 * local / self._world / _PCIE if parallel.offload else 0.0
        return max(compute, exchanged) + of_tensors + of_sequences + of_experts + host


def _form(candidate: Candidate) -> tuple[int, int, int, bool]:
    """Candidates of the same form keep the same activations, but for their pipeline."""
    parallel = candidate.parallel
    return parallel.tensor, parallel.context, candidate.batch_size, candidate.checkpointing


def _divisors(number: int) -> list[int]:
    """The powers of two among them, and the number itself."""
    return sorted({power for e in range(number.bit_length()) if number % (power := 1 << e) == 0} | {number})


def _kept_by_forward(trace: Trace) -> int:
    """The most bytes of activations that are there at once."""
    now = most = 0
    for kind, index in trace.events:
        if kind in (EventKind.ALLOCATE, EventKind.FREE) and trace.allocations[index].category is Category.ACTIVATION:
            now += trace.allocations[index].nbytes if kind is EventKind.ALLOCATE else -trace.allocations[index].nbytes
            most = max(most, now)
    return most


def _tokens_of(trace: Trace) -> int:
    """Of a sample: rows of a sequence, squares of 16 pixels of an image, cubes of a volume; 1 for plain features."""
    inputs = [one for one in trace.allocations if one.category is Category.INPUT and len(one.shape) > 1]
    if not inputs:
        return 1
    largest = max(inputs, key=lambda one: one.nbytes)
    _, *sizes = largest.shape
    if len(sizes) <= 2:
        is_sequence = len(sizes) == 2 or largest.dtype.startswith("int")
        return sizes[0] if is_sequence else 1
    _, *places = sizes
    return max(math.prod(place // 16 for place in places), 1)
