"""Jobs, scripts and configurations for torch: name of a file → its text."""

# ruff: noqa: E501
# The text of a job decides its trace: it is not to be reformatted.

from __future__ import annotations

import json
from typing import Any

__all__ = ["FILES"]

FILES: dict[str, str] = {}

FILES["transformer.py"] = """
import torch
from torch import nn

VOCABULARY = 2000

def model():
    layer = nn.TransformerEncoderLayer(d_model=128, nhead=4, dim_feedforward=512, batch_first=True)
    return nn.Sequential(nn.Embedding(VOCABULARY, 128), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False),
                         nn.Linear(128, VOCABULARY))

def batch(batch_size, seq_len=64):
    tokens = torch.randint(0, VOCABULARY, (batch_size, seq_len + 1))
    return {"input": tokens[:, :-1], "target": tokens[:, 1:]}

def loss(model, batch):
    logits = model(batch["input"])
    return nn.functional.cross_entropy(logits.flatten(0, 1), batch["target"].flatten())

def optimizer(params):
    return torch.optim.AdamW(params, lr=3e-4, weight_decay=0.1)
"""

FILES["mlp_width.py"] = """
import torch
from torch import nn

WIDTH = 512

def model():
    return nn.Sequential(nn.Linear(256, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 10))

def batch(batch_size):
    return torch.randn(batch_size, 256), torch.randint(10, (batch_size,))
"""

FILES["cnn.py"] = """
import torch
from torch import nn

def unit(a, b, stride=1):
    return nn.Sequential(nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = unit(3, 32, 2)
        self.layers = nn.ModuleList(unit(32, 32) for _ in range(4))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 100))

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)

def model():
    return Net()

def batch(batch_size, input_shape=(3, 96, 96)):
    return torch.randn(batch_size, *input_shape), torch.randint(100, (batch_size,))
"""

FILES["prefetching.py"] = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Linear(1000, 2000), torch.nn.Tanh(), torch.nn.Linear(2000, 10))

def batch(batch_size):
    return torch.randn(batch_size, 1000), torch.randint(10, (batch_size,))

def batches(batch_size):
    stream, ready = torch.cuda.Stream(), None
    while True:
        with torch.cuda.stream(stream):
            coming = [part.cuda() for part in batch(batch_size)]
        if ready is not None:
            yield ready
        ready = coming
"""

FILES["growing_batches.py"] = """
import torch

def model():
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256))

def batch(batch_size):
    return torch.randn(batch_size, 256), torch.randn(batch_size, 256)

def batches(batch_size):
    for size in (batch_size, 3 * batch_size, batch_size // 2):
        yield batch(size)

def loss(model, batch):
    x, y = batch
    return torch.nn.functional.mse_loss(model(x), y)
"""

FILES["recurrent.py"] = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(5000, 96, padding_idx=0)
        self.lstm = nn.LSTM(96, 128, 2, batch_first=True, dropout=0.2, bidirectional=True)
        self.gru = nn.GRU(256, 64, batch_first=True)
        self.head = nn.Linear(64, 5)

    def forward(self, tokens):
        x, _ = self.lstm(self.embedding(tokens))
        _, state = self.gru(x)
        return self.head(state[-1])

def model():
    return Net()

def batch(batch_size, seq_len=40):
    return torch.randint(0, 5000, (batch_size, seq_len)), torch.randint(5, (batch_size,))
"""

FILES["packed_rnn.py"] = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(32, 64, nonlinearity="tanh", num_layers=2)
        self.cell = nn.LSTMCell(64, 48)
        self.head = nn.Linear(48, 8)

    def forward(self, x):
        out, _ = self.rnn(x)
        h = c = out.new_zeros(out.shape[1], 48)
        for step in out[:6]:
            h, c = self.cell(step, (h, c))
        return self.head(h)

def model():
    return Net()

def batch(batch_size):
    return torch.randn(20, batch_size, 32), torch.randint(8, (batch_size,))
"""

FILES["attention.py"] = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(3000, 192), nn.Embedding(512, 192)
        self.attention = nn.MultiheadAttention(192, 6, dropout=0.1, batch_first=True)
        self.qkv, self.out = nn.Linear(192, 576), nn.Linear(192, 192)
        self.norm = nn.LayerNorm(192)
        self.head = nn.Linear(192, 3000, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places(torch.arange(length, device=tokens.device))
        mask = torch.full((length, length), float("-inf"), device=x.device).triu(1)
        x = x + self.attention(x, x, x, attn_mask=mask, need_weights=True)[0]
        q, k, v = (t.unflatten(-1, (6, 32)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1).transpose(1, 2).flatten(2))
        return self.head(x)

def model():
    return Net()

def batch(batch_size, seq_len=128):
    return torch.randint(0, 3000, (batch_size, seq_len))

def loss(model, batch):
    return F.cross_entropy(model(batch)[:, :-1].flatten(0, 1), batch[:, 1:].flatten())
"""

FILES["sdpa_masked.py"] = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.kv, self.out = nn.Linear(256, 256), nn.Linear(256, 128), nn.Linear(256, 256)

    def forward(self, x, mask):
        q = self.q(x).unflatten(-1, (8, 32)).transpose(1, 2)
        k, v = (t.unflatten(-1, (2, 32)).transpose(1, 2).repeat_interleave(4, 1) for t in self.kv(x).chunk(2, -1))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None, None, :])
        return self.out(y.transpose(1, 2).flatten(2))

