"""cuDNN's first plan with its engine: answers of one engine with one setting follow one formula (for `distill`)."""

from __future__ import annotations

from typing import NamedTuple

from oomcast.simulate.cudnn.library import (
    DESCRIPTOR,
    ENGINE,
    ENGINE_CONFIG,
    FALLBACK,
    HEUR_MODE,
    HEURISTIC,
    INSTANT,
    Library,
    LibraryError,
    _Descriptor,
)
from oomcast.simulate.cudnn.query import Query

__all__ = ["Choice", "Choosing"]

# cudnnBackendDescriptorType_t, cudnnBackendAttributeType_t
KNOB_CHOICE, KNOB_TYPE = 7, 9
MOST_KNOBS = 16


class Choice(NamedTuple):
    """The workspace of cuDNN's first plan, and its engine with all settings, as text."""

    size: int
    engine: str


class Choosing(Library):
    """The library, asked for its first plan and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self._knobs = [_Descriptor(self._c, KNOB_CHOICE) for _ in range(MOST_KNOBS)]

    def choice(self, device: str, tf32: bool, query: Query) -> Choice | None:
        """None where cuDNN has no plan."""
        for count, mode in ((1, INSTANT), (0, INSTANT), (0, FALLBACK)):
            try:
                found = self._choice(device, tf32, query, mode, count)
            except LibraryError:
                continue
            if found is not None:
                return found
        return None

    def _choice(self, device: str, tf32: bool, query: Query, mode: int, count: int) -> Choice | None:
        described = self._device(device)
        with self._descriptors() as made:
            heuristic = made.new(HEURISTIC)
            heuristic.set_int(200, HEUR_MODE, mode)
            heuristic.set_descriptor(201, self._graph(made, query))
            heuristic.set_descriptor(204, described)
            heuristic.finalize()
            wanted = count or heuristic.count(202, DESCRIPTOR)
            configs = [made.new(ENGINE_CONFIG) for _ in range(wanted)]
            for config in configs[: heuristic.get_descriptors(202, configs)]:
                if query.dtype in ("float32", "float64") and self._is_unwanted(made, config, True, tf32, False):
                    continue
                engine = made.new(ENGINE)
                config.get_descriptors(300, [engine])
                knobs = self._knobs[: config.get_descriptors(302, self._knobs)]
                settings = sorted((knob.get_ints(600, KNOB_TYPE, 1)[0], knob.get_int64(601)) for knob in knobs)
                name = " ".join((str(engine.get_int64(1301)), *(f"{kind}={value}" for kind, value in settings)))
                return Choice(config.get_int64(303), name)
        return None
