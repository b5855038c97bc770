"""Figures as files: SVG as drawn, PNG with the right size, colours and words; what is missing is told."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from oomcast.cli import main
from oomcast.errors import BadInput
from oomcast.report import figures as _picture
from oomcast.report.figures import as_picture, check_picture

DEVICE = "rtx-3060"
FIGURE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100" viewBox="0 0 200 100">'
    '<rect x="100" y="0" width="100" height="50" fill="#c04f15"/>'
    '<text x="5" y="80" style="font:30px system-ui,sans-serif">Memory</text></svg>'
)


def opened(content: bytes) -> Any:
    image = pytest.importorskip("PIL.Image")
    return image.open(io.BytesIO(content)).convert("RGB")


@pytest.fixture
def renderer() -> None:
    pytest.importorskip("resvg_py", reason="needs resvg-py")
    try:
        _picture._family()
    except BadInput as error:
        pytest.skip(str(error))


def test_svg_stays_as_it_is() -> None:
    assert as_picture(FIGURE, "figure.svg") == FIGURE.encode()


@pytest.mark.usefixtures("renderer")
def test_png_has_size_colours_and_words() -> None:
    picture = opened(as_picture(FIGURE, "Figure.PNG"))
    assert picture.size == (600, 300)
    assert picture.getpixel((450, 75)) == (0xC0, 0x4F, 0x15)
    assert picture.getpixel((10, 10)) == (255, 255, 255)
    words = picture.crop((0, 160, 600, 300))
    assert words.convert("L").getextrema()[0] < 60


@pytest.mark.usefixtures("renderer")
def test_commands_write_png(tmp_path: Path) -> None:
    file = tmp_path / "step.png"
    job = ["zoo:mlp", "--batch-size", "8", "--device", DEVICE, "--steps", "1"]
    assert main(["estimate", *job, "--figure", str(file)]) == 0
    picture = opened(file.read_bytes())
    assert picture.size[0] > 2000
    colours = picture.resize((200, 120)).getcolors(30_000)
    assert len(colours) > 20
    curve = tmp_path / "curve.png"
    assert main(["fit", "zoo:mlp", "--device", "1GiB", "--steps", "1", "--plot", str(curve)]) == 0
    assert len(opened(curve.read_bytes()).resize((200, 120)).getcolors(30_000)) > 5


@pytest.mark.parametrize("file", ["figure.pdf", "figure", "png"])
def test_other_forms_are_refused(file: str) -> None:
    with pytest.raises(BadInput, match=r"like figure.svg or figure.png"):
        check_picture(file)


def test_a_missing_renderer_is_told_before_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    _picture._family.cache_clear()
    assert main(["estimate", "nothing.py", "--batch-size", "1", "--device", DEVICE, "--figure", "x.png"]) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "pip install 'oomcast[png]'" in told
    assert "nothing.py" not in told


def test_a_machine_without_fonts_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithoutFonts:
        @staticmethod
        def svg_to_bytes(svg_string: str, skip_system_fonts: bool = False) -> bytes:
            return b"blank"

    monkeypatch.setattr(_picture, "_renderer", WithoutFonts)
    _picture._family.cache_clear()
    with pytest.raises(BadInput, match="no font"):
        check_picture("figure.png")
    _picture._family.cache_clear()