def model():
    return Net()

def batch(batch_size, seq_len=96):
    return torch.randn(batch_size, seq_len, 256), torch.ones(batch_size, seq_len, dtype=torch.bool)

def loss(model, batch):
    return model(*batch).pow(2).mean()
"""

FILES["autoencoder.py"] = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.Sequential(nn.Conv2d(3, 32, 4, 2, 1), nn.GroupNorm(8, 32), nn.SiLU(),
                                  nn.Conv2d(32, 64, 4, 2, 1), nn.InstanceNorm2d(64, affine=True), nn.LeakyReLU(0.2),
                                  nn.Conv2d(64, 64, 3, padding=2, dilation=2), nn.ELU(), nn.MaxPool2d(2))
        self.up = nn.Sequential(nn.ConvTranspose2d(64, 64, 4, 2, 1), nn.PReLU(), nn.ConvTranspose2d(64, 32, 4, 2, 1),
                                nn.Hardswish(), nn.Conv2d(32, 12, 3, padding=1), nn.PixelShuffle(2))

    def forward(self, x):
        y = self.up(self.down(x))
        return torch.sigmoid(F.interpolate(y, size=x.shape[-2:], mode="bilinear", align_corners=False))

def model():
    return Net()

def batch(batch_size, input_shape=(3, 64, 64)):
    return torch.rand(batch_size, *input_shape)

def loss(model, batch):
    return F.binary_cross_entropy(model(batch), batch) + F.l1_loss(model(batch), batch)

def optimizer(params):
    return torch.optim.RMSprop(params, lr=1e-3, momentum=0.9, centered=True)
"""

FILES["volumes.py"] = """
import torch
from torch import nn

def model():
    return nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1), nn.BatchNorm3d(8), nn.ReLU(), nn.MaxPool3d(2),
        nn.Conv3d(8, 16, (1, 3, 3), padding=(0, 1, 1), groups=2), nn.ReLU(), nn.ConvTranspose3d(16, 8, 2, 2),
        nn.AdaptiveAvgPool3d((2, 2, 2)), nn.Flatten(), nn.Linear(64, 4))

def batch(batch_size, input_shape=(1, 16, 32, 32)):
    return torch.randn(batch_size, *input_shape), torch.randint(4, (batch_size,))
"""

FILES["speech.py"] = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(40, 128, 5, 2, 2), nn.BatchNorm1d(128), nn.GLU(1),
                                  nn.Conv1d(64, 64, 3, padding=1, groups=64), nn.ReLU6())
        self.head = nn.Linear(64, 30)

    def forward(self, x):
        return self.head(self.conv(x).permute(2, 0, 1)).log_softmax(-1)

def model():
    return Net()

def batch(batch_size):
    return {"x": torch.randn(batch_size, 40, 200), "y": torch.randint(1, 30, (batch_size, 12)),
            "lengths": torch.full((batch_size,), 100), "targets": torch.full((batch_size,), 12)}

def loss(model, batch):
    return nn.functional.ctc_loss(model(batch["x"]), batch["y"], batch["lengths"], batch["targets"])

def optimizer(params):
    return torch.optim.SGD(params, 0.1, momentum=0.9, nesterov=True)
