"""Small job files of the kinds that people write: what each is about, and its source.

Those of `RUNS` must give a figure. Those of `REFUSED` must end in one sentence that contains the given words.
"""

from __future__ import annotations

__all__ = ["PRELUDE", "REFUSED", "RUNS"]

PRELUDE = """
import contextlib, copy, io, math, os
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

def model():
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))

def batch(batch_size):
    return torch.randn(batch_size, 32), torch.randint(0, 8, (batch_size,))

def loss(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y)

class Images(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return torch.rand(3, 64, 64), index % 8

def convnet():
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 8))
"""

RUNS: dict[str, str] = {
    "record_stream": """
def loss(model, batch):
    x, y = batch
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = x * 2
        x.record_stream(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_stream(side)
    x.record_stream(torch.cuda.default_stream())
    return F.cross_entropy(model(x), y)
""",
    "prefetcher_on_a_side_stream": """
def batches(batch_size):
    side = torch.cuda.Stream()
    ahead = None
    for step in range(6):
        with torch.cuda.stream(side):
            following = [t.cuda(non_blocking=True) for t in batch(batch_size)]
        if ahead is not None:
            torch.cuda.current_stream().wait_stream(side)
            for t in ahead:
                t.record_stream(torch.cuda.current_stream())
            yield tuple(ahead)
        ahead = following
""",
    "loader_in_the_process": """
model = convnet
def batches(batch_size):
    return DataLoader(Images(), batch_size=batch_size, shuffle=True)
""",
    "loader_with_workers": """
model = convnet
def batches(batch_size):
    return DataLoader(Images(), batch_size=batch_size, num_workers=2)
""",
    "loader_with_workers_and_pinned_memory": """
model = convnet
def batches(batch_size):
    return DataLoader(Images(), batch_size=batch_size, num_workers=1, pin_memory=True, persistent_workers=True)
""",
    "loader_with_large_batches_in_a_worker": """
model = convnet
class Images(Dataset):
    def __len__(self):
        return 16
    def __getitem__(self, index):
        return torch.rand(3, 640, 640), index % 8
def batches(batch_size):
    return DataLoader(Images(), batch_size=batch_size, num_workers=1, pin_memory=True)
""",
    "loader_over_tensors_too_large_to_make": """
model = convnet
def batches(batch_size):
    data = TensorDataset(torch.randn(20000, 3, 64, 64), torch.randint(0, 8, (20000,)))
    return DataLoader(data, batch_size=batch_size, num_workers=1)
""",
    "loader_with_own_collate": """
def collate(items):
    lengths = torch.tensor([len(item) for item in items])
    padded = torch.zeros(len(items), int(lengths.max()), 32)
    for row, item in enumerate(items):
        padded[row, : len(item)] = item
    return padded[:, 0], lengths % 8
def batches(batch_size):
    return DataLoader([torch.rand(n % 5 + 1, 32) for n in range(64)], batch_size=batch_size, collate_fn=collate)
""",
    "loader_that_moves_to_the_gpu_itself": """
def collate(items):
    x, y = zip(*items)
    return torch.stack(x).cuda(), torch.tensor(y, device="cuda")
def batches(batch_size):
    return DataLoader([(torch.rand(32), n % 8) for n in range(64)], batch_size=batch_size, collate_fn=collate)
""",
    "iterable_data_set": """
class Stream(IterableDataset):
    def __iter__(self):
        for n in range(64):
            yield torch.from_numpy(np.random.rand(32).astype("float32")), n % 8
def batches(batch_size):
    return DataLoader(Stream(), batch_size=batch_size, num_workers=1)
""",
    "numpy_data": """
def batch(batch_size):
    images = torch.from_numpy(np.zeros((batch_size, 1200, 1200), dtype="uint8")).float() / 255
    assert (images > 0.5).nonzero().numel() == 0
    mean = images.mean().item()
    assert mean == 0
    return images[:, 0, :32].contiguous(), torch.zeros(batch_size, dtype=torch.long)
""",
    "values_of_host_data": """
def batch(batch_size):
    y = torch.arange(batch_size) % 8
    assert y.unique().numel() == min(batch_size, 8)
    keep = torch.rand(batch_size) >= 0
    return torch.randn(batch_size, 32)[keep], y[keep]
""",
    "saving": """
def loss(model, batch):
    stream = io.BytesIO()
    torch.save({"model": model.state_dict()}, stream)
    stream.seek(0)
    model.load_state_dict(torch.load(stream, map_location="cuda")["model"])
    torch.save(model.state_dict(), "weights.pt")
    x, y = batch
    return F.cross_entropy(model(x), y)
""",
    "loading_to_cuda": """
def model():
    net = nn.Linear(32, 8)
    stream = io.BytesIO()
    torch.save(net.state_dict(), stream)
    stream.seek(0)
    net.load_state_dict(torch.load(stream, map_location=torch.device("cuda"), weights_only=True))
    return net
""",
    "default_device": """
torch.set_default_device("cuda")
def batch(batch_size):
    x = torch.randn(batch_size, 32)
    assert x.is_cuda
    return x, torch.randint(0, 8, (batch_size,))
""",
    "default_tensor_type": """
torch.set_default_tensor_type(torch.cuda.FloatTensor)
def batch(batch_size):
    assert torch.zeros(3).is_cuda
    return torch.cuda.FloatTensor(batch_size, 32), torch.cuda.LongTensor(batch_size).zero_()
""",
    "device_by_index": """
def model():
    net = nn.Linear(32, 8).to(0)
    assert net.weight.device == torch.device("cuda", 0)
    return net
""",
    "sparse_embedding": """
def model():
    return nn.Embedding(1000, 16, sparse=True)
def batch(batch_size):
    return torch.randint(0, 1000, (batch_size, 8))
def loss(model, batch):
    return model(batch).sum()
def optimizer(params):
    return torch.optim.SparseAdam(list(params))
""",
    "sparse_embedding_bag": """
def model():
    return nn.EmbeddingBag(1000, 16, sparse=True, mode="sum")
def batch(batch_size):
    return torch.randint(0, 1000, (batch_size, 8))
def loss(model, batch):
    return model(batch).sum()
def optimizer(params):
    return torch.optim.SGD(params, lr=0.1)
""",
    "sparse_matrix_on_the_gpu": """
def batch(batch_size):
    index = torch.randint(0, 100, (2, 500))
    graph = torch.sparse_coo_tensor(index, torch.ones(500), (100, 100))
    return graph, torch.randn(100, 32), torch.randint(0, 8, (100,))
def loss(model, batch):
    graph, x, y = batch
    return F.cross_entropy(model(torch.sparse.mm(graph, x)), y)
""",
    "packed_sequences": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(16, 32, batch_first=True)
        self.head = nn.Linear(32, 8)
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, _ = self.lstm(packed)
        out, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return self.head(out[:, -1])
model = Net
def batch(batch_size):
    lengths = torch.arange(1, batch_size + 1).clamp(max=12)
    return torch.randn(batch_size, 12, 16), lengths, torch.zeros(batch_size, dtype=torch.long)
def loss(model, batch):
    x, lengths, y = batch
    return F.cross_entropy(model(x, lengths.cpu()), y)
""",
    "lazy_modules": """
def model():
    net = nn.Sequential(nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.ReLU(), nn.Flatten(), nn.LazyLinear(8))
    net(torch.zeros(2, 3, 16, 16))
    return net
def batch(batch_size):
    return torch.randn(batch_size, 3, 16, 16), torch.zeros(batch_size, dtype=torch.long)
""",
    "lbfgs": """
def loss(model, batch):
    x, y = batch
    inner = torch.optim.LBFGS(model.parameters(), max_iter=3)
    def closure():
        inner.zero_grad()
        value = F.cross_entropy(model(x), y)
        value.backward()
        return value
    inner.step(closure)
    return F.cross_entropy(model(x), y)
""",
    "data_parallel_on_one_gpu": """
def model():
    return nn.DataParallel(nn.Linear(32, 8).cuda())
""",
    "cuda_graph": """
def loss(model, batch):
    x, y = batch
    static = torch.zeros_like(x)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = model(static)
    static.copy_(x)
    graph.replay()
    return F.cross_entropy(model(x), y) + out.sum()
""",
    "graphed_callables": """
def model():
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8)).cuda()
    return torch.cuda.make_graphed_callables(net, (torch.randn(8, 32, device="cuda", requires_grad=True),))
