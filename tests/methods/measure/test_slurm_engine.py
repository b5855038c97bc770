"""Cases as job arrays of a real Slurm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from measure_cases import python_case

from oomcast.errors import BadInput
from oomcast.methods.measure import Conditions, Limits, Outcome, Store, engines, run_campaign
from slurm_cluster import running_slurm, slurm_is_there

PLAIN = "held = bytearray({size} << 20)\nheld[::4096] = b'x' * len(held[::4096])\n"


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with running_slurm(tmp_path_factory.mktemp("slurm")) as folder:
        yield folder


@slurm_is_there
def test_an_array_measures_every_case(slurm: Path, tmp_path: Path) -> None:
    cases = [python_case(PLAIN.format(size=size), size=size) for size in (20, 60, 100)]
    conditions = Conditions(Limits(60, 500 << 20))
    with Store.open(tmp_path / "store.db") as store:
        assert run_campaign(cases, store, engines.SlurmEngine(tmp_path), conditions=conditions) == 3
        peaks = {one.case.parameters["size"]: one.peak_bytes for one in store.measurements()}
        assert {one.outcome for one in store.measurements()} == {Outcome.OK}
        # What is done is not done again, also not by another engine.
        assert run_campaign(cases, store, conditions=conditions) == 0
    assert 35 << 20 < peaks[100] - peaks[60] < 45 << 20
    assert 35 << 20 < peaks[60] - peaks[20] < 45 << 20
    assert not list(tmp_path.glob("oomcast-slurm-*")), "the exchange folder is removed"


@slurm_is_there
def test_a_case_beyond_its_limit_and_one_that_fails_are_told(slurm: Path, tmp_path: Path) -> None:
    cases = [python_case(PLAIN.format(size=400), size=400), python_case("raise ValueError('no')", size=0)]
    with Store.open(tmp_path / "store.db") as store:
        run_campaign(cases, store, engines.SlurmEngine(tmp_path), conditions=Conditions(Limits(60, 100 << 20)))
        told = {one.case.parameters["size"]: one for one in store.measurements()}
    assert told[400].outcome is Outcome.OOM
    assert told[0].outcome is Outcome.CRASH
    assert "ValueError: no" in told[0].message


@slurm_is_there
def test_what_slurm_refuses_is_one_sentence(slurm: Path, tmp_path: Path) -> None:
    engine = engines.SlurmEngine(tmp_path, ("--partition=nowhere",))
    with Store.open(tmp_path / "store.db") as store:
        with pytest.raises(BadInput, match=r"Slurm refused the cases: .*partition"):
            run_campaign([python_case("pass", size=1)], store, engine)
        assert store.status("test").open == 1, "the case is given back"


def test_without_slurm_there_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with (
        Store.open(tmp_path / "store.db") as store,
        pytest.raises(BadInput, match="the engine slurm needs sbatch, which is not on the PATH"),
    ):
        run_campaign([python_case("pass", size=1)], store, engines.SlurmEngine(tmp_path))
