"""What a job writes is kept apart: its files stay as they are, and it sees its own writing."""

from __future__ import annotations

import contextlib
import glob
import gzip
import io
import logging
import os
import shutil
import sqlite3
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oomcast.capture.job_process import Limits
from oomcast.capture.keeping_apart import what_was_written
from oomcast.capture.landlock import landlock_version
from oomcast.capture.messages import Answer
from oomcast.capture.processes import run_forked

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="jobs have a process of their own where it can fork")


@pytest.fixture
def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of a user's, in which a job runs; at the end it is as it was."""
    for name in ("old", "kept", "folder/one", "tree/two", "tree/in/three"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"content of {name}")
    (tmp_path / "pointer").symlink_to("old")
    monkeypatch.chdir(tmp_path)
    before = state(tmp_path)
    yield tmp_path
    assert state(tmp_path) == before


def state(folder: Path) -> dict[str, Any]:
    return {
        str(path): (path.is_file() and path.read_bytes(), path.lstat().st_mtime_ns, path.lstat().st_mode)
        for path in sorted(folder.rglob("*"))
    }


def as_a_job(work: Callable[[], Any]) -> str:
    """What the function returns, called as a job is; raises here what it raised."""

    def answer() -> Answer:
        try:
            return Answer(message=repr(work()))
        except Exception as error:
            return Answer(error=type(error).__name__, message=f"{type(error).__name__}: {error}")

    said = run_forked(answer, Limits(seconds=100))
    assert said.error is None, said.message
    return said.message


def write(path: Any, text: str = "new", mode: str = "w") -> str:
    with open(path, mode) as stream:
        stream.write(text)
    with open(path) as stream:
        return stream.read()


def refused(error: type[Exception], function: Callable[[], Any]) -> str:
    try:
        function()
    except error as raised:
        return str(raised)
    raise AssertionError("it was not refused")


def test_files_are_written_and_read_again(box: Path) -> None:
    def work() -> None:
        assert write("old") == "new"
        assert write("kept", "+", "a") == "content of kept+"
        assert write("fresh", mode="x") == "new"
        assert write("pointer", "through a link") == "through a link"
        assert Path("old").read_text() == "through a link"
        assert Path("kept").read_text() == "content of kept+"
        with open("tree/two", "r+") as stream:
            assert stream.name == "tree/two"
            stream.write("CONTENT")
        assert Path(box / "tree" / "two").read_text() == "CONTENT of tree/two"
        refused(FileExistsError, partial(open, "kept", "x"))
        refused(FileNotFoundError, partial(open, "no/such", "w"))
        refused(FileNotFoundError, partial(open, "nothing", "r+"))
        refused(IsADirectoryError, partial(open, "tree", "w"))

    as_a_job(work)


def test_folders_are_made_listed_entered_and_removed(box: Path) -> None:
    def work() -> None:
        Path("made/deep").mkdir(parents=True)
        write("made/deep/file")
        assert sorted(os.listdir()) == ["folder", "kept", "made", "old", "pointer", "tree"]
        assert glob.glob("**/file", recursive=True) == ["made/deep/file"]
        os.chdir("made")
        assert (os.getcwd(), os.listdir()) == (str(box / "made"), ["deep"])
        assert Path("../kept").read_text() == "content of kept"
        os.chdir("..")
        assert Path("tree/two").read_text() == "content of tree/two"
        shutil.rmtree("folder")
        assert not os.path.exists("folder/one")
        os.mkdir("folder")
        assert os.listdir("folder") == []
        refused(OSError, lambda: os.rmdir("tree"))
        refused(FileExistsError, lambda: os.mkdir("tree"))

    as_a_job(work)


def test_a_folder_that_was_made_is_scanned_while_it_is_empty(box: Path) -> None:
    def work() -> Any:
        os.makedirs("made/empty")
        return [entry.name for entry in os.scandir("made/empty")], list(Path("made/empty").glob("checkpoint-*"))

    assert as_a_job(work) == "([], [])"


