"""Only the GPU is virtual: data code runs on real tensors, in this process, in workers and in threads."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.data import DataLoader, Dataset, TensorDataset

import oomcast

GPU = "a100-40gb"


class _Images(Dataset[Any]):
    """Above 4 MiB each, so that batches of them are larger than what stays real elsewhere."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        image = torch.full((3, 640, 640), float(index))
        return image, type(image) is torch.Tensor and not torch._C._len_torch_dispatch_stack(), os.getpid()


@pytest.mark.parametrize("options", [{}, {"num_workers": 1, "pin_memory": True}], ids=["here", "worker"])
def test_large_batches_are_real_and_cost_the_gpu_only_their_copy(options: dict[str, Any]) -> None:
    with oomcast.virtual_gpu(GPU) as gpu:
        for number, (images, plain, processes) in enumerate(DataLoader(_Images(), batch_size=2, **options)):
            assert type(images) is torch.Tensor
            assert images[:, 0, 0, 0].tolist() == [2.0 * number, 2.0 * number + 1]
            assert images.is_pinned() == bool(options)
            if options:
                assert plain.all()
                assert processes[0] != os.getpid()
            on_gpu = images.to("cuda", non_blocking=True)
            assert torch.cuda.memory_allocated() == on_gpu.numel() * 4
            del on_gpu
        assert not gpu.trace().assumptions


def test_a_data_set_too_large_to_be_made_passes_through_workers() -> None:
    with oomcast.virtual_gpu(GPU):
        data = TensorDataset(torch.randn(50_000, 3, 64, 64), torch.arange(50_000))
        images, labels = next(iter(DataLoader(data, batch_size=8, num_workers=1)))
        assert isinstance(images, FakeTensor)
        assert images.shape == (8, 3, 64, 64)
        assert labels.tolist() == list(range(8))
        assert images.cuda().is_cuda


def _in_child(queue: Any) -> None:
    queue.put((torch.cuda.is_available(), type(nn.Linear(2, 2).weight) is nn.Parameter, torch.ones(3).sum().item()))


def test_forks_are_plain_torch_again() -> None:
    context = multiprocessing.get_context("fork")
    available = torch.cuda.is_available()
    with oomcast.virtual_gpu(GPU):
        queue = context.SimpleQueue()
        child = context.Process(target=_in_child, args=(queue,))
        child.start()
        assert queue.get() == (available, True, 3.0)
        child.join()
        assert torch.cuda.is_available()
        assert nn.Linear(2, 2).cuda().weight.is_cuda


def test_operators_that_depend_on_values_run_on_large_host_tensors() -> None:
    with oomcast.virtual_gpu(GPU):
        mask = torch.from_numpy(__import__("numpy").eye(3000, dtype="uint8"))  # 9 MB, real
        assert mask.nonzero().shape == (3000, 2)
        scaled = mask.float() / 255
        assert type(scaled) is torch.Tensor
        assert torch.stack([scaled, scaled]).sum().item() == pytest.approx(2 * 3000 / 255)


def test_sparse_tensors_of_the_host_are_real() -> None:
    with oomcast.virtual_gpu(GPU):
        graph = torch.sparse_coo_tensor(
            torch.tensor([[0, 5], [1, 70_000]]), torch.ones(2), (100_000, 100_000), check_invariants=False
        )
        assert graph.coalesce().values().sum().item() == 2


def test_what_grows_out_of_little_on_the_host_stays_virtual() -> None:
    with oomcast.virtual_gpu(GPU):
        positions = torch.arange(200_000)
        assert isinstance(positions[:, None] - positions[None, :], FakeTensor)  # 320 GB
        assert isinstance(torch.empty(200_000, 200_000), FakeTensor)


def test_loops_of_the_host_do_not_pass_the_recorder() -> None:
    with oomcast.virtual_gpu(GPU) as gpu:
        rows, marks = torch.rand(64, 8), torch.zeros(64)
        before = gpu.recorder.streams.launches
        for number in range(64):
            marks[number] = rows[number, 3] + rows[number].mean() * 2
        total = torch.stack(list(marks)).sum().item()
        assert gpu.recorder.streams.launches == before
        assert total == pytest.approx((rows[:, 3] + rows.mean(1) * 2).sum().item(), rel=1e-4)
        assert isinstance(torch.zeros(2000, 1).expand(2000, 4000).clone(), FakeTensor)
        assert isinstance(rows.repeat(400, 400), FakeTensor)
        assert (rows.to("cuda") + marks.cuda()[:, None]).is_cuda
        with pytest.raises(RuntimeError, match="two devices"):
            rows + marks.cuda()[:, None]
