"""Equations from and to plain tables, beside other regressions; the published search tells how far it is."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from equation_builder import write_store
from oomcast.cli import main
from oomcast.errors import BadInput, UnreadableFile
from oomcast.methods.equations import EquationRow, read_equation
from oomcast.methods.equations.analytic import as_printed
from oomcast.methods.equations.comparison import compare, methods_for
from oomcast.methods.equations.symbolic import SearchConfig, SearchState, SymbolicRegression
from oomcast.methods.equations.tables import read_samples, read_table, write_table

pytest.importorskip("pyoperon")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_store(tmp_path_factory.mktemp("runs") / "runs.db")


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_runs_become_a_table_and_the_table_the_same_equation(
    store: Path, tmp_path: Path, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    table, by_store, by_table = tmp_path / f"runs.{ending}", tmp_path / "store.json", tmp_path / "table.json"
    assert main(["equation", "samples", str(store), "--output", str(table)]) == 0
    assert "16 runs" in capsys.readouterr().out
    assert main(["equation", "fit", str(store), "--output", str(by_store)]) == 0
    assert main(["equation", "fit", str(table), "--output", str(by_table)]) == 0
    assert "root mean squared error" in capsys.readouterr().out
    one, other = read_equation(by_store), read_equation(by_table)
    assert other.equation.text() == one.equation.text()
    assert (other.templates, other.framework, other.device, other.steps) == (("mlp",), "torch", "cpu", 2)
    assert other.fixed == one.fixed
    assert other.environment["memory"] == one.environment["memory"] > 0, "else nothing would fit the machine"
    points = tmp_path / f"points.{ending}"
    write_table([{"batch_size": 8, "width": 32}, {"batch_size": 200, "width": 100}], points)
    assert main(["equation", "predict", str(by_table), "--table", str(points), "--output", str(table)]) == 0
    told = read_table(table)
    assert [row["width"] for row in told] == [32, 100]
    assert told[1]["total"] == one.at({"batch_size": 200, "width": 100})
    assert told[0]["low"] <= told[0]["total"] <= told[0]["will_not_exceed"]


def test_a_table_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table, output = tmp_path / "mine.csv", tmp_path / "mine.json"
    with table.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["batch", "length", "note", "gpu_bytes"])
        writer.writerows([b, n, "a run", 5e8 + 3000 * b * n] for b in (1, 2, 4, 8) for n in (128, 256, 512))
    assert main(["equation", "fit", str(table), "--output", str(output)]) == 2
    assert "column that was measured, one of batch, length, note, gpu_bytes" in capsys.readouterr().err
    assert main(["equation", "fit", str(table), "--target", "gpu_bytes", "--output", str(output), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["names"]) == {"batch", "length"}
    assert found["metrics"]["training"]["worst"] < 0.001
    assert found["metrics"]["training"]["r2"] > 0.999
    assert main(["equation", "predict", str(output), "batch=16", "length=512", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["total"] == pytest.approx(5e8 + 3000 * 16 * 512, rel=0.01)


def test_tables_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("a,a\n1,2\n")
    with pytest.raises(UnreadableFile, match="names of their own"):
        read_table(path)
    path.write_text("a,b\n1\n")
    with pytest.raises(UnreadableFile, match="not as many cells"):
        read_table(path)
    path.write_text("a,peak_bytes\n1,-3\n")
    with pytest.raises(BadInput, match=r"row 1 .* has no peak_bytes above 0"):
        read_samples(path)
    path.write_text("device,peak_bytes\ncpu,3\na100-40gb,4\n")
    with pytest.raises(BadInput, match="different devices"):
        read_samples(path)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(UnreadableFile, match="as a table"):
        read_table(tmp_path / "bad.parquet")
    with pytest.raises(BadInput, match="ends in"):
        write_table([{"a": 1}], tmp_path / "table.txt")


def _row(number: int, template: str = "unet3d") -> EquationRow:
    edge, batch_size = 16 * (1 + number % 4), 1 + number // 4
    return EquationRow(
        str(number), template, {"edge": edge, "batch_size": batch_size}, {}, round(4e8 + 1000 * batch_size * edge**3)
    )


def test_methods_are_compared_on_the_same_splits_and_what_was_done_is_kept(tmp_path: Path) -> None:
    rows, kept, told = [_row(number) for number in range(16)], tmp_path / "kept.json", []
    methods = ["symbolic", "linear", "extra trees", "analytic, as printed"]
    found = compare(rows, methods=methods, splits=2, kept=kept, tell=lambda words, done, total: told.append(words))
    assert len(told) == 8
    assert found.median("symbolic") < 0.01 < found.median("linear")
    assert found.median("analytic, as printed") == pytest.approx(
        sum(split.error for split in found.splits["analytic, as printed"]) / 2
    )
    assert as_printed(32, 2) > 32**3 * 2 * 1000
    told.clear()
    assert compare(rows, methods=methods, splits=3, kept=kept, tell=lambda words, done, total: told.append(words))
    assert len(told) == 4  # the third split alone
    others = [replace(row, template="vgg") for row in rows]
    assert "analytic, rebuilt" not in methods_for(others, None)
    with pytest.raises(BadInput, match="unet3d"):
        methods_for(others, ["analytic, rebuilt"])
    with pytest.raises(BadInput, match="too few to compare"):
        compare(rows[:5])


def test_a_method_that_needs_more_runs_is_left_out_and_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """14 of 20 runs are enough for an equation; 7, for the method that learns from half of them, are not."""
    path = tmp_path / "runs.csv"
    rows = [_row(number) for number in range(20)]
    write_table([{**row.parameters, "bytes": row.measured} for row in rows], path)
    words = ["equation", "compare", str(path), "--target", "bytes", "--splits", "1", "--methods"]
    assert main([*words, "symbolic; symbolic, half of the training runs"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "symbolic, half of the training runs is left out: 7 different samples are too few" in told
    assert main([*words, "symbolic, half of the training runs"]) == 2
    assert "too few to compare methods on" in capsys.readouterr().err


def test_an_equation_of_a_plain_table_says_how_it_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, fitted = tmp_path / "runs.csv", tmp_path / "mine.json"
    write_table([{**_row(number).parameters, "bytes": _row(number).measured} for number in range(16)], path)
    assert main(["equation", "fit", str(path), "--target", "bytes", "--output", str(fitted)]) == 0
    told = capsys.readouterr().out
    assert "unknown" not in told
    assert "oomcast equation predict" in told
    assert "--estimator" not in told, "an estimator needs the template and the device of the runs"


def test_an_estimator_refuses_runs_of_a_machine_whose_memory_is_not_told(
    store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, fitted = tmp_path / "runs.csv", tmp_path / "runs.json"
    assert main(["equation", "samples", str(store), "--output", str(table)]) == 0
    write_table([{n: v for n, v in row.items() if n != "machine_memory"} for row in read_table(table)], table)
    assert main(["equation", "fit", str(table), "--output", str(fitted)]) == 0
    words = ["estimate", "template:mlp,features=64,depth=3,width=64", "--batch-size", "16", "--device", "cpu"]
    assert main([*words, "--estimator", "equation", "--equation", str(fitted)]) == 2
    assert "add a column machine_memory" in capsys.readouterr().err


def test_compare_by_command(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["equation", "compare", str(store), "--splits", "1", "--methods", "symbolic; linear", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["symbolic", "linear"]
    assert found["symbolic"]["splits"][0]["equation"]
    assert main(["equation", "compare", str(store), "--splits", "1", "--methods", "magic"]) == 2
    assert "There are symbolic" in capsys.readouterr().err


def _published(**settings: object) -> tuple[SymbolicRegression, list[SearchState]]:
    pytest.importorskip("deap")
    rows = [[float(a), float(b)] for a in (1, 2, 4, 8) for b in (3, 5, 9)]
    states: list[SearchState] = []
    stop_at = settings.pop("stop_at", 10_000)

    def watch(state: SearchState) -> bool:
        states.append(state)
        return state.generation < stop_at  # type: ignore[operator]

    config = replace(SearchConfig.published(), population=20, **{"generations": 12, **settings})
    found = SymbolicRegression(config=config).fit(rows, [100 + 7 * a * b for a, b in rows], ["a", "b"], watch)
    return found, states


def test_the_published_search_tells_its_progress_stops_early_and_when_asked() -> None:
    whole, states = _published()
    assert [state.generation for state in states] == list(range(1, 13))
    errors = [state.error for state in states]
    assert errors == sorted(errors, reverse=True)
    stopped, states = _published(stop_at=3)
    assert len(states) == 3
    assert stopped.equation_.text()
    _, states = _published(patience=2, generations=200)
    assert len(states) < 200
    squares, states = _published(metric="rmse")
    assert squares.equation_.text()
    assert len(states) == 12
    assert whole.cv_error_ >= 0


def test_settings_of_the_published_search_are_its_own() -> None:
    with pytest.raises(ValueError, match="patience"):
        SearchConfig(patience=3)
    with pytest.raises(ValueError, match="mape alone"):
        SearchConfig(metric="rmse")
    with pytest.raises(ValueError, match="must be one of mape, mse, rmse"):
        SearchConfig(engine="deap", metric="median")