"""

FILES["recommender.py"] = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.bag = nn.EmbeddingBag(20000, 64, mode="mean")
        self.items = nn.Embedding(10000, 64)
        self.deep = nn.Sequential(nn.Linear(128 + 13, 256), nn.ReLU(), nn.Dropout(0.3), nn.Linear(256, 1))

    def forward(self, bags, items, numbers):
        return self.deep(torch.cat([self.bag(bags), self.items(items), numbers], 1)).squeeze(1)

def model():
    return Net()

def batch(batch_size):
    return (torch.randint(0, 20000, (batch_size, 10)), torch.randint(0, 10000, (batch_size,)),
            torch.randn(batch_size, 13), torch.rand(batch_size))

def loss(model, batch):
    *inputs, target = batch
    return nn.functional.binary_cross_entropy_with_logits(model(*inputs), target)

def optimizer(params):
    return torch.optim.Adagrad(params, lr=0.01)
"""

FILES["fine_tuning.py"] = """
import torch
from torch import nn

class Lora(nn.Module):
    def __init__(self, inner, rank=8):
        super().__init__()
        self.inner = inner.requires_grad_(False)
        self.down, self.up = nn.Linear(inner.in_features, rank, False), nn.Linear(rank, inner.out_features, False)

    def forward(self, x):
        return self.inner(x) + self.up(self.down(x))

def model():
    body = nn.Sequential(*(part for _ in range(4) for part in (Lora(nn.Linear(512, 512)), nn.GELU(), nn.LayerNorm(512))))
    return nn.Sequential(nn.Linear(64, 512).requires_grad_(False), body, nn.Linear(512, 3))

def batch(batch_size):
    return torch.randn(batch_size, 64), torch.randint(3, (batch_size,))

def optimizer(params):
    return torch.optim.Adam([p for p in params if p.requires_grad], lr=1e-4, amsgrad=True)
"""

FILES["own_function.py"] = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        return grad * s * (1 + x * (1 - s))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(384, 1536), nn.GELU(), nn.Linear(1536, 384)) for _ in range(4))
        self.register_buffer("scale", torch.ones(384))
        self.head = nn.Linear(384, 10)

    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        x = Swish.apply(x * self.scale)
        with torch.no_grad():
            shift = x.mean(0)
        weights = torch.einsum("bd,cd->bc", x, x).softmax(-1)
        top, where = x.topk(64, -1)
        x = (weights @ (x - shift)).clamp_(-5, 5).scatter_add(1, where, top).masked_fill(x > 3, 0.0)
        return self.head(x.sort(-1).values.cumsum(-1))

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 384), torch.randint(10, (batch_size,))

def loss(model, batch):
    x, y = batch
    found = model(x)
    return nn.functional.cross_entropy(found, y, label_smoothing=0.1) + 1e-4 * sum(p.square().sum() for p in model.parameters())

def optimizer(params):
    params = list(params)
    return torch.optim.NAdam([{"params": params[:4], "lr": 1e-3}, {"params": params[4:], "weight_decay": 0.1}])
"""

FILES["teacher.py"] = """
import torch
from torch import nn
from torch.nn import functional as F

class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.student = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 50))
        self.teacher = nn.Sequential(nn.Linear(128, 2048), nn.ReLU(), nn.Linear(2048, 50)).requires_grad_(False)

    def forward(self, x):
        with torch.no_grad():
            told = self.teacher(x).softmax(-1)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            said = self.student(x)
        return said.float().log_softmax(-1), told

def model():
    return Pair()

def batch(batch_size):
    return torch.randn(batch_size, 128)

def loss(model, batch):
    said, told = model(batch)
    return F.kl_div(said, told, reduction="batchmean")
"""

FILES["seq2seq.py"] = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(1000, 64)
        self.body = nn.Transformer(64, 4, 2, 2, 128, batch_first=True)
        self.head = nn.Linear(64, 1000)

    def forward(self, source, target):
        mask = nn.Transformer.generate_square_subsequent_mask(target.shape[1], device=target.device)
        return self.head(self.body(self.words(source), self.words(target), tgt_mask=mask))

def model():
    return Net()

def batch(batch_size):
    return torch.randint(0, 1000, (batch_size, 24)), torch.randint(0, 1000, (batch_size, 20))

def loss(model, batch):
    source, target = batch
    return nn.functional.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())

def optimizer(params):
    return torch.optim.RAdam(params, foreach=False)
"""

