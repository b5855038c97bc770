from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from campaign_builder import ENVIRONMENT, MIB
from equation_builder import GRID, known_memory, write_store
from oomcast.errors import BadInput, UnreadableFile
from oomcast.estimation import Estimate, estimate
from oomcast.methods.equations import MemoryEquation, fit_equation, read_equation, write_equation
from oomcast.methods.equations.symbolic import SearchConfig
from oomcast.methods.measure import Selection, Store
from oomcast.methods.tbem.static_figures import case_trace, trace_features


def estimate_by_equation(job: Any, **options: Any) -> Estimate:
    return estimate(job, estimator="equation", **options)


def fitted_to(*places: Path, select: Selection | None = None, **options: Any) -> MemoryEquation:
    stores = [Store.open(place) for place in places]
    try:
        return fit_equation(stores, select, **options)
    finally:
        for store in stores:
            store.close()


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> MemoryEquation:
    return fitted_to(write_store(tmp_path_factory.mktemp("store") / "runs.db"))


@pytest.fixture
def file(fitted: MemoryEquation, tmp_path: Path) -> Path:
    return write_equation(fitted, tmp_path / "small.equation.json")


def test_the_equation_behind_the_runs_is_found(fitted: MemoryEquation) -> None:
    assert fitted.names == ("batch_size", "width")
    assert fitted.equation.terms is not None
    terms = {tuple(sorted(powers.items())): number for number, powers in fitted.equation.terms}
    assert terms[(("batch_size", 1), ("width", 1))] == pytest.approx(4000, rel=1e-3)
    assert terms[()] == pytest.approx(300 * MIB, rel=1e-3)
    assert fitted.training_error < 1e-3
    assert fitted.kept_out_error < 1e-3
    assert fitted.fixed["depth"] == 3
    assert fitted.ranges == {"batch_size": (8, 256), "width": (32, 256)}
    assert len(fitted.rows) == 16, "the run that ran out of memory tells no peak"


def test_runs_kept_out_judge_and_are_not_learnt_from(tmp_path: Path) -> None:
    def spoilt(parameters: Any) -> int:
        return known_memory(parameters) * (10 if parameters["batch_size"] == 256 and parameters["width"] == 256 else 1)

    place = write_store(tmp_path / "runs.db", memory=spoilt)
    for seed in range(20):
        found = fitted_to(place, keep_out=0.3, config=SearchConfig(seed=seed, population=20, generations=2))
        assert len(found.checks) == 5
        assert len(found.learnt) == len(found.ratios) == 11
        if any(row.measured > 1 << 30 for row in found.checks):
            assert found.training_error < 0.01 < found.mape(found.checks)
            return
    pytest.fail("no seed kept the spoilt run out")


def test_saved_and_read_again_it_answers_the_same(fitted: MemoryEquation, file: Path) -> None:
    again = read_equation(file)
    point = {"batch_size": 100, "width": 100}
    assert again.predict(point) == fitted.predict(point)
    assert again.front == fitted.front
    assert again.rows == fitted.rows
    plain = json.loads(file.read_text())
    assert plain["memory"].endswith(" bytes")
    assert plain["search"]["seed"] == 0
    assert plain["ranges"]["width"] == [32, 256]
    assert plain["environment"]["allocator"] == "glibc 2.36"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "oomcast gap"}, "is not a file of oomcast equation fit"),
        ({"schema": 2}, r"has schema 2 .*this oomcast reads 1"),
        ({"features": "colours"}, "is damaged"),
        ({"equation": {"kind": "equation", "version": 1, "names": ["a"], "expression": "__import__('os')"}}, "damaged"),
        ({"ratios": [1.0]}, "is damaged .*one ratio for each run"),
        ({"beyond": -1}, "is damaged"),
        ({"rows": [{}]}, "is damaged"),
    ],
)
def test_damaged_files_are_told(file: Path, change: dict[str, Any], words: str) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(UnreadableFile, match=words):
        read_equation(file)
    file.write_text("{")
    with pytest.raises(UnreadableFile, match="is not a file of oomcast equation fit"):
        read_equation(file)
    with pytest.raises(UnreadableFile, match="cannot be read"):
        read_equation(file.with_name("missing.json"))


def test_beyond_the_hull_is_marked_and_wider(fitted: MemoryEquation) -> None:
    inside = fitted.predict({"batch_size": 64, "width": 100})
    beyond = fitted.predict({"batch_size": 64, "width": 1024})
    farther = fitted.predict({"batch_size": 64, "width": 10240})
    assert inside.distance == 0
    assert 0 < beyond.distance < farther.distance

    def width(found: Any) -> float:
        return math.log(found.high / found.low)

    assert width(inside) < width(beyond) < width(farther)
    assert inside.low <= inside.total <= inside.will_not_exceed <= inside.high


def test_the_hull_is_no_box(tmp_path: Path) -> None:
    """Both values are within their ranges, but no run had them together."""
    place = tmp_path / "runs.db"
    for batch, widths in {8: (32, 64, 128, 256), 16: (32, 64, 128), 64: (32, 64), 256: (32,)}.items():
        write_store(place, {"batch_size": (batch,), "width": widths})
    found = fitted_to(place)
    assert found.predict({"batch_size": 8, "width": 256}).distance == 0
    assert found.predict({"batch_size": 256, "width": 256}).distance == pytest.approx(1, abs=0.1)


def test_what_the_equation_needs_is_told(fitted: MemoryEquation) -> None:
    with pytest.raises(BadInput, match="needs width; give all of batch_size, width"):
        fitted.predict({"batch_size": 8})
    with pytest.raises(BadInput, match="width must be a finite number"):
        fitted.predict({"batch_size": 8, "width": math.nan})
    with pytest.raises(BadInput, match="batch_size must be above 0"):
        fitted.predict({"batch_size": 0, "width": 64})


