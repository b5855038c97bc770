"""Random allocator settings and operations for hypothesis."""

from dataclasses import dataclass, field

from hypothesis import strategies as st

from oomcast.simulate import AllocatorSettings, CachingAllocator, DeviceFull
from oomcast.units import KiB, MiB

# Around every border of the rules, so that short sequences meet them.
sizes = st.one_of(
    st.integers(1, 4 * KiB),
    st.integers(512 * KiB, 3 * MiB),
    st.sampled_from([512, 1 * MiB, 1 * MiB + 1, 2 * MiB, 10 * MiB - 1, 10 * MiB, 11 * MiB, 20 * MiB, 21 * MiB]),
    st.integers(4 * MiB, 48 * MiB),
)
operations = st.lists(
    st.one_of(
        st.tuples(st.just("malloc"), sizes, st.integers(0, 1)),
        st.tuples(st.just("free"), st.integers(0, 1 << 30), st.just(0)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=50,
)
settings_of_allocator = st.builds(
    AllocatorSettings,
    max_split_size=st.sampled_from([None, None, 20 * MiB, 32 * MiB]),
    roundup_power2_divisions=st.sampled_from([(0,) * 16, (4,) * 16, (2,) * 4 + (8,) * 12]),
    garbage_collection_threshold=st.sampled_from([0.0, 0.5]),
    expandable_segments=st.booleans(),
    per_process_memory_fraction=st.sampled_from([1.0, 0.75]),
)
capacities = st.sampled_from([None, 30 * MiB, 64 * MiB, 150 * MiB])


@dataclass
class Driver:
    """Applies operations to an allocator and keeps its own book of what is live."""

    allocator: CachingAllocator
    live: dict[int, int] = field(default_factory=dict)
    """Address → requested bytes."""

    def apply(self, operation: tuple[str, int, int]) -> None:
        kind, number, stream = operation
        if kind == "malloc":
            try:
                address = self.allocator.malloc(number, stream)
            except DeviceFull:
                return
            assert address not in self.live
            self.live[address] = number
        elif kind == "free":
            if self.live:
                address = sorted(self.live)[number % len(self.live)]
                del self.live[address]
                self.allocator.free(address)
        else:
            self.allocator.empty_cache()
