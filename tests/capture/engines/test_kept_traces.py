"""Traces that are kept: the same question gets the same answer without a capture, any other question its own."""

from __future__ import annotations

import dataclasses
import json
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest

import oomcast
from oomcast.capture import capture
from oomcast.capture.kept import InStore, key_of
from oomcast.cli import main
from oomcast.database import Database
from oomcast.errors import BadInput, CaptureFailed, UnreadableFile
from oomcast.spec import Spec
from oomcast.trace import Trace

CONFIG = {"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 2, "vocab_size": 500}


@pytest.fixture
def no_captures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for one from now on fails."""

    def refuse(spec: Spec) -> Trace:
        raise CaptureFailed("captured")

    engine = SimpleNamespace(at_once=1, capture=refuse)
    monkeypatch.setattr("oomcast.capture.capturing.engine_named", lambda name: engine)


def spec_of(path: Path, store: object, **options: object) -> Spec:
    if not path.exists():
        path.write_text(json.dumps(CONFIG))
    settings = {"device": "a100-40gb", "batch_size": 2, "seq_len": 16, "steps": 1, "store": str(store), **options}
    return Spec.read(f"hf:{path}", **settings)


def test_the_second_time_nothing_is_captured(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    spec = spec_of(tmp_path / "config.json", tmp_path / "answers.db")
    first = capture(spec)
    request.getfixturevalue("no_captures")
    again = capture(spec)
    assert (again.allocations, again.events, again.assumptions) == (first.allocations, first.events, first.assumptions)
    with pytest.raises(CaptureFailed):
        capture(spec_of(tmp_path / "config.json", tmp_path / "answers.db", batch_size=3))
    with pytest.raises(CaptureFailed):
        capture(spec_of(tmp_path / "config.json", tmp_path / "answers.db", device="h100-80gb"))


def test_a_file_that_changed_is_another_question(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "config.json", tmp_path / "answers.db")
    before = capture(spec)
    (tmp_path / "config.json").write_text(json.dumps({**CONFIG, "n_embd": 128}))
    assert sum(one.nbytes for one in capture(spec).allocations) > sum(one.nbytes for one in before.allocations)


def test_other_software_is_another_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = spec_of(tmp_path / "config.json", tmp_path / "answers.db")
    key = key_of(spec)
    monkeypatch.setattr("oomcast.capture.kept.library_versions", lambda: {"torch": "2.99"})
    assert key_of(spec) != key
    monkeypatch.undo()
    monkeypatch.setattr("oomcast.capture.kept.source_digest", lambda *packages: "another oomcast")
    assert key_of(spec) != key
    monkeypatch.undo()
    assert key_of(spec) == key
    assert key_of(dataclasses.replace(spec, effort=dataclasses.replace(spec.effort, time_limit=7.0))) == key


def test_what_is_damaged_is_captured_again(tmp_path: Path) -> None:
    spec = spec_of(tmp_path / "config.json", tmp_path / "answers.db")
    first = capture(spec)
    with sqlite3.connect(tmp_path / "answers.db") as connection:
        connection.execute("UPDATE kept_traces SET trace = substr(trace, 1, 40)")
    assert capture(spec).allocations == first.allocations
    (tmp_path / "other.db").write_bytes(b"this is no database at all, but long enough to be looked at" * 20)
    with pytest.raises(UnreadableFile, match="is not a SQLite database"):
        capture(spec_of(tmp_path / "config.json", tmp_path / "other.db"))


def test_the_oldest_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = capture(spec_of(tmp_path / "config.json", tmp_path / "unused.db"))
    monkeypatch.setattr("oomcast.capture.kept._MOST_STORED", 2)
    store = InStore(Database(tmp_path / "few.db"))
    store.put("first", trace)
    store.put("second", trace)
    assert store.get("first") is not None  # so that the second one is the oldest
    store.put("third", trace)
    assert ["first" in store, "second" in store, "third" in store] == [True, False, True]


def test_postgresql_keeps_them_too(tmp_path: Path, postgresql: str, request: pytest.FixtureRequest) -> None:
    spec = spec_of(tmp_path / "config.json", postgresql)
    first = capture(spec)
    request.getfixturevalue("no_captures")
    assert capture(spec).allocations == first.allocations


def test_what_cannot_be_known_before_it_runs_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import torch\n")
    settings = {"device": "a100-40gb", "batch_size": 1, "store": str(tmp_path / "answers.db")}
    with pytest.raises(BadInput, match="names and data files only"):
        capture(Spec.read(tmp_path / "job.py", **settings))
    with pytest.raises(BadInput, match="read from this machine's cache"):
        capture(Spec.read("hf:somebody/some-model", **settings))
    with pytest.raises(BadInput, match="read a folder such as"):
        capture(Spec.read(f"hf:{tmp_path}", **settings))
    with pytest.raises(BadInput, match="there is no folder"):
        capture(Spec.read("zoo:resnet50", **{**settings, "store": str(tmp_path / "no" / "answers.db")}))


def test_the_command_line_and_a_layout_of_several_ranks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each stage of a pipeline is kept by itself, and the answer is the same with and without a store."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    words = ["estimate", f"hf:{tmp_path / 'config.json'}", "--batch-size", "2", "--seq-len", "16", "--steps", "1"]
    words += ["--device", "2xa100-40gb", "--parallel", "pp=2", "--accumulation", "2", "--json"]
    figures = []
    for more in ([], ["--store", str(tmp_path / "answers.db")], ["--store", str(tmp_path / "answers.db")]):
        assert main([*words, *more]) == 0
        plain = json.loads(capsys.readouterr().out)
        figures.append((plain["peak_reserved"], plain["device_total"], plain["ranks"]))
    assert figures[0] == figures[1] == figures[2]
    with sqlite3.connect(tmp_path / "answers.db") as connection:
        assert connection.execute("SELECT count(*) FROM kept_traces").fetchone() == (2,)


def test_a_plan_asks_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Layouts that the model cannot be divided into have no Trace: those alone are tried again."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    settings = {
        "batch_size": 1,
        "seq_len": 16,
        "device": "2x16GiB",
        "captures": 2,
        "store": str(tmp_path / "answers.db"),
    }
    first = oomcast.plan(f"hf:{tmp_path / 'config.json'}", **settings)
    put: list[str] = []
    monkeypatch.setattr(InStore, "put", lambda self, key, trace: put.append(key))
    again = oomcast.plan(f"hf:{tmp_path / 'config.json'}", **settings)
    assert (again.layouts, put) == (first.layouts, [])