FILES["odd_shapes.py"] = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(5, 17, (3, 5), stride=(2, 1), padding=(1, 2), padding_mode="reflect")
        self.b = nn.Conv2d(17, 17, 7, padding=3, groups=17)
        self.c = nn.Bilinear(31, 31, 7)
        self.d = nn.Linear(153, 31)

    def forward(self, x):
        x = F.unfold(F.avg_pool2d(self.b(F.mish(self.a(x))), 3), 3).transpose(1, 2)
        x = F.dropout(F.softplus(self.d(x)), 0.2)
        x = F.local_response_norm(x, 3) if x.dim() == 4 else x
        return self.c(x.mean(1), x.amax(1))

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, 5, 37, 41), torch.randint(7, (batch_size,))
"""

FILES["reads_the_card.py"] = """
import torch
from torch import nn

def model():
    card = torch.cuda.get_device_properties(0)
    width = 1024 if card.total_memory > 20 * 2**30 else 256
    if torch.cuda.get_device_capability() >= (8, 0):
        return nn.Sequential(nn.Linear(100, width), nn.ReLU(), nn.Linear(width, 10)).to(torch.bfloat16)
    return nn.Sequential(nn.Linear(100, width), nn.ReLU(), nn.Linear(width, 10))

def batch(batch_size):
    dtype = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float32
    return torch.randn(batch_size, 100, dtype=dtype), torch.randint(10, (batch_size,))
"""

FILES["raises.py"] = """
import torch

def model():
    raise KeyError("weights")

def batch(batch_size):
    return torch.randn(batch_size, 3)
"""

FILES["no_batch.py"] = "import torch\n\ndef model():\n    return torch.nn.Linear(3, 3)\n"
FILES["bad_syntax.py"] = "import torch\n\ndef model(:\n"

FILES["mismatch.py"] = """
import torch

def model():
    return torch.nn.Linear(30, 3)

def batch(batch_size):
    return torch.randn(batch_size, 31), torch.randint(3, (batch_size,))
"""

FILES["small_bert/config.json"] = json.dumps(
    {"model_type": "bert", "architectures": ["BertForSequenceClassification"], "hidden_size": 64,
     "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128, "vocab_size": 1000}
)  # fmt: skip
FILES["small_llama/config.json"] = json.dumps(
    {"model_type": "llama", "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
     "num_key_value_heads": 2, "intermediate_size": 256, "vocab_size": 1000}
)  # fmt: skip
FILES["small_vit/config.json"] = json.dumps(
    {"model_type": "vit", "architectures": ["ViTForImageClassification"], "hidden_size": 64, "num_hidden_layers": 2,
     "num_attention_heads": 4, "intermediate_size": 128, "image_size": 64, "patch_size": 16}
)  # fmt: skip
FILES["small_t5/config.json"] = json.dumps(
    {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4, "vocab_size": 1000,
     "decoder_start_token_id": 0, "pad_token_id": 0}
)  # fmt: skip
FILES["unknown_type/config.json"] = json.dumps({"model_type": "bertt"})


def _run(total: int | None, reserved: int | None, allocated: int | None, simulated: int, convolutions: bool) -> Any:
    return {
        "source": "a run", "device_total": total, "reserved": reserved, "allocated": allocated,
        "simulated_reserved": simulated, "simulated_allocated": simulated - (8 << 20), "convolutions": convolutions,
        "workload": {"job": "zoo:mlp", "batch_size": 32}, "date": "2026-01-01", "versions": {"torch": "2.8.0"},
    }  # fmt: skip


FILES["calibration.json"] = json.dumps(
    {
        "kind": "oomcast calibration", "schema": 1, "gpu": "rtx-3090", "environment": "torch-2.8-cu128",
        "runs": [_run(700 << 20, 214 << 20, 201 << 20, 210 << 20, False), _run(1900 << 20, None, None, 1400 << 20, True)],
    }
)  # fmt: skip

# Scripts written for CUDA, run in a process of their own; each prints one line of JSON.

_COUNTERS = """
def counters():
    c = torch.cuda
    free, total = c.mem_get_info()
    return {"allocated": c.memory_allocated(), "reserved": c.memory_reserved(), "peak": c.max_memory_allocated(),
            "peak_reserved": c.max_memory_reserved(), "free": free, "total": total}
"""

FILES["virtual_train.py"] = (
    "import json, torch, oomcast\nfrom torch import nn\n"
    + _COUNTERS
    + """