""",
    "fake_quantisation": """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 8)
        self.scale, self.zero = nn.Buffer(torch.ones(8)), nn.Buffer(torch.zeros(8, dtype=torch.int32))
    def forward(self, x):
        x = torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127)
        weight = torch.fake_quantize_per_channel_affine(self.inner.weight, self.scale, self.zero, 0, -128, 127)
        return F.linear(x, weight, self.inner.bias)
model = Net
""",
    "jagged_nested_tensors": """
def loss(model, batch):
    x, y = batch
    with torch.no_grad():
        nested = torch.nested.nested_tensor_from_jagged(x, torch.tensor([0, 1, len(x)], device=x.device))
        model[0](nested).values()
    return F.cross_entropy(model(x), y)
""",
    "save_on_cpu": """
def loss(model, batch):
    x, y = batch
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        out = model(x)
    return F.cross_entropy(out, y)
""",
    "saved_tensor_hooks": """
def loss(model, batch):
    x, y = batch
    pack = lambda t: t.half() if t.is_floating_point() else t
    unpack = lambda t: t.float() if t.dtype == torch.half else t
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        out = model(x)
    return F.cross_entropy(out, y)
""",
    "flex_attention": """
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.head = nn.Linear(32, 96), nn.Linear(32, 8)
    def forward(self, x):
        q, k, v = self.qkv(x).view(len(x), -1, 3, 2, 16).permute(2, 0, 3, 1, 4)
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], k.shape[2], device="cuda")
        out = flex_attention(q, k, v, block_mask=mask)
        return self.head(out.transpose(1, 2).flatten(2)[:, -1])
