"""Trained estimators as a file: what was written is read, what is not one is refused with a sentence."""

from __future__ import annotations

import contextlib
import json
import struct
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from learned_builder import made_up_artifact, small_network

from oomcast.errors import BadInput, UnreadableFile
from oomcast.methods.gpumemnet import layer_features, load_artifact, read_artifact, write_artifact
from oomcast.methods.gpumemnet.classes import classes_of


def _header(path: Path, **changed: object) -> bytes:
    """The file's bytes with other entries in its header."""
    content = path.read_bytes()
    (length,) = struct.unpack("<I", content[8:12])
    header = json.loads(content[12 : 12 + length]) | changed
    text = json.dumps(header).encode()
    return content[:8] + struct.pack("<I", len(text)) + text + content[12 + length :]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_artifact(made_up_artifact(), tmp_path / "learned.bin")


def test_what_was_written_is_read(file: Path) -> None:
    written, read = made_up_artifact(), read_artifact(file)
    features = layer_features(small_network())
    assert read.trained == written.trained
    for estimator, models in written.classes.items():
        for kind, model in models.items():
            again = read.classes[estimator][kind]
            assert classes_of(again, features) == classes_of(model, features)
            assert (again.domain, again.widths, again.context) == (model.domain, model.widths, model.context)
    assert read.residual is not None
    assert written.residual is not None
    assert read.residual.curve == written.residual.curve
    assert read.residual.trees.predict_one([0.0] * 30) == pytest.approx((0.05, 0.1, 0.15), rel=1e-5)
    assert list(file.parent.iterdir()) == [file]


def test_another_version_says_what_to_do(file: Path) -> None:
    file.write_bytes(_header(file, schema=99))
    with pytest.raises(UnreadableFile, match="schema 99, this oomcast reads 1; train it again"):
        read_artifact(file)


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": "0" * 32},
        {"vector": ["other"]},
        {"arrays": []},
        {"arrays": [["x", [-1]]]},
        {"classes": 3},
        {"classes": {"gpumemnet-mlp": {"mlp": {"heads": [1], "widths": [1]}}}},
        {"residual": {"levels": [0.5]}},
        {"trained": None},
    ],
)
def test_a_header_that_does_not_fit_is_damage(file: Path, changed: dict[str, object]) -> None:
    file.write_bytes(_header(file, **changed))
    with pytest.raises(UnreadableFile, match="damaged"):
        read_artifact(file)


@pytest.mark.parametrize(
    "content", [b"", b"oomlearn", b"\x80\x04pickle", b"oomlearn\xff\xff\xff\xffx", b"oomlearn\2\0\0\0[]"]
)
def test_what_is_none_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    with pytest.raises(UnreadableFile, match=r"is no file of trained estimators|damaged"):
        read_artifact(path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_or_cut_is_noticed_or_harmless(tmp_path: Path, data: st.DataObject) -> None:
    path = write_artifact(made_up_artifact(), tmp_path / "flipped.bin")
    content = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content = content[:place]
    else:
        content[place] ^= data.draw(st.integers(1, 255))
    path.write_bytes(bytes(content))
    with contextlib.suppress(UnreadableFile):
        assert read_artifact(path).id


def test_a_missing_file_and_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="cannot be read"):
        read_artifact(tmp_path / "none.bin")
    with pytest.raises(BadInput, match="cannot write"):
        write_artifact(made_up_artifact(), tmp_path / "no" / "folder.bin")


def test_the_shipped_artifact_is_small_and_whole() -> None:
    artifact = load_artifact()
    assert set(artifact.classes) == {"gpumemnet-mlp", "gpumemnet-transformer"}
    for models in artifact.classes.values():
        assert set(models) == {"mlp", "cnn", "transformer"}
    assert artifact.residual is not None
    import oomcast.methods.gpumemnet as room

    assert (Path(room.__file__).parent / "learned.bin").stat().st_size < 5 << 20
