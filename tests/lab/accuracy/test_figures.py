"""The figures that come with oomcast: few, cited, and read back as the cases they were."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from importlib import resources
from pathlib import Path

import pytest
from case_builder import make_case

from lab.accuracy import Case, read_figures
from lab.accuracy.decoder_jobs import SHAPES, DecoderJob, Lora
from lab.accuracy.figures import FILE, MOST_ROWS, Figure, Source, figures_to_json, sources
from lab.accuracy.figures.form import case_from_json, case_to_json
from lab.accuracy.figures.make import quote
from oomcast.spec import Workload
from oomcast.units import GiB

GROUNDTRUTH = Path(
    os.environ.get("OOMCAST_GROUNDTRUTH", Path(__file__).resolve().parents[3].parent / "shared" / "groundtruth")
)


def cases() -> list[Case]:
    return [case for one in read_figures() for case in one.cases]


def test_at_most_200_figures_each_with_its_citation() -> None:
    told = json.loads(resources.files("lab.accuracy.figures").joinpath(FILE).read_text(encoding="utf-8"))
    assert len(told["rows"]) == len(cases()) <= MOST_ROWS
    known = sources()
    assert {row["source"] for row in told["rows"]} == set(known)
    for source in known.values():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", source.repository)
        assert re.fullmatch(r"[0-9a-f]{40}", source.commit)
        assert source.file


def test_every_figure_can_be_what_its_gpu_shows() -> None:
    for case in cases():
        assert case.measured is None or 0.2 * GiB < case.measured < 81 * GiB, case.name
    assert any(not case.ran for case in cases())


def test_a_case_survives_its_form() -> None:
    for case in cases():
        assert case_from_json(json.loads(json.dumps(case_to_json(case)))) == case


def test_a_decoder_with_lora_and_a_named_job_have_a_form() -> None:
    job = DecoderJob(SHAPES["phi-2"], 512, Lora(8, 0.1, keys=True))
    plain = make_case(1, "a", GiB)
    case = replace(plain, workload=Workload.create(job, batch_size=2, precision="amp-bf16"))
    for one in (plain, case):
        assert case_from_json(json.loads(json.dumps(case_to_json(one)))) == one


def test_a_source_must_be_complete_and_the_table_small() -> None:
    with pytest.raises(ValueError, match="names its repository"):
        Source("a/b", "", "c")
    source = Source("a/b", "c", "d")
    many = [Figure(make_case(i, "a", GiB), source, "") for i in range(MOST_ROWS + 1)]
    with pytest.raises(ValueError, match="at most 200"):
        figures_to_json(many)
    assert len(figures_to_json(many[:3])["sources"]) == 1


@pytest.mark.groundtruth
@pytest.mark.skipif(not GROUNDTRUTH.is_dir(), reason=f"no measurements under {GROUNDTRUTH}")
def test_the_table_is_what_the_measurements_say() -> None:
    assert [figure.case for figure in quote(GROUNDTRUTH)] == cases()
