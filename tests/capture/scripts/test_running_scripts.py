"""Whole scripts on the virtual GPU: what they hold, and what they may ask of it."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from small_script import PARAMETERS, START, run

import oomcast
from oomcast.estimation import Verdict
from oomcast.trace import Ending

MiB = 1 << 20


def test_an_endless_loop_is_stopped_when_its_peak_repeats(tmp_path: Path) -> None:
    answer = run(tmp_path, "while True:\n    step()\n")
    assert answer.verdict is Verdict.FITS
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY
    assert answer.script.not_seen == ("evaluation", "checkpoint saving")
    assert answer.breakdown["optimizer_state"] >= 2 * PARAMETERS
    assert {"forward", "backward", "optimizer"} <= set(answer.highest_by_phase)


def test_arguments_folder_and_environment_are_the_scripts_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WIDTH", "256")
    (tmp_path / "helper.py").write_text("HEIGHT = 512\n")
    body = """
    import os, sys
    from helper import HEIGHT
    assert __name__ == "__main__" and sys.modules["__main__"].START
    assert os.path.samefile(os.getcwd(), os.path.dirname(os.path.abspath(__file__)))
    big = torch.empty(int(sys.argv[1]), int(os.environ["WIDTH"]), HEIGHT, device="cuda")
    """
    answer = run(tmp_path, body, "7", start="import torch\nSTART = True\n")
    assert answer.peak_allocated == 7 * 256 * 512 * 4
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED


def test_two_optimizers_and_an_update_by_hand_are_steps(tmp_path: Path) -> None:
    gan = """
    other = nn.Linear(1024, 2048).cuda()
    second = torch.optim.SGD(other.parameters(), momentum=0.9)
    while True:
        step()
        other(torch.randn(8, 1024, device="cuda")).mean().backward()
        second.step()
        second.zero_grad()
    """
    answer = run(tmp_path, gan)
    assert answer.script is not None
    assert answer.script.ending is Ending.STEADY
    assert answer.script.optimizer_steps % 2 == 0
    by_hand = """
    while True:
        model(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.1)
            parameter.grad = None
    """
    answer = run(tmp_path, by_hand)
    assert answer.verdict is Verdict.FITS
    assert answer.breakdown["optimizer_state"] == 0


def test_a_step_that_keeps_memory_is_told(tmp_path: Path) -> None:
    body = """
    kept = []
    while True:
        step()
        kept.append(torch.empty(1 << 20, device="cuda"))
    """
    answer = run(tmp_path, body, max_steps=8)
    assert answer.script is not None
    assert answer.script.ending is Ending.MAX_STEPS
    assert "something keeps the memory" in answer.script.reason


def test_settings_of_the_script_are_heeded(tmp_path: Path) -> None:
    body = """
    import os
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    torch.backends.cudnn.benchmark = True
    step(); step()
    """
    answer = run(tmp_path, body)
    told = "\n".join(answer.assumptions)
    assert "the job sets torch.backends.cudnn.benchmark" in told
    assert "the job sets the allocator to 'expandable_segments:True'" in told


def test_data_that_a_script_makes_are_real(tmp_path: Path) -> None:
    body = """
    numbers = torch.rand(3000, 1024)
    assert len(set(numbers[:, 0].tolist())) > 2000
    marks = torch.zeros(3000, 1024)
    for row in range(3000):
        marks[row, row % 1024] = numbers[row, 0]
    assert (marks.sum(1) == numbers[:, 0]).all()
    step(); step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_the_largest_samples_are_run_first(tmp_path: Path) -> None:
    body = """
    from torch.nn.utils.rnn import pad_sequence
    from torch.utils.data import DataLoader
    data = [torch.zeros(length, 1024) for length in [8] * 90 + [512, 256] + [8] * 8]
    first = True
    for x in DataLoader(data, batch_size=2, collate_fn=lambda rows: pad_sequence(rows, batch_first=True)):
        if first:
            assert x.shape == (2, 512, 1024), x.shape
        first = False
        optimizer.zero_grad()
        model(x.cuda()).square().mean().backward()
        optimizer.step()
    """
    answer = run(tmp_path, body, worst_batch=True)
    assert answer.script is not None
    assert answer.script.ending is not Ending.FAILED, answer.script.reason
    (sentence,) = answer.script.batches
    assert "100 samples have 8,192 values (median)" in sentence
    assert "524,288 (largest)" in sentence


def test_memory_counters_tell_a_script_what_it_holds(tmp_path: Path) -> None:
    body = """
    step(); step()
    assert torch.cuda.max_memory_allocated() > 8 << 20
    free, total = torch.cuda.mem_get_info()
    assert 0 < free < total
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_a_virtual_gpu_gives_an_estimate() -> None:
    torch = pytest.importorskip("torch")
    with oomcast.virtual_gpu("a100-40gb") as gpu:
        held = torch.empty(1 << 20, device="cuda")
        answer = gpu.estimate()
        del held
    assert answer.peak_allocated == 4 * MiB
    assert answer.device == "a100-40gb"


def test_parameters_seen_in_inference_mode_are_views_like_any_other(tmp_path: Path) -> None:
    body = """
    step(); step()
    with torch.inference_mode():
        weight = model[0].weight
        assert not weight.detach().is_inference() and (weight[:1] + 1).is_inference()
        copies = {name: value.clone() for name, value in model.state_dict().items()}
    step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