model = Net
def batch(batch_size):
    return torch.randn(batch_size, 128, 32), torch.zeros(batch_size, dtype=torch.long)
""",
    "flex_attention_with_a_score_function": """
from torch.nn.attention.flex_attention import flex_attention
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(32, 96)
    def forward(self, x):
        q, k, v = self.qkv(x).view(len(x), -1, 3, 2, 16).permute(2, 0, 3, 1, 4)
        return flex_attention(q, k, v, score_mod=lambda score, b, h, i, j: score + (i - j)).sum()
model = Net
def batch(batch_size):
    return torch.randn(batch_size, 128, 32)
def loss(model, batch):
    return model(batch)
""",
    "inference_mode": """
def loss(model, batch):
    x, y = batch
    with torch.inference_mode():
        out = model(x)
        out.mean().item()
        out.argmax(1).eq(y).sum().item()
        moved = out.to(device="cpu", dtype=torch.float16, memory_format=torch.contiguous_format)
        back = moved.to("cuda", torch.float32)
        out[0], out[:, 1:3], out[y], out[y > 3]
        torch.stack([out, out]).view(-1).softmax(0).topk(3)
        F.interpolate(out[None, None], scale_factor=2)
    return F.cross_entropy(model(x), y)
""",
    "inference_mode_decorator": """
@torch.inference_mode()
def evaluate(model, x):
    images = x.to(device="cuda", memory_format=torch.channels_last) if x.dim() == 4 else x.to("cuda")
    return float(model(images).max())
def loss(model, batch):
    x, y = batch
    evaluate(model, x)
    return F.cross_entropy(model(x), y)
""",
    "isfinite_guard": """
def loss(model, batch):
    x, y = batch
    value = F.cross_entropy(model(x), y)
    assert torch.isfinite(value)
    assert torch.isfinite(model[0].weight).all()
    assert not torch.isnan(value).any()
    assert math.isfinite(value.item())
    return value
""",
    "guarded_scaler_step": """
def loss(model, batch):
    x, y = batch
    scaler = torch.amp.GradScaler("cuda")
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with torch.autocast("cuda", dtype=torch.float16):
        value = F.cross_entropy(model(x), y)
    scaler.scale(value).backward()
    scaler.unscale_(inner)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    stepped = False
    if torch.isfinite(norm):
        scaler.step(inner)
        stepped = True
    scaler.update()
    assert stepped and inner.state
    inner.zero_grad()
    return F.cross_entropy(model(x), y)
""",
    "skip_when_overflow": """
def loss(model, batch):
    x, y = batch
    value = F.cross_entropy(model(x), y)
    value.backward()
    bad = False
    for p in model.parameters():
        total = float(p.grad.float().sum())
        if total == float("inf") or total == -float("inf") or total != total:
            bad = True
        if not torch.isfinite(p.grad).all():
            bad = True
        if torch.isinf(p.grad).any() or torch.isnan(p.grad).any():
            bad = True
    assert not bad
    return F.cross_entropy(model(x), y)
""",
    "custom_autograd_function": """
class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x
    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        return 2 * x * grad
def loss(model, batch):
    x, y = batch
    return Square.apply(model(x)).mean()