told = []
with oomcast.virtual_gpu("a100-40gb") as gpu:
    device = torch.device("cuda")
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    scaler = torch.amp.GradScaler("cuda")
    for step in range(3):
        x = torch.randn(512, 1024, device=device)
        with torch.autocast("cuda"):
            loss = nn.functional.mse_loss(model(x), x)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        told.append(counters())
        torch.cuda.reset_peak_memory_stats()
    trace = gpu.trace()
told.append({"allocations": len(trace.allocations), "events": len(trace.events)})
print(json.dumps(told))
"""
)

FILES["virtual_conv.py"] = (
    "import json, torch, oomcast\nfrom torch import nn\n"
    + _COUNTERS
    + """
told = []
with oomcast.virtual_gpu("t4"):
    model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                          nn.Linear(32 * 32 * 32, 10)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for size in (16, 64, 8):
        x, y = torch.randn(size, 3, 64, 64).cuda(), torch.randint(0, 10, (size,)).cuda()
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        told.append(counters())
    del model, optimizer, x, y
    told.append(counters())
    torch.cuda.empty_cache()
    told.append(counters())
print(json.dumps(told))
"""
)

FILES["virtual_inference.py"] = (
    "import json, torch, oomcast\nfrom torch import nn\n"
    + _COUNTERS
    + """
told = []
with oomcast.virtual_gpu("h100-80gb"):
    layer = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).cuda().to(torch.bfloat16).eval()
    with torch.inference_mode():
        for length in (64, 256, 1024):
            y = model(torch.zeros(4, length, 512, device="cuda", dtype=torch.bfloat16))
            told.append(counters())
    told.append({"name": torch.cuda.get_device_name(), "capability": list(torch.cuda.get_device_capability())})
print(json.dumps(told))
"""
)

# Sweeps: one layer to a job, so that its workspace and its scratch stand at a peak.

_ONE_LAYER = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.{first}
        self.layer = {layer}

    def forward(self, x):
        x = self.first(x)
        return {call}

def model():
    return Net()

def batch(batch_size):
    return torch.randn(batch_size, *{shape})

def loss(model, batch):
    return model(batch){end}
"""

CONVOLUTIONS = (
    # layer, channels in, sample's extents
    ("Conv2d(64, 64, 3, padding=1)", 64, (56, 56)),
    ("Conv2d(64, 256, 1)", 64, (56, 56)),
    ("Conv2d(3, 64, 7, 2, 3)", 3, (224, 224)),
    ("Conv2d(256, 512, 3, 2, 1)", 256, (28, 28)),
    ("Conv2d(512, 512, 3, padding=1)", 512, (7, 7)),
    ("Conv2d(1024, 256, 1, bias=False)", 1024, (14, 14)),
    ("Conv2d(96, 96, 3, padding=1, groups=96)", 96, (56, 56)),
    ("Conv2d(128, 128, 5, padding=2, groups=128)", 128, (28, 28)),
    ("Conv2d(128, 128, 3, padding=1, groups=32)", 128, (28, 28)),
    ("Conv2d(64, 64, 3, padding=4, dilation=4)", 64, (64, 64)),
    ("Conv2d(48, 80, (1, 7), padding=(0, 3))", 48, (17, 17)),
    ("Conv2d(17, 33, 5, 3)", 17, (61, 47)),
    ("Conv2d(1, 32, 11, 4, 2)", 1, (227, 227)),
    ("Conv2d(3, 768, 16, 16)", 3, (224, 224)),
    ("ConvTranspose2d(128, 64, 2, 2)", 128, (32, 32)),
    ("ConvTranspose2d(64, 3, 4, 2, 1)", 64, (32, 32)),
    ("Conv1d(40, 128, 5, 2, 2)", 40, (400,)),
    ("Conv1d(128, 128, 31, padding=15, groups=128)", 128, (200,)),
    ("Conv3d(8, 32, 3, padding=1)", 8, (16, 32, 32)),
    ("Conv3d(16, 16, (1, 3, 3), padding=(0, 1, 1))", 16, (8, 56, 56)),
    ("ConvTranspose3d(16, 8, 2, 2)", 16, (8, 16, 16)),
)
for _number, (_layer, _channels, _extents) in enumerate(CONVOLUTIONS):
    _pointwise = f"Conv{len(_extents)}d({_channels}, {_channels}, 1, groups={_channels})"
    FILES[f"convolution_{_number:02}.py"] = _ONE_LAYER.format(
        first=_pointwise, layer=f"nn.{_layer}", call="self.layer(x)", shape=(_channels, *_extents), end=".sum()"
    )