@pytest.mark.parametrize("start", ["torchrun --nproc_per_node 1", "python"])
def test_a_process_group_of_one(tmp_path: Path, start: str) -> None:
    (tmp_path / "train.py").write_text(
        START
        + textwrap.dedent("""
        import os, torch.distributed as dist, torch.multiprocessing as mp
        def main(rank):
            os.environ.setdefault("MASTER_ADDR", "localhost")
            dist.init_process_group("nccl", rank=rank, world_size=1)
            global model
            model = nn.parallel.DistributedDataParallel(model, device_ids=[rank])
            step(); step()
            dist.destroy_process_group()
        if "RANK" in os.environ:
            main(0)
        else:
            mp.spawn(main, nprocs=torch.cuda.device_count())
        """)
    )
    answer = oomcast.run(f"{start} {tmp_path}/train.py", device="a100-40gb")
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert answer.script.optimizer_steps == 2


def test_models_and_optimizers_that_a_script_drops_are_not_kept(tmp_path: Path) -> None:
    """Folds of a cross-validation, runs of a search: each model goes before the next comes."""
    body = """
    def fold():
        model = nn.Linear(2048, 2048).cuda()
        optimizer = torch.optim.Adam(model.parameters())
        for _ in range(2):
            model(torch.randn(16, 2048, device="cuda")).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            model(torch.randn(16, 2048, device="cuda"))
    for _ in range(int(sys.argv[1])):
        fold()
    """
    start = "import sys, torch\nfrom torch import nn\n"
    one, many = (run(tmp_path, body, folds, start=start) for folds in ("1", "5"))
    assert many.script is not None
    assert many.script.ending is Ending.FINISHED, many.script.reason
    assert many.peak_allocated <= one.peak_allocated * 1.3, "two at a time at most, not five"


def test_small_sparse_matrices_are_followed(tmp_path: Path) -> None:
    body = """
    for _ in range(3):
        places = torch.randint(0, 64, (2, 200))
        graph = torch.sparse_coo_tensor(places, torch.ones(200), (64, 64)).to("cuda")
        torch.spmm(graph, model(torch.randn(64, 1024, device="cuda"))).mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert answer.script.optimizer_steps == 3


def test_chosen_classes_are_as_many_as_there_are(tmp_path: Path) -> None:
    """Metrics check that predictions have no more different values than there are classes."""
    body = """
    chosen = model(torch.randn(640, 1024, device="cuda"))[:, :10].argmax(dim=1)
    assert len(torch.unique(chosen)) <= 10
    assert len(torch.unique(chosen.cpu().reshape(32, 20))) <= 10
    assert len(torch.unique(chosen[:4])) <= 4
    step(); step()
    """
    answer = run(tmp_path, body)
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason


def test_a_data_set_made_anew_for_each_epoch_is_told_of_once(tmp_path: Path) -> None:
    body = """
    from torch.utils.data import DataLoader, TensorDataset
    for _ in range(2):
        for (x,) in DataLoader(TensorDataset(torch.randn(8, 1024)), 4):
            model(x.cuda()).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    """
    answer = run(tmp_path, body, synthetic_data=True)
    assert answer.script is not None
    assert len(answer.script.batches) == 1, answer.script.batches


def test_what_is_saved_with_its_data_can_be_read_again(tmp_path: Path) -> None:
    body = """
    import os
    os.makedirs("prepared")
    torch.save({"x": torch.arange(4)}, "prepared/data.pt")
    assert torch.load("prepared/data.pt")["x"].tolist() == [0, 1, 2, 3]
    with open("prepared/data.pt", "rb") as file:
        assert file.read(2) == b"PK"
    step(); step()
    torch.backends.cudnn.allow_tf32 = False
    """
    answer = run(tmp_path, body)
    assert not Path("prepared").exists()
    assert answer.script is not None
    assert answer.script.ending is Ending.FINISHED, answer.script.reason
    assert any("TF32" in sentence for sentence in answer.assumptions)


def test_a_script_has_a_terminal_and_may_trace_its_model(tmp_path: Path) -> None:
    """Progress bars ask `stty` for a width, and TensorBoard traces the model for its picture."""
    answer = run(
        tmp_path,
        """
        import os
        rows, columns = os.popen("stty size", "r").read().split()
        assert (rows, columns) == ("24", "80")
        traced = torch.jit.trace(model, torch.randn(64, 1024, device="cuda"))
        assert list(traced.state_dict()) == list(model.state_dict()) and not list(traced.graph.nodes())
        on_host = torch.jit.trace(lambda x: x + 1, torch.ones(2))
        assert on_host(torch.ones(2)).tolist() == [2.0, 2.0]
        for _ in range(4):
            step()
        """,
    )
    assert answer.script is not None
    assert answer.script.optimizer_steps >= 3
    assert answer.script.ending is not Ending.FAILED
    assert any("torch.jit.trace" in sentence for sentence in answer.assumptions)