""",
    "gradient_penalty": """
def loss(model, batch):
    x, y = batch
    x.requires_grad_()
    out = model(x).sum()
    grad, = torch.autograd.grad(out, x, create_graph=True)
    return (grad.norm(2, dim=1) - 1).pow(2).mean() + out
""",
    "checkpoint_reentrant": """
from torch.utils.checkpoint import checkpoint
def loss(model, batch):
    x, y = batch
    x.requires_grad_()
    return F.cross_entropy(checkpoint(model, x, use_reentrant=True), y)
""",
    "functional_grad_and_vmap": """
from torch.func import functional_call, grad, vmap
def loss(model, batch):
    x, y = batch
    params = {k: v.detach() for k, v in model.named_parameters()}
    def one(p, a, b):
        return F.cross_entropy(functional_call(model, p, (a[None],)), b[None])
    per_sample = vmap(grad(one), in_dims=(None, 0, 0))(params, x, y)
    assert per_sample["0.weight"].shape[0] == len(x)
    return F.cross_entropy(model(x), y)
""",
    "weight_norm_and_parametrisation": """
def model():
    kinds = nn.utils.parametrizations
    return nn.Sequential(kinds.weight_norm(nn.Linear(32, 64)), kinds.spectral_norm(nn.Linear(64, 8)))
""",
    "tied_weights_and_ema": """
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
def loss(model, batch):
    x, y = batch
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    average.update_parameters(model)
    average.update_parameters(model)
    return F.cross_entropy(model(x), y)
""",
    "memory_questions": """
def loss(model, batch):
    x, y = batch
    torch.cuda.reset_peak_memory_stats()
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total
    torch.cuda.memory_summary()
    torch.cuda.memory_stats()["allocated_bytes.all.peak"]
    torch.cuda.memory_snapshot()
    torch.cuda.memory._record_memory_history()
    torch.cuda.memory._dump_snapshot("snapshot.pickle")
    torch.cuda.empty_cache()
    return F.cross_entropy(model(x), y)
""",
    "profiler_ranges": """
def loss(model, batch):
    x, y = batch
    torch.cuda.nvtx.range_push("forward")
    with torch.autograd.profiler.record_function("forward"):
        out = model(x)
    torch.cuda.nvtx.range_pop()
    torch.cuda.cudart().cudaProfilerStart()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record(); end.record(); torch.cuda.synchronize()
    start.elapsed_time(end)
    return F.cross_entropy(out, y)
""",
    "memory_fraction_and_settings": """
torch.backends.cudnn.benchmark = True
torch.backends.cuda.matmul.allow_tf32 = True
torch.set_float32_matmul_precision("high")
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
torch.cuda.set_per_process_memory_fraction(0.9)
""",
    "bincount_and_histogram": """
def loss(model, batch):
    x, y = batch
    counts = torch.bincount(y, minlength=8)
    one_hot = F.one_hot(y, 8)
    torch.histc(x, 10)
    return F.cross_entropy(model(x), y, weight=counts.float() + 1) + one_hot.sum()
""",
    "top_k_routing": """
class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(32, 4)
        self.experts = nn.ModuleList(nn.Linear(32, 32) for _ in range(4))
        self.head = nn.Linear(32, 8)
    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            rows, slots = torch.where(chosen == number)
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, slots, None])
        return self.head(out)
model = Router
""",
    "python_data_of_gpu_scalars": """
def loss(model, batch):
    x, y = batch
    norms = [p.detach().norm() for p in model.parameters()]
    torch.tensor([n.item() for n in norms])
    torch.tensor(norms)
    torch.as_tensor(norms, device="cuda")
    return F.cross_entropy(model(x), y)
""",
    "several_optimizers": """
def loss(model, batch):
    x, y = batch
    for make in (torch.optim.Adafactor, torch.optim.RMSprop, torch.optim.NAdam, torch.optim.Rprop, torch.optim.Adagrad):
        inner = make(model.parameters())
        F.cross_entropy(model(x), y).backward()
        inner.step()
        inner.zero_grad()
    return F.cross_entropy(model(x), y)
""",
    "muon": """
def optimizer(params):
    return torch.optim.Muon([p for p in params if p.dim() == 2])
""",
    "backward_hooks": """
def model():
    net = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    net[0].register_full_backward_hook(lambda module, grad_in, grad_out: None)
    net[0].weight.register_hook(lambda grad: grad * 2)
    net[2].weight.register_post_accumulate_grad_hook(lambda p: None)
    return net
