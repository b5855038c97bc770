"""Questions in their order, kept over a server's death."""

from __future__ import annotations

import base64
import random
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")

from oomcast.web import store as store_module
from oomcast.web.questions import Question
from oomcast.web.store import DONE, FAILED, TAKEN, WAITING, QueueFull, Store


def question(batch: int, kind: str = "estimate") -> Question:
    return Question(kind, "zoo:mlp", {"batch_size": batch, "device": "t4"})


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def test_estimates_come_before_what_takes_longer_and_each_knows_its_place(where: Path) -> None:
    store = Store(where)
    assert store.ask("a", question(1, "advise")).place == 1
    assert store.ask("b", question(1)).place == 1
    assert store.ask("c", question(2)).place == 2
    later = store.status("a")
    assert later is not None
    assert later.place == 3
    assert store.ask("c", question(2)).place == 2  # asked twice, it waits once
    taken = [store.take() for _ in range(4)]
    assert [one and one.id for one in taken] == ["b", "c", "a", None]
    assert taken[0] is not None
    assert taken[0].question == question(1)
    store.finish("b", DONE, "application/json", '{"ü": "\ud800"}')
    found = store.status("b")
    assert found is not None
    assert (found.state, found.media) == (DONE, "application/json")
    store.close()


def test_what_a_killed_server_had_taken_waits_again(where: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "_SILENT_SECONDS", 0.0)
    Store(where).ask("a", question(1))
    for _ in range(3):
        server = Store(where)  # its predecessor ended without a word
        assert server.take() is not None
        status = server.status("a")
        assert status is not None
        assert status.state == TAKEN
    last = Store(where)
    given_up = last.status("a")
    assert given_up is not None
    assert given_up.state == FAILED
    assert "three times" in given_up.text
    assert last.ask("a", question(1)).state == WAITING  # whoever asks again gets another try
    last.close()


def test_a_server_that_ends_in_order_gives_back_what_it_had(where: Path) -> None:
    first = Store(where)
    first.ask("a", question(1))
    assert first.take() is not None
    first.close()
    second = Store(where)
    assert second.take() is not None
    second.close()


def test_a_full_queue_says_so_and_old_answers_go_first(where: Path) -> None:
    store = Store(where, most_waiting=2, most_kept=1)
    for name in ("a", "b"):
        store.ask(name, question(1))
    with pytest.raises(QueueFull, match="2 questions are waiting"):
        store.ask("c", question(1))
    for _ in range(2):
        taken = store.take()
        assert taken is not None
        store.finish(taken.id, DONE, "application/json", "{}")
    assert [store.status(name) is None for name in ("a", "b")].count(True) == 1
    store.close()


def test_large_questions_are_few_and_leave_nothing_behind(where: Path) -> None:
    store = Store(where)

    def large(number: int) -> Question:
        recording = base64.b64encode(random.Random(number).randbytes(300_000)).decode()
        return Question("compare", "zoo:mlp", {"device": "t4"}, snapshot=recording)

    for number in range(16):
        store.ask(str(number), large(number))
    with pytest.raises(QueueFull, match="16 large questions"):
        store.ask("one more", large(99))
    assert store.ask("small", question(1)).state == WAITING
    while (taken := store.take()) is not None:
        store.finish(taken.id, FAILED, "", "no")
    # What an answered question brought along is gone; asked again, it comes anew.
    assert store.ask("3", large(3)).state == WAITING
    again = store.take()
    assert again is not None
    assert again.question == large(3)
    store.close()
