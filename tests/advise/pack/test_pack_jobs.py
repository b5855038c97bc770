"""Job lists and cards as people write them, and every mistake told in a sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("numpy")

from oomcast.advise.pack import items_of, parse_cards, read_jobs
from oomcast.errors import BadInput, UnreadableFile
from oomcast.units import GiB

GIVEN = '[[job]]\nname = "a"\ndevice_total = "4GiB"\n'


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    return path


def test_cards_are_counted_by_kind() -> None:
    cards = parse_cards("2xa100-40gb, rtx3090, 1 x A100-40GB")
    assert [card.name for card in cards] == ["a100-40gb/0", "a100-40gb/1", "a100-40gb/2", "rtx-3090/0"]
    assert cards[0].usable > cards[3].usable


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "cannot read"),
        ("4xa100-40gb,,t4", "cannot read"),
        ("0xa100-40gb", "at least one"),
        ("-2xa100-40gb", "at least one"),
        ("4xa1000", "unknown device"),
        ("9999xa100-40gb", "more than the 4096"),
    ],
)
def test_wrong_cards_are_told(text: str, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        parse_cards(text)


def test_a_list_is_read_whole(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("")
    listed = read_jobs(
        written(
            tmp_path,
            """
gpus = "2xa100-40gb"
risk = 0.01
max_per_gpu = 3
[[job]]
name = "sweep"
job = "own.py"
batch_size = 8
precision = "amp-bf16"
count = 2
[[job]]
name = "old"
device_total = "4GiB"
low = "3GiB"
high = 6_000_000_000
duration = 60
arrival = 0.5
truth = "4.1GiB"
device = "A100-40GB"
[[job]]
name = "two-opinions"
[job.estimates.simulator]
device_total = "4GiB"
[job.estimates.horus]
device_total = "9GiB"
low = "9GiB"
high = "9GiB"
""",
        )
    )
    assert (listed.gpus, listed.risk, listed.max_per_gpu) == ("2xa100-40gb", 0.01, 3)
    first, second, old, two = listed.jobs
    assert (first.name, second.name) == ("sweep#1", "sweep#2")
    assert first.job == str(tmp_path / "own.py") == first.group == second.group
    assert first.options == {"batch_size": 8, "precision": "amp-bf16"}
    assert (old.duration, old.arrival, old.truth, old.device) == (60.0, 0.5, round(4.1 * GiB), "a100-40gb")
    assert old.given["given"].total == 4 * GiB
    assert set(two.given) == {"simulator", "horus"}
    cards = parse_cards("a100-40gb")
    assert items_of([two], cards, estimator="horus")[0].demands["a100-40gb"].total == 9 * GiB
    with pytest.raises(BadInput, match="choose one with --estimator: simulator, horus"):
        items_of([two], cards)
    with pytest.raises(BadInput, match="no estimate by 'other'"):
        items_of([two], cards, estimator="other")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = ", "not a TOML file"),
        ("", "has no job"),
        ("job = 3", "has no job"),
        (GIVEN + "color = 1", "unknown key 'color'"),
        ("gpu = 'a100'\n" + GIVEN, "unknown key 'gpu'; did you mean gpus"),
        (GIVEN + GIVEN, "two jobs called 'a'"),
        ('[[job]]\ndevice_total = "4GiB"', "has no name"),
        ('[[job]]\nname = "a"', "neither a job to estimate nor a device_total"),
        (GIVEN + 'job = "zoo:resnet50"\nbatch_size = 1', "both a job and an estimate"),
        (GIVEN + "batch_size = 4", "says nothing where the estimate is given"),
        ('[[job]]\nname = "a"\njob = "zoo:resnet50"', "no batch_size"),
        ('[[job]]\nname = "a"\njob = "zoo:resnet50"\nbatch_size = "8"', "must be a whole number"),
        ('[[job]]\nname = "a"\njob = "zoo:resnet50"\nbatch_size = true', "must be a whole number"),
        (GIVEN + 'device = "a1000"', "unusable device: unknown device"),
        (GIVEN + "duration = -1", "must not be negative"),
        (GIVEN + "duration = 0", "duration of 0"),
        (GIVEN + "duration = nan", "must not be negative"),
        (GIVEN + "arrival = -0.1", "must not be negative"),
        (GIVEN + 'truth = "many"', "job 'a': truth: cannot read 'many' as a size"),
        (GIVEN + "truth = -4", "must be a size"),
        (GIVEN + "count = 0", "count: must be a whole number from 1 to 100000"),
        (GIVEN + "count = 99999999999", "count: must be a whole number from 1 to 100000"),
        (GIVEN + 'low = "3GiB"', "both low and high"),
        (GIVEN + 'low = "5GiB"\nhigh = "6GiB"', "contradict each other"),
        (GIVEN + 'low = "3GiB"\nhigh = "6GiB"\ncoverage = 2', "between 0 and 1"),
        ('[[job]]\nname = "a"\nlow = 3\nhigh = 4', "no device_total"),
        ('[[job]]\nname = "a"\nestimates = 3', "not tables"),
        ("risk = -1\n" + GIVEN, "must not be negative"),
        ("max_per_gpu = 0\n" + GIVEN, "at least 1"),
    ],
)
def test_every_mistake_is_told_with_its_file(tmp_path: Path, text: str, told: str) -> None:
    path = written(tmp_path, text)
    with pytest.raises(UnreadableFile, match=told) as caught:
        read_jobs(path)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="cannot be read"):
        read_jobs(tmp_path / "nothing.toml")


def test_a_job_bound_to_a_card_that_is_not_there(tmp_path: Path) -> None:
    listed = read_jobs(written(tmp_path, GIVEN + 'device = "t4"'))
    with pytest.raises(BadInput, match="may run on t4 only, which is not among the GPUs: a100-40gb"):
        items_of(listed.jobs, parse_cards("a100-40gb"))


def test_the_example_can_be_read() -> None:
    listed = read_jobs(Path(__file__).parents[3] / "examples" / "sharing" / "jobs.toml")
    assert [one.name for one in listed.jobs] == ["resnet#1", "resnet#2", "resnet#3", "gpt", "own", "seen-before"]
    assert listed.jobs[4].job is not None
    assert Path(listed.jobs[4].job).is_file()