""",
    "clone_of_a_model": """
def loss(model, batch):
    x, y = batch
    teacher = copy.deepcopy(model).eval().requires_grad_(False)
    with torch.no_grad():
        target = teacher(x).softmax(-1)
    return F.kl_div(model(x).log_softmax(-1), target, reduction="batchmean")
""",
    "distances_and_linear_algebra": """
def loss(model, batch):
    x, y = batch
    torch.linalg.svd(x, full_matrices=False)
    torch.linalg.inv(x.T @ x + torch.eye(32, device="cuda"))
    torch.linalg.qr(x.T)
    torch.cdist(x, x)
    torch.linalg.norm(x)
    torch.linalg.cholesky(x.T @ x + torch.eye(32, device="cuda"))
    return F.cross_entropy(model(x), y)
""",
    "sampling": """
def loss(model, batch):
    x, y = batch
    torch.multinomial(model(x).softmax(-1), 1)
    torch.distributions.Categorical(logits=model(x)).sample()
    torch.distributions.Normal(model(x), 1.0).rsample()
    torch.randperm(len(x), device="cuda")
    torch.bernoulli(torch.full_like(x, 0.5))
    gen = torch.Generator(device="cuda").manual_seed(0)
    torch.randn(3, 3, device="cuda", generator=gen)
    return F.cross_entropy(model(x), y)
""",
    "fourier_transform": """
def loss(model, batch):
    x, y = batch
    spectrum = torch.fft.rfft(x)
    back = torch.fft.irfft(spectrum * torch.view_as_complex(torch.ones(17, 2, device="cuda")), n=32)
    torch.stft(x.flatten(), 64, window=torch.hann_window(64, device="cuda"), return_complex=True)
    return F.cross_entropy(model(back), y)
""",
    "threads_of_the_jobs_own": """
import threading
def batch(batch_size):
    out = []
    thread = threading.Thread(target=lambda: out.append(torch.randn(batch_size, 32)))
    thread.start(); thread.join()
    return out[0], torch.zeros(batch_size, dtype=torch.long)
""",
    "pool_of_processes": """
import multiprocessing
def square(n):
    return float((torch.ones(3) * n).sum())
def batch(batch_size):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.map(square, [1, 2]) == [3.0, 6.0]
    return torch.randn(batch_size, 32), torch.zeros(batch_size, dtype=torch.long)
""",
    "loop_until_a_loss_is_small": """
def loss(model, batch):
    x, y = batch
    value = F.cross_entropy(model(x), y)
    tries = 0
    while value.item() > 0.1 and tries < 5:
        value = F.cross_entropy(model(x), y)
        tries += 1
    return value
""",
    "loop_that_only_data_ends": """
def loss(model, batch):
    x, y = batch
    out = model(x)
    while not out.sum() <= 0:
        out = out - 1
    while out.mean() > 0.5:
        out = out - 1
    return F.cross_entropy(model(x), y)
""",
    "printing": """
def loss(model, batch):
    x, y = batch
    value = F.cross_entropy(model(x), y)
    print(value, f"{value:.3f} {value.item():.2f}", x.shape, repr(x)[:30], str(model[0].weight)[:20])
    print(x.cpu().numpy().mean())
    return value
""",
}
"""Each begins with `PRELUDE`, whose functions it may replace."""

REFUSED: dict[str, tuple[str, str]] = {
    "a_second_gpu": (
        "invalid device ordinal",
        """
def model():
    return nn.Linear(32, 8).to("cuda:1")
""",
    ),
    "strided_nested_tensors": (
        "nested",
        """
def loss(model, batch):
    x, y = batch
    nested = torch.nested.nested_tensor([x[:2], x[2:]])
    return model(nested).to_padded_tensor(0.0).sum()
""",
    ),
    "failing_after_an_unknown_value": (
        r"raised RuntimeError: good enough; the value read at .*job\.py:\d+ is not known without data",
        """
def loss(model, batch):
    x, y = batch
    right = (model(x).argmax(1) == y).float().mean().item()
    if right > 0.99:
        raise RuntimeError("good enough")
    return F.cross_entropy(model(x), y)
""",
    ),
    "mixed_devices": (
        "same device",
        """
def loss(model, batch):
    x, y = batch
    return F.cross_entropy(model(x), y) + (x + torch.zeros(32)).sum()
""",
    ),
}
"""Words that the sentence contains, and the source."""
