from __future__ import annotations

import json
import os
import platform
import random
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from convolutions import RESNET_50, convolution

from lab.cudnn.shapes import draw
from oomcast.devices import find_gpu
from oomcast.files import cache_folder
from oomcast.simulate import DeviceFacts
from oomcast.simulate.cudnn import CudnnUnavailable, convolution_rules
from oomcast.simulate.cudnn import ask as ask_module
from oomcast.simulate.cudnn.ask import AnswerCache, Cudnn, key_of
from oomcast.simulate.cudnn.library import MACHINES, SOURCE, library_path, stub_name
from oomcast.simulate.cudnn.query import Query, query_of
from oomcast.simulate.cudnn.table import shipped_table
from oomcast.trace import Phase

with_cudnn = pytest.mark.skipif(library_path() is None, reason="cuDNN's libraries are not installed")
A100 = find_gpu("a100-40gb")


def resnet_query(number: int, kind: str = "conv_fprop") -> Query:
    found = query_of(convolution(kind, 32, *RESNET_50[number]))
    assert found is not None
    return found


def test_stubs_ship_for_each_machine_and_are_small() -> None:
    for machine in MACHINES:
        content = (SOURCE.parent / stub_name(machine)).read_bytes()
        assert content[:4] == b"\x7fELF"
        assert len(content) < 32_000


@pytest.mark.skipif(platform.machine() not in MACHINES or sys.platform != "linux", reason="no stub for this machine")
def test_the_stub_loads_and_knows_no_device() -> None:
    code = f"import ctypes; print(ctypes.CDLL({str(SOURCE.parent / stub_name(platform.machine()))!r}).cuInit(0))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "100"


def test_without_the_libraries_the_table_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_module, "library_path", lambda: None)
    monkeypatch.setattr(ask_module, "_system_has_it", lambda: False)
    ask_module.shared_cudnn.cache_clear()
    try:
        rules = convolution_rules(A100, (9, 20))
        assert rules.source_in_use() == "table (cudnn 9.20)"
        assert "not installed" in rules.note
        with pytest.raises(CudnnUnavailable, match="not installed"):
            convolution_rules(A100, (9, 20), source="cudnn")
    finally:
        ask_module.shared_cudnn.cache_clear()


def test_a_cudnn_that_is_too_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_module, "library_path", lambda: Path("libcudnn_graph.so.9"))
    monkeypatch.setattr(ask_module, "_installed_version", lambda: (9, 1))
    with pytest.raises(CudnnUnavailable, match=r"9\.8 is needed"):
        Cudnn()


def test_the_cache_keeps_and_shares(tmp_path: Path) -> None:
    one, other = AnswerCache(tmp_path), AnswerCache(tmp_path)
    assert one.get("a") is None
    one.put("a", (3, 2, 1))
    assert other.get("a") == (3, 2, 1)
    one.close()
    other.close()


def test_a_damaged_cache_is_made_anew(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path)
    cache.path.write_bytes(b"this is no database, and longer than one header" * 10)
    assert cache.get("a") is None
    cache.put("a", (1,))
    cache.close()
    assert AnswerCache(tmp_path).get("a") == (1,)


def test_a_cache_with_nonsense_in_it_knows_nothing(tmp_path: Path) -> None:
    cache = AnswerCache(tmp_path)
    cache.put("a", (1,))
    with sqlite3.connect(cache.path) as connection:
        connection.execute("UPDATE answers SET answer = 'x y'")
    connection.close()
    assert cache.get("a") is None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = AnswerCache(tmp_path / "file" / "folder")
    cache.put("a", (1,))
    assert cache.get("a") is None


def test_keys_tell_questions_apart() -> None:
    assert key_of((9, 20), {"a": 1, "b": 2}, True) == key_of((9, 20), {"b": 2, "a": 1}, True)
    assert key_of((9, 20), {}, True) != key_of((9, 20), {}, False)


def test_the_cache_folder_can_be_chosen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OOMCAST_CACHE_DIR", str(tmp_path))
    assert cache_folder() == tmp_path


@with_cudnn
def test_cudnn_answers_for_a_gpu_that_is_not_here(tmp_path: Path) -> None:
    cudnn = Cudnn(AnswerCache(tmp_path))
    try:
        answer = cudnn.ask(A100, resnet_query(2))
        assert answer is not None
        assert answer.plans[0] == 25_837_584
        assert answer.plans[-1] == 0
        assert answer.largest >= answer.plans[0]
        without = cudnn.ask(A100, resnet_query(2), tf32=False)
        assert without is not None
        assert without.plans[0] < answer.plans[0]
    finally:
        cudnn.close()