OPERATORS = (
    # layer, call, sample's shape; the first layer keeps the shape
    ("nn.BatchNorm2d(64)", "self.layer(x)", (64, 48, 48)),
    ("nn.GroupNorm(8, 64)", "self.layer(x)", (64, 48, 48)),
    ("nn.InstanceNorm2d(64, affine=True)", "self.layer(x)", (64, 48, 48)),
    ("nn.LayerNorm(512)", "self.layer(x)", (128, 512)),
    ("nn.RMSNorm(512)", "self.layer(x)", (128, 512)),
    ("nn.Dropout(0.3)", "self.layer(x)", (128, 512)),
    ("nn.Linear(512, 2000)", "self.layer(x)", (128, 512)),
    ("nn.MultiheadAttention(512, 8, batch_first=True)", "self.layer(x, x, x, need_weights=False)[0]", (128, 512)),
    ("nn.MultiheadAttention(512, 8, dropout=0.1, batch_first=True)", "self.layer(x, x, x)[0]", (128, 512)),
    (
        "nn.Identity()",
        "F.scaled_dot_product_attention(*(x.unflatten(-1, (4, 128)).transpose(1, 2),) * 3, is_causal=True)",
        (130, 512),
    ),
    (
        "nn.Identity()",
        "F.scaled_dot_product_attention(*(x.unflatten(-1, (8, 64)).transpose(1, 2),) * 3, dropout_p=0.2)",
        (77, 512),
    ),
    (
        "nn.Identity()",
        "F.scaled_dot_product_attention(*(x.unflatten(-1, (2, 256)).transpose(1, 2),) * 3, attn_mask=x.new_zeros(96, 96))",
        (96, 512),
    ),
    ("nn.Identity()", "x.softmax(-1) + x.log_softmax(-1)", (128, 512)),
    (
        "nn.Identity()",
        "F.cross_entropy(x.flatten(0, 1), x.new_zeros(x.shape[0] * 128, dtype=torch.long), reduction='none')",
        (128, 512),
    ),
    ("nn.GELU()", "self.layer(x) * F.silu(x) + F.softplus(x) - F.mish(x)", (128, 512)),
    ("nn.PReLU()", "self.layer(x)", (64, 48, 48)),
    ("nn.MaxPool2d(3, 2, 1)", "self.layer(x)", (64, 48, 48)),
    ("nn.AdaptiveAvgPool2d(5)", "self.layer(x)", (64, 48, 48)),
    ("nn.Upsample(scale_factor=2, mode='bilinear')", "self.layer(x)", (64, 48, 48)),
    ("nn.LSTM(512, 256, 2, batch_first=True)", "self.layer(x)[0]", (40, 512)),
    ("nn.GRU(512, 256, bidirectional=True, batch_first=True)", "self.layer(x)[0]", (40, 512)),
    ("nn.RNN(512, 256, batch_first=True)", "self.layer(x)[0]", (40, 512)),
    ("nn.Identity()", "x.norm(dim=-1) + x.std(-1) + x.logsumexp(-1) + x.amax(-1) + x.sum(-1) + x.prod(-1)", (128, 512)),
    ("nn.Identity()", "x.sort(-1).values + x.flip(-1) + x.roll(3, -1) + x.cumsum(-1)", (128, 512)),
    (
        "nn.Identity()",
        "torch.cat([x[:, ::2], x[:, 1::2]], 1).index_select(-1, torch.arange(0, 512, 3, device=x.device))",
        (128, 512),
    ),
    ("nn.Identity()", "torch.einsum('bid,bjd->bij', x, x) @ x", (128, 512)),
    ("nn.Identity()", "torch.where(x > 0, x.exp().clamp(max=9), x.pow(3)).masked_fill(x > 2, 0.5)", (128, 512)),
)
for _number, (_layer, _call, _shape) in enumerate(OPERATORS):
    _first = f"Conv2d({_shape[0]}, {_shape[0]}, 1)" if len(_shape) == 3 else f"Linear({_shape[-1]}, {_shape[-1]})"
    FILES[f"operator_{_number:02}.py"] = _ONE_LAYER.format(
        first=_first, layer=_layer, call=_call, shape=_shape, end=".float().square().mean()"
    )