def test_files_are_moved_copied_and_removed(box: Path) -> None:
    def work() -> None:
        write("new.part", "whole")
        os.replace("new.part", "old")
        assert (Path("old").read_text(), os.path.exists("new.part")) == ("whole", False)
        os.rename("kept", "moved")
        assert (Path("moved").read_text(), os.path.exists("kept")) == ("content of kept", False)
        shutil.copytree("tree", "copied")
        shutil.move("tree", "elsewhere")
        assert sorted(os.listdir("elsewhere")) == sorted(os.listdir("copied")) == ["in", "two"]
        assert not os.path.exists("tree")
        os.remove("old")
        refused(FileNotFoundError, lambda: os.remove("old"))
        os.symlink("copied", "latest")
        assert Path("latest/in/three").read_text() == "content of tree/in/three"
        assert os.path.realpath("latest/two") == str(box / "copied" / "two")
        os.link("moved", "linked")
        os.truncate("moved", 4)
        os.chmod("folder/one", 0o600)
        os.utime("folder/one", (1, 1))
        assert (os.stat("moved").st_size, os.stat("folder/one").st_mtime) == (4, 1.0)

    as_a_job(work)


def test_what_is_built_on_them_follows(box: Path) -> None:
    def work() -> None:
        logging.FileHandler("log.txt").emit(logging.makeLogRecord({"msg": "said"}))
        assert Path("log.txt").read_text() == "said\n"
        with gzip.open("packed.gz", "wt") as packed:
            packed.write("1")
        with tarfile.open("packed.tar", "w") as archive:
            archive.add("packed.gz")
        with tarfile.open("packed.tar") as archive:
            assert archive.getnames() == ["packed.gz"]
        np.save("array.npy", np.arange(3))
        np.arange(3).tofile("old")
        assert np.load("array.npy").tolist() == np.fromfile("old", int).tolist() == [0, 1, 2]
        np.memmap("kept", "uint8", "r+")[:7] = ord("x")
        assert Path("kept").read_text() == "xxxxxxx of kept"
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder) / "file")
        child = os.fork()
        if child == 0:
            write("by a fork")
            os._exit(0)
        os.waitpid(child, 0)
        assert Path("by a fork").read_text() == "new"

    as_a_job(work)


def test_what_gets_past_the_functions_is_refused(box: Path) -> None:
    def work() -> None:
        assert "not followed" in refused(PermissionError, lambda: io.FileIO("old", "w"))
        assert "not followed" in refused(PermissionError, lambda: sqlite3.connect("old"))
        import posix

        for name, arguments in (("unlink", ("old",)), ("rename", ("old", "new")), ("mkdir", ("new",))):
            assert "not followed" in refused(
                PermissionError, lambda name=name, arguments=arguments: getattr(posix, name)(*arguments)
            )  # type: ignore[misc]

    as_a_job(work)


@pytest.mark.skipif(landlock_version() < 2, reason="this kernel cannot forbid it")
def test_other_programs_change_nothing(box: Path) -> None:
    programs = ("echo no > old", "rm -rf tree", "mv kept moved", "echo no >> kept", "ln -sf kept pointer")

    def work() -> list[int]:
        return [subprocess.run(["sh", "-c", program], stderr=subprocess.DEVNULL).returncode for program in programs]

    assert "0" not in as_a_job(work)


def test_it_is_told_what_was_written(box: Path) -> None:
    assert as_a_job(what_was_written) == "None"

    def work() -> str | None:
        Path("out").mkdir()
        for number in range(4):
            write(f"out/{number}.txt")
        return what_was_written()

    assert "what the job wrote (0.txt, 1.txt, 2.txt …) was not kept" in as_a_job(work)


def test_nothing_is_left_and_everything_put_back(box: Path) -> None:
    before = vars(os).copy(), open, io.open, tempfile.gettempdir(), sys.dont_write_bytecode
    place = as_a_job(lambda: write("old") and tempfile.gettempdir()).strip("'")
    assert not os.path.exists(os.path.dirname(place))
    assert (vars(os), open, io.open, tempfile.gettempdir(), sys.dont_write_bytecode) == before


def test_what_a_killed_guard_left_is_removed_by_the_next(box: Path) -> None:
    place = Path(os.path.dirname(os.path.dirname(as_a_job(tempfile.gettempdir).strip("'"))))
    left, locked = place / "oomcast-left", place / "oomcast-locked"
    held = None
    try:
        for folder in (left, locked):
            folder.mkdir()
            os.utime(folder, (1, 1))
        import fcntl

        held = os.open(locked, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        as_a_job(lambda: None)
        assert (left.exists(), locked.exists()) == (False, True)
    finally:
        if held is not None:
            os.close(held)
        with contextlib.suppress(OSError):
            locked.rmdir()
