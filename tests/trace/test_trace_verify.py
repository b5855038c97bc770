import pytest

from oomcast.trace import Allocation, BrokenTrace, Category, Event, EventKind, KernelCall, Mark, Phase, Trace, verify

TENSOR = Allocation(512, Category.ACTIVATION, Phase.FORWARD, 0, "aten.add", "layer", "train.py:3")
ALLOCATE, FREE, KERNEL, EMPTY = EventKind.ALLOCATE, EventKind.FREE, EventKind.KERNEL, EventKind.EMPTY_CACHE
LET_GO = EventKind.LET_GO


def test_a_good_trace_passes() -> None:
    verify(
        Trace(
            (TENSOR, TENSOR),
            (Event(ALLOCATE, 1), Event(KERNEL, 0), Event(FREE, 1), Event(EMPTY, 0), Event(ALLOCATE, 0)),
            (KernelCall("aten.mm", ()),),
            (Mark(0, Phase.BUILD, -1), Mark(0, Phase.FORWARD, 0), Mark(5, Phase.BACKWARD, 0)),
        )
    )


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([Event(FREE, 0)], "event 0 frees allocation 0 before"),
        ([Event(ALLOCATE, 0), Event(FREE, 0), Event(FREE, 0)], "event 2 frees allocation 0 a second time"),
        ([Event(ALLOCATE, 0), Event(ALLOCATE, 0)], "event 1 allocates allocation 0 a second time"),
        ([Event(ALLOCATE, 0), Event(FREE, 0), Event(ALLOCATE, 0)], "event 2 allocates allocation 0 a second time"),
        ([Event(ALLOCATE, 1)], "event 0 names allocation 1 of 1"),
        ([Event(ALLOCATE, -1)], "event 0 names allocation -1 of 1"),
        ([Event(KERNEL, 0)], "event 0 names kernel 0 of 0"),
        ([Event(LET_GO, 0)], "event 0 lets allocation 0 go, which is not in use"),
        ([Event(ALLOCATE, 0), Event(LET_GO, 0), Event(LET_GO, 0)], "event 2 lets allocation 0 go"),
        ([Event(EMPTY, 3)], "event 0 empties the cache with index 3"),
        ([Event(9, 0)], "no known kind"),  # type: ignore[arg-type]
    ],
)
def test_the_broken_promise_is_named(events: list[Event], said: str) -> None:
    with pytest.raises(BrokenTrace, match=said):
        verify(Trace((TENSOR,), tuple(events)))


def test_a_negative_size_is_named() -> None:
    negative = Allocation(-1, Category.ACTIVATION, Phase.FORWARD, 0, "aten.add", "", "")
    with pytest.raises(BrokenTrace, match="allocation 1 has a negative size"):
        verify(Trace((TENSOR, negative), ()))


@pytest.mark.parametrize("positions", [(1, 0), (2,), (-1,)])
def test_marks_go_forward_and_stay_inside(positions: tuple[int, ...]) -> None:
    marks = tuple(Mark(position, Phase.FORWARD, 0) for position in positions)
    with pytest.raises(BrokenTrace, match="out of order"):
        verify(Trace((TENSOR,), (Event(ALLOCATE, 0),), marks=marks))


def test_a_size_without_end_is_named() -> None:
    endless = Allocation(10**400, Category.ACTIVATION, Phase.FORWARD, 0, "aten.add", "", "")
    with pytest.raises(BrokenTrace, match="allocation 1 has a size that no machine can have"):
        verify(Trace((TENSOR, endless), ()))