def test_runs_that_support_no_equation_are_told(tmp_path: Path) -> None:
    def refused(words: str, grid: dict[str, tuple[Any, ...]], *, memory: Any = known_memory, **options: Any) -> None:
        with pytest.raises(BadInput, match=words):
            fitted_to(write_store(tmp_path / f"{abs(hash(words))}.db", grid, memory), **options)

    refused("3 different samples are too few", {"batch_size": (8, 16, 32), "width": (32,)})
    refused("every parameter is the same in every run", {"batch_size": (8,), "width": (32,)})
    refused("must be greater than 0; one is -5", GRID, memory=lambda _: -5)
    refused("norm varies .* no number; .* --where norm=none", {**GRID, "norm": ("none", "batch")})
    refused("depth is 3 in every run", GRID, variables=["batch_size", "depth"])
    refused("did you mean batch_size", GRID, variables=["batchsize"])
    refused("share of runs to keep out", GRID, keep_out=1.0)
    refused("did you mean timeline", GRID, features="time line")
    with pytest.raises(BadInput, match="no finished run"):
        fitted_to(write_store(tmp_path / "one.db"), select=Selection(template="vgg"))


def test_runs_of_different_settings_are_not_mixed(tmp_path: Path) -> None:
    first = write_store(tmp_path / "first.db")
    other = replace(ENVIRONMENT, allocator="glibc 2.36 MALLOC_ARENA_MAX=1")
    second = write_store(tmp_path / "second.db", {**GRID, "width": (48, 96)}, environment=other)
    with pytest.raises(BadInput, match=r"under different settings .*MALLOC_ARENA_MAX"):
        fitted_to(first, second)
    grid = {"batch_size": (1, 2), "levels": (2, 3)}
    third = write_store(tmp_path / "third.db", grid, lambda _: MIB, template="unet2d")
    with pytest.raises(BadInput, match="are of mlp, unet2d; select one with --template"):
        fitted_to(first, third)
    assert fitted_to(first, third, select=Selection(template="mlp")).templates == ("mlp",)


def test_several_stores_are_one_table(tmp_path: Path) -> None:
    first = write_store(tmp_path / "first.db", {**GRID, "width": (32, 64)})
    second = write_store(tmp_path / "second.db", {**GRID, "width": (64, 128, 256)})
    assert len(fitted_to(first, second).rows) == 16, "the runs that both hold count once"


@pytest.mark.parametrize(
    ("job", "batch", "device", "words"),
    [
        ("template:vgg", 8, "cpu", "from runs of mlp; it tells nothing of vgg"),
        ("template:mlp,width=64,depth=7", 8, "cpu", "depth was 3 in every run .* nothing of 7"),
        ("template:mlp,width=64", 8, "a100-40gb", "from runs on cpu; it tells nothing of a100-40gb"),
        ("zoo:resnet50", 8, "cpu", "it takes template:mlp,NAME=VALUE"),
    ],
)
def test_what_the_runs_do_not_know_is_refused(file: Path, job: str, batch: int, device: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        estimate_by_equation(job, equation=file, batch_size=batch, device=device, coverage=0.9)


def test_estimate_inside_and_beyond_the_samples(file: Path) -> None:
    def at(width: int) -> Any:
        job = f"template:mlp,width={width}"
        return estimate_by_equation(job, equation=file, batch_size=100, device="cpu", coverage=0.95)

    inside, beyond = at(100), at(1000)
    assert inside.device_total == pytest.approx(300 * MIB + 4000 * 100 * 100, rel=2e-3)
    assert inside.low <= inside.device_total <= inside.high
    assert inside.coverage < 0.95
    assert not any("extrapolated" in sentence for sentence in inside.assumptions)
    assert inside.provenance["estimator"] == "equation"
    assert any("outside the hull of the samples" in sentence for sentence in beyond.assumptions)
    assert beyond.high / beyond.device_total > inside.high / inside.device_total
    with pytest.raises(BadInput, match="needs a fitted one: --equation FILE"):
        estimate_by_equation("template:mlp", equation=None, batch_size=8, device="cpu", coverage=0.9)


def test_figures_of_the_timeline_carry_to_another_template(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The made-up framework holds 1.5 times its tensors, whatever the network."""
    grid = {"batch_size": (8, 512), "width": (32, 64, 256, 512)}
    traces = {}

    def trace(template: str, parameters: Any, steps: int, device: str = "cpu") -> Any:
        place = parameters["batch_size"], parameters["width"]
        if place not in traces:
            traces[place] = case_trace(template, parameters, steps, device)
        return traces[place]

    def memory(parameters: Any) -> int:
        return round(100 * MIB + 1.5 * trace_features(trace("mlp", parameters, 2), "cpu")["tensors"])

    monkeypatch.setattr("oomcast.methods.equations.memory_equation.case_trace", trace)

    found = fitted_to(write_store(tmp_path / "runs.db", grid, memory), features="timeline", variables=["tensors"])
    path = write_equation(found, tmp_path / "any.json")
    job = "template:lstm,width=64"
    answer = estimate_by_equation(job, equation=path, batch_size=8, device="cpu", coverage=0.5)
    tensors = answer.device_total - answer.breakdown["gap"]
    assert answer.device_total == pytest.approx(100 * MIB + 1.5 * tensors, rel=0.01)
    assert any("learnt from mlp; this is another network" in sentence for sentence in answer.assumptions)
