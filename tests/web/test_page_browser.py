"""The page in a real browser: sliders, verdict, map, GPUs, remedies, comparison, link, files; phone, dark, keyboard."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from service_process import Service, running

import oomcast
from browser import PATIENCE, Opened, open_browser, serious_faults
from oomcast.report import snapshot_as_pickle
from oomcast.units import format_bytes

LSTM = {"job": "zoo:lstm-lm", "batch_size": 8, "seq_len": 64, "device": "rtx-3060"}
MLP = {"job": "zoo:mlp", "batch_size": 64, "device": "t4"}
CAPTURED = '#state[data-kind="captured"]'
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with open_browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def service(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("service")) as started:
        yield started


def opened_at(browser: Any, service: Service, settings: dict[str, Any], **context: Any) -> Opened:
    opened = Opened(browser, f"{service.address}/#{quote(json.dumps(settings))}", **{"viewport": DESKTOP, **context})
    opened.page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    return opened


def check_silent(opened: Opened, service: Service) -> None:
    assert opened.problems == []
    assert {url for url in opened.requests if not url.startswith((service.address, "data:"))} == set()


def settings_of(opened: Opened) -> dict[str, Any]:
    """What the link holds: it follows the controls a moment later."""
    opened.page.wait_for_timeout(1000)
    told: dict[str, Any] = opened.page.evaluate("() => JSON.parse(decodeURIComponent(location.hash.slice(1)))")
    return told


def test_a_slider_answers_at_once_and_is_confirmed_by_the_same_figures(browser: Any, service: Service) -> None:
    opened = opened_at(browser, service, LSTM)
    page = opened.page
    page.wait_for_selector("#batch-chart svg", timeout=3 * PATIENCE)
    page.wait_for_selector("#size-chart svg", timeout=3 * PATIENCE)
    expected = service.ask("estimate", **LSTM)
    assert format_bytes(expected["device_total"]) in opened.text("#sentence")
    moved = page.evaluate(
        """() => {
          const range = document.getElementById("batch-range");
          range.value = Number(range.value) + 2;
          range.dispatchEvent(new Event("input"));
          return [document.getElementById("state").dataset.kind, document.getElementById("sentence").textContent];
        }"""
    )
    assert moved[0] == "interpolated"
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    assert opened.text("#sentence") == moved[1]
    assert settings_of(opened)["batch_size"] == 16
    assert opened.text("#command") == "oomcast estimate zoo:lstm-lm --batch-size 16 --seq-len 64 --device rtx-3060"
    check_silent(opened, service)


def test_no_answer_waits_for_a_curve(browser: Any, service: Service) -> None:
    context = browser.new_context(viewport=DESKTOP)
    page = context.new_page()
    page.set_default_timeout(3 * PATIENCE)
    held: list[Any] = []
    page.route("**/sweep*", lambda route: held.append(route))  # never answered
    page.goto(f"{service.address}/#{quote(json.dumps(MLP))}")
    for optimizer in ("sgd", "adamw"):
        page.wait_for_selector(CAPTURED)
        page.select_option("#optimizer", optimizer)
    page.wait_for_selector(CAPTURED)
    assert "adamw" in page.inner_text("#command")
    assert len(held) == 1
    context.close()


def test_the_map_is_a_table_whose_cells_lead_there(browser: Any, service: Service) -> None:
    opened = opened_at(browser, service, LSTM)
    page = opened.page
    page.click("[data-ask=map]")
    page.wait_for_selector("#map table", timeout=3 * PATIENCE)
    verdicts = {text.splitlines()[0] for text in page.locator("#map .cell").all_inner_texts()}
    assert verdicts <= {"FITS", "TIGHT", "OOM"}
    cell = page.locator("#map tbody tr").last.locator(".cell").first
    size = format_bytes(service.ask("map", parameter="seq-len", **LSTM)["cells"][0]["device_total"])
    assert size in page.locator("#map .cell").first.inner_text()
    cell.focus()
    page.keyboard.press("Enter")
    assert settings_of(opened)["batch_size"] > LSTM["batch_size"]
    check_silent(opened, service)


def test_gpus_remedies_comparison_and_detail(browser: Any, service: Service) -> None:
    opened = opened_at(browser, service, MLP)
    page = opened.page
    page.click("#keep")
    page.select_option("#precision", "bf16")
    page.wait_for_selector('#state[data-kind="waiting"]')
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    assert "−" in opened.text("#comparison tbody")
    assert opened.text("#comparison code") == "oomcast estimate zoo:mlp --batch-size 64 --device t4"
    page.select_option("#precision", "fp32")
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    page.click("[data-ask=gpus]")
    page.wait_for_selector("#gpus table", timeout=3 * PATIENCE)
    assert "cheapest" in opened.text("#gpus")
    assert "USD/h" in opened.text("#gpus")
    found = service.ask("gpus", job="zoo:mlp", batch_size=64)
    assert opened.text("#gpus li >> nth=0").startswith(f"Smallest that is enough: {found['smallest']},")
    page.click("[data-ask=advise]")
    page.wait_for_selector("#advise li", timeout=5 * PATIENCE)
    toggle = page.locator("#advise li", has_text="--precision amp-fp16").get_by_role("button")
    toggle.click()
    assert toggle.get_attribute("aria-pressed") == "true"
    assert page.input_value("#precision") == "amp-fp16"
    toggle.click()
    assert page.input_value("#precision") == "fp32"
    page.select_option("#precision", "amp-fp16")  # by another control: the remedy is applied all the same
    assert toggle.inner_text() == "Applied"
    page.select_option("#precision", "fp32")
    assert toggle.get_attribute("aria-pressed") == "false"
    page.click("[data-ask=report]")
    frame = page.frame_locator("#report iframe")
    frame.locator("#timeline .canvas").wait_for(timeout=3 * PATIENCE)
    frame.locator("#modules .map").wait_for()
    page.wait_for_timeout(1000)
    heights = [page.locator("#report iframe").bounding_box()["height"]]
    page.wait_for_timeout(1000)
    heights.append(page.locator("#report iframe").bounding_box()["height"])
    assert heights[0] == heights[1] > 800  # as high as what it shows, and it stays so
    with page.expect_download() as saved:
        page.click("#download")
    assert saved.value.suggested_filename == "oomcast.html"
    assert Path(saved.value.path()).read_text(encoding="utf-8").startswith("<!doctype html>")
    check_silent(opened, service)
    assert serious_faults(page) == []


def test_what_is_not_known_yet_is_not_shown_as_the_answer(browser: Any, service: Service) -> None:
    opened = opened_at(browser, service, MLP)
    page = opened.page
    before = opened.text("#sentence")
    moved = page.evaluate(
        """() => {
          const precision = document.getElementById("precision");
          precision.value = "bf16";
          precision.dispatchEvent(new Event("change"));
          return ["badge", "sentence"].map((id) => document.getElementById(id).textContent)
            .concat(document.getElementById("keep").disabled, document.getElementById("json").hidden);
        }"""
    )
    assert moved == ["…", f"not known yet; with the settings before: {before}", True, True]
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    assert opened.text("#badge") == "FITS"
    assert format_bytes(service.ask("estimate", **MLP, precision="bf16")["device_total"]) in opened.text("#sentence")
    assert page.is_enabled("#keep")
    check_silent(opened, service)


def test_ranks_and_numbers_of_gpus_have_sliders_that_know(browser: Any, service: Service) -> None:
    pytest.importorskip("peft")
    opened = opened_at(browser, service, MLP)
    page = opened.page
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 256, "vocab_size": 500}
    config = json.dumps({"model_type": "gpt2", **sizes})
    # Dropped onto the page, as from a folder.
    page.evaluate(
        """(text) => {
          const carried = new DataTransfer();
          carried.items.add(new File([text], "config.json"));
          document.dispatchEvent(new DragEvent("drop", { dataTransfer: carried, bubbles: true, cancelable: true }));
        }""",
        config,
    )
    page.wait_for_function("() => document.getElementById('job').value === 'config.json'")
    page.fill("#size", "64")
    page.press("#size", "Tab")
    page.focus("#rank")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.wait_for_selector("#rank-chart svg", timeout=5 * PATIENCE)
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    page.focus("#rank")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#state", "data-kind") in ("interpolated", "captured")
    said = opened.text("#sentence")
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    assert opened.text("#sentence") == said
    page.fill("#count", "2")
    page.press("#count", "Tab")
    page.wait_for_selector("#gpus-chart svg", timeout=5 * PATIENCE)
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    page.focus("#count-range")
    page.keyboard.press("ArrowRight")
    assert page.get_attribute("#state", "data-kind") in ("swept", "captured")
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    told = settings_of(opened)
    assert (told["adapter"]["r"], told["device"], told["parallel"]) == (32, "4xt4", "ddp")
    page.click("[data-ask=gpus]")
    assert "oomcast plan" in opened.text("[data-note=gpus]")
    check_silent(opened, service)
    assert serious_faults(page) == []


def test_a_pasted_configuration_and_a_link_that_is_opened_again(browser: Any, service: Service) -> None:
    pytest.importorskip("transformers")
    opened = opened_at(browser, service, MLP)
    page = opened.page
    pasted = "base_model: sshleifer/tiny-gpt2\nmicro_batch_size: 2\nsequence_len: 64\n"
    page.evaluate(
        """(text) => {
          const carried = new DataTransfer();
          carried.setData("text", text);
          document.body.dispatchEvent(new ClipboardEvent("paste", { clipboardData: carried, bubbles: true }));
        }""",
        pasted,
    )
    page.wait_for_function("() => document.getElementById('file-list').textContent.includes('config.yml')")
    page.fill("#job", "zoo:mlp")
    page.press("#job", "Tab")
    page.fill("#batch", "48")
    page.press("#batch", "Tab")
    told = settings_of(opened)
    assert (told["job"], told["batch_size"]) == ("zoo:mlp", 48)
    again = opened_at(browser, service, told)
    assert again.page.input_value("#batch") == "48"
    identity = again.page.get_attribute("#json", "href")
    status, _, body = service.send("GET", str(identity))
    assert status == 200
    assert json.loads(body) == service.ask("estimate", job="zoo:mlp", batch_size=48, device="t4")


def test_a_prediction_is_compared_with_a_dropped_snapshot(browser: Any, service: Service, tmp_path: Path) -> None:
    recorded = oomcast.estimate(**{**MLP, "batch_size": 96}, keep_history=True)
    assert recorded.history is not None
    (tmp_path / "real.pickle").write_bytes(snapshot_as_pickle(recorded.history))
    opened = opened_at(browser, service, MLP)
    page = opened.page
    page.set_input_files("#snapshot", str(tmp_path / "real.pickle"))
    page.wait_for_selector("#real table >> nth=1", timeout=3 * PATIENCE)
    predicted = service.ask("estimate", **MLP)
    for figure in (predicted["peak_reserved"], recorded.peak_reserved):
        assert format_bytes(figure) in opened.text("#real table >> nth=1")
    assert format_bytes(recorded.peak_reserved) in opened.text("#real table >> nth=0")
    assert "the same to the byte" in opened.text("#real .hint")
    assert settings_of(opened) == MLP
    (tmp_path / "bad.pickle").write_bytes(b"cos\nsystem\n(S'touch ran'\ntR.")
    page.set_input_files("#snapshot", str(tmp_path / "bad.pickle"))
    page.wait_for_function("() => document.querySelector('[data-note=real]').textContent.includes('recorded.pickle')")
    assert all(re.search("400", problem) for problem in opened.problems)


def test_what_cannot_be_asked_is_said_and_a_dropped_file_is_read(
    browser: Any, service: Service, tmp_path: Path
) -> None:
    pytest.importorskip("transformers")
    opened = opened_at(browser, service, MLP)
    page = opened.page
    page.fill("#job", "zoo:resnet5")
    page.keyboard.press("Tab")
    page.wait_for_function("() => document.getElementById('sentence').textContent.includes('did you mean')")
    # The browser itself notes a refused request on its console; nothing else may.
    assert all(re.search("400", problem) for problem in opened.problems)
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 1024, "vocab_size": 500}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    page.set_input_files("#files", str(tmp_path / "config.json"))
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    assert "config.json" in opened.text("#file-list")
    assert page.input_value("#job") == "config.json"
    page.evaluate(
        "() => { const r = document.getElementById('rank'); r.value = 3; r.dispatchEvent(new Event('input')) }"
    )
    page.wait_for_selector('#state[data-kind="waiting"]')
    assert settings_of(opened)["adapter"]["r"] == 16
    # A file about the training says what it says, whatever the sliders were at, and the controls show it.
    (tmp_path / "training_args.json").write_text(
        json.dumps({"per_device_train_batch_size": 3, "fp16": True, "gradient_checkpointing": True})
    )
    page.set_input_files("#files", str(tmp_path / "training_args.json"))
    page.wait_for_selector('#state[data-kind="waiting"]')
    page.wait_for_selector(CAPTURED, timeout=3 * PATIENCE)
    assert (page.input_value("#batch"), page.input_value("#precision")) == ("3", "amp-fp16")
    assert page.is_checked("#checkpointing")
    assert settings_of(opened) == {"job": "training_args.json", "model": "config.json", "device": "t4"}
    assert opened.text("#command") == "oomcast estimate training_args.json --model config.json --device t4"


@pytest.mark.parametrize("screen", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_for_programs_lists_every_route(
    browser: Any, service: Service, screen: dict[str, int], scheme: str
) -> None:
    opened = Opened(browser, f"{service.address}/docs", viewport=screen, color_scheme=scheme)
    opened.page.wait_for_selector("h2")
    described = json.loads(service.send("GET", "/openapi.json")[2])["paths"]
    heads = [f"{method.upper()} {path}" for path, methods in described.items() for method in methods]
    assert opened.page.locator("h2").all_inner_texts() == heads
    opened.page.locator("summary").first.focus()
    opened.page.keyboard.press("Enter")
    assert "batch_size" in opened.text("table >> nth=0")
    assert opened.page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    check_silent(opened, service)
    assert serious_faults(opened.page) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone_nothing_is_cut_off(browser: Any, service: Service, scheme: str) -> None:
    opened = opened_at(browser, service, MLP, viewport=PHONE, color_scheme=scheme, has_touch=True, is_mobile=True)
    page = opened.page
    assert page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
    paper = page.evaluate("() => getComputedStyle(document.querySelector('main')).backgroundColor")
    light = sum(map(int, re.findall(r"\d+", paper)[:3]))
    assert light > 600 if scheme == "light" else light < 200
    page.focus("#batch-range")  # the answer stands further down, its verdict at the edge of the screen
    assert opened.text(".peek").startswith("FITS")
    assert page.locator(".peek").bounding_box()["y"] < PHONE["height"]
    check_silent(opened, service)
    assert serious_faults(page) == []


def test_everything_can_be_reached_by_keyboard(browser: Any, service: Service) -> None:
    opened = opened_at(browser, service, MLP)
    page = opened.page
    page.evaluate("() => document.body.focus()")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("() => document.activeElement.id || document.activeElement.dataset.ask || ''"))
    wanted = {
        "job",
        "files",
        "batch-range",
        "batch",
        "gpu",
        "count-range",
        "count",
        "precision",
        "optimizer",
        "checkpointing",
        "keep",
    }
    assert wanted | {"map", "gpus", "advise", "report", "copy"} <= set(reached)
    page.focus("#batch-range")
    page.keyboard.press("ArrowRight")
    page.focus("#count-range")
    page.keyboard.press("ArrowRight")
    told = settings_of(opened)
    assert (told["batch_size"], told["device"], told["parallel"]) == (96, "2xt4", "ddp")
    unnamed = page.evaluate(
        """() => [...document.querySelectorAll("input, select, button, iframe")]
          .filter((one) => one.checkVisibility() && !one.labels?.length)
          .filter((one) => !(one.getAttribute("aria-label") || one.title || one.textContent.trim()))
          .map((one) => one.id)"""
    )
    assert unnamed == []