@with_cudnn
def test_a_second_process_reads_the_answer_from_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Cudnn(AnswerCache(tmp_path))
    answer = first.ask(A100, resnet_query(8))
    first.close()

    def no_worker() -> None:
        raise AssertionError("the libraries were loaded")

    monkeypatch.setattr(ask_module, "_Worker", no_worker)
    second = Cudnn(AnswerCache(tmp_path))
    assert second.ask(A100, resnet_query(8)) == answer
    second.close()


@with_cudnn
def test_a_worker_that_dies_is_replaced(tmp_path: Path) -> None:
    cudnn = Cudnn(AnswerCache(tmp_path))
    try:
        cudnn.start()
        worker = cudnn._worker
        assert worker is not None
        worker._process.kill()
        worker._process.wait()
        assert cudnn.ask(A100, resnet_query(8)) is not None
    finally:
        cudnn.close()


@with_cudnn
def test_a_shape_that_cannot_be_has_no_answer() -> None:
    cudnn = Cudnn()
    try:
        asked = resnet_query(2)
        assert cudnn.ask(A100, asked._replace(y=(32, 64, 99, 99))) is None
        assert cudnn.ask(A100, asked) is not None
    finally:
        cudnn.close()


@with_cudnn
@pytest.mark.parametrize("name", ["v100-16gb", "rtx-2080-ti", "a100-40gb", "rtx-3090", "h100-80gb", "b200"])
def test_table_and_cudnn_agree_on_resnet_50(name: str) -> None:
    gpu, table, cudnn = find_gpu(name), shipped_table(), Cudnn()
    agreed = total = 0
    try:
        for number in range(1, len(RESNET_50)):
            for kind in ("conv_fprop", "conv_dgrad", "conv_wgrad"):
                asked = resnet_query(number, kind)
                truth, said = cudnn.ask(gpu, asked), table.ask(gpu, asked)
                assert truth is not None
                assert said is not None
                total += 1
                agreed += abs(truth.plans[0] - said.plans[0]) <= 0.05 * truth.plans[0]
    finally:
        cudnn.close()
    assert agreed / total >= 0.8


@with_cudnn
def test_drawn_convolutions_can_be_asked(tmp_path: Path) -> None:
    cudnn, rng = Cudnn(), random.Random(1)
    try:
        answers = [cudnn.ask(A100, draw(rng, "dgrad", "float16", True)) for _ in range(20)]
    finally:
        cudnn.close()
    assert sum(answer is not None for answer in answers) >= 19


@with_cudnn
def test_the_worker_speaks_lines_of_json() -> None:
    question = json.dumps({"device": A100.cudnn_properties(), "tf32": True, "query": resnet_query(2)})
    source = Path(__file__).parents[3] / "src"
    done = subprocess.run(
        [sys.executable, "-m", "oomcast.simulate.cudnn.worker"],
        input=question + "\n",
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(source)},
    )
    hello, answer = map(json.loads, done.stdout.splitlines())
    assert hello["version"] >= 90800
    assert answer["plans"][0] == 25_837_584 or hello["version"] != 92000


@with_cudnn
def test_deterministic_jobs_have_no_kernels_that_sum_in_any_order() -> None:
    """Weights' gradients summed by atomics need no workspace: a deterministic job has no such last resort."""
    cudnn, gpu = Cudnn(), find_gpu("rtx-3060")
    query = Query("wgrad", (64, 64, 86, 86), (64, 64, 3, 3), (64, 64, 86, 86), False, "float32", (1, 1), (1, 1), (1, 1))
    try:
        of_all, fixed = (cudnn.ask(gpu, query, deterministic=wanted) for wanted in (False, True))
    finally:
        cudnn.close()
    assert of_all is not None
    assert fixed is not None
    assert of_all.plans[-1] == 0 < fixed.plans[-1]


@pytest.mark.parametrize("deterministic", [False, True])
def test_the_table_does_not_know_which_kernels_are_deterministic(deterministic: bool) -> None:
    rules = convolution_rules(A100, (9, 20), deterministic=deterministic, source="table")
    assert not rules.knows_deterministic_kernels
    call = convolution("conv_wgrad", 32, *RESNET_50[2])
    assert rules["conv_wgrad"](call, Phase.BACKWARD, DeviceFacts()) == convolution_rules(A100, (9, 20), source="table")[
        "conv_wgrad"
    ](call, Phase.BACKWARD, DeviceFacts())


@with_cudnn
def test_a_deterministic_job_gets_cudnns_own_answer_where_it_differs() -> None:
    call = convolution("conv_wgrad", 32, *RESNET_50[2])
    plain, fixed = (
        convolution_rules(A100, (9, 20), deterministic=wanted)["conv_wgrad"](call, Phase.BACKWARD, DeviceFacts())
        for wanted in (False, True)
    )
    asked = Cudnn()
    try:
        query = resnet_query(2, "conv_wgrad")
        differs = asked.ask(A100, query) != asked.ask(A100, query, deterministic=True)
    finally:
        asked.close()
    assert (plain != fixed) == differs
