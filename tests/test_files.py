"""Files written whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oomcast.errors import BadInput
from oomcast.files import atomic_path, write_atomically


def test_the_new_content_takes_the_place_of_the_old(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    target.write_bytes(b"old")
    write_atomically(target, b"new")
    assert target.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_a_failed_write_leaves_the_old_content_and_no_part(tmp_path: Path) -> None:
    target = tmp_path / "file.json"
    target.write_bytes(b"old")

    def write_half() -> None:
        with atomic_path(target) as part:
            part.write_bytes(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file.json"]


def test_a_folder_that_does_not_exist_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"cannot write .*file\.json: No such file or directory\."):
        write_atomically(tmp_path / "nowhere" / "file.json", b"")
    with pytest.raises(BadInput, match="cannot write"):
        write_atomically(tmp_path, b"")
    assert list(tmp_path.iterdir()) == []


def test_the_mode_is_that_of_any_new_file_or_the_one_it_had(tmp_path: Path) -> None:
    plain, written = tmp_path / "plain", tmp_path / "written"
    plain.write_bytes(b"")
    write_atomically(written, b"")
    assert written.stat().st_mode == plain.stat().st_mode
    os.chmod(written, 0o600)
    write_atomically(written, b"again")
    assert written.stat().st_mode & 0o777 == 0o600


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "real.txt"
    real.write_bytes(b"old")
    link = tmp_path / "link.txt"
    link.symlink_to(real)
    write_atomically(link, b"new")
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_device_is_written_as_it_is() -> None:
    write_atomically(Path("/dev/null"), b"new")
    assert Path("/dev/null").is_char_device()
    with pytest.raises(BadInput, match="No space left"):
        write_atomically(Path("/dev/full"), b"new")


def test_a_long_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 250)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [kept.name for kept in tmp_path.iterdir()] == [path.name]
