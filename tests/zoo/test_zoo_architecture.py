"""What the models compute, on small ones with real values."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oomcast import zoo
from oomcast.zoo.bert import BertClassifier, BertConfig, BertMaskedLm
from oomcast.zoo.efficientnet import StochasticDepth
from oomcast.zoo.gpt2 import GPT2
from oomcast.zoo.inception import criterion
from oomcast.zoo.llama import Llama, LlamaConfig, RMSNorm, repeat_heads, rotate
from oomcast.zoo.mlp_and_lstm import LstmLm
from oomcast.zoo.unet import dice_loss

WORDS = 50
TINY_LLAMA = LlamaConfig(
    width=32, depth=2, heads=4, key_value_heads=2, inner=48, vocabulary=WORDS, positions=64, rope_base=1e4
)
TINY_BERT = BertConfig(width=32, depth=2, heads=4, vocabulary=WORDS, positions=16)


def _decoders() -> list[nn.Module]:
    torch.manual_seed(0)
    return [
        GPT2(width=32, depth=2, heads=4, vocabulary=WORDS, positions=16),
        Llama(TINY_LLAMA),
        LstmLm(WORDS, width=16, depth=2, dropout=0.5),
    ]


@pytest.mark.parametrize("index", range(3))
def test_a_decoder_sees_only_the_past(index: int) -> None:
    model = _decoders()[index].eval()
    ids = torch.randint(WORDS, (2, 10))
    changed = ids.clone()
    changed[:, 6] = (changed[:, 6] + 1) % WORDS
    before, after = model(ids), model(changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


def test_the_causal_loss_asks_for_the_next_token() -> None:
    job = zoo.find("gpt2").load()
    model = _decoders()[1]
    ids = torch.randint(WORDS, (2, 10))
    logits = model(ids)
    plain = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    torch.testing.assert_close(job.loss(model, {"input_ids": ids, "labels": ids}), plain)


def test_a_new_language_model_knows_nothing() -> None:
    job = zoo.find("gpt2").load()
    for model in _decoders()[:2]:
        loss = job.loss(model, {"input_ids": (ids := torch.randint(WORDS, (4, 16))), "labels": ids})
        assert loss.item() == pytest.approx(math.log(WORDS), rel=0.2)


def test_rotary_scores_depend_on_distance_only() -> None:
    query, key = torch.randn(8), torch.randn(8)
    angles = torch.outer(torch.arange(12.0), 100.0 ** -(torch.arange(0, 8, 2) / 8)).repeat(1, 2)

    def score(at: int, of: int) -> Tensor:
        return rotate(query, angles[at].cos(), angles[at].sin()) @ rotate(key, angles[of].cos(), angles[of].sin())

    torch.testing.assert_close(score(5, 2), score(11, 8))
    assert not torch.allclose(score(5, 2), score(5, 3))


def test_heads_are_repeated_in_a_row() -> None:
    x = torch.randn(2, 3, 5, 4)
    assert torch.equal(repeat_heads(x, 2), x.repeat_interleave(2, dim=1))
    assert repeat_heads(x, 1) is x


def test_rms_norm_is_torchs() -> None:
    x = torch.randn(4, 32)
    torch.testing.assert_close(RMSNorm(32)(x), F.rms_norm(x, (32,), eps=1e-5))
    assert RMSNorm(32).to(torch.bfloat16)(x.bfloat16()).dtype == torch.bfloat16


def test_a_tied_llama_counts_its_embeddings_once() -> None:
    tied = Llama(LlamaConfig(32, 1, 4, 2, 48, WORDS, 64, 1e4, tied=True))
    free = Llama(LlamaConfig(32, 1, 4, 2, 48, WORDS, 64, 1e4))
    assert sum(p.numel() for p in free.parameters()) - sum(p.numel() for p in tied.parameters()) == 32 * WORDS


def test_llama_runs_in_pure_bf16() -> None:
    model = Llama(TINY_LLAMA).to(torch.bfloat16)
    ids = torch.randint(WORDS, (1, 6))
    loss = zoo.find("llama-2-7b").load().loss(model, {"input_ids": ids, "labels": ids})
    loss.backward()
    assert loss.dtype == torch.float32
    assert {p.grad.dtype for p in model.parameters() if p.grad is not None} == {torch.bfloat16}


def test_bert_does_not_look_at_padding() -> None:
    torch.manual_seed(0)
    model = BertClassifier(TINY_BERT).eval()
    ids, types = torch.randint(WORDS, (2, 8)), torch.zeros(2, 8, dtype=torch.int64)
    mask = torch.ones(2, 8, dtype=torch.int64)
    mask[:, 5:] = 0
    changed = ids.clone()
    changed[:, 5:] = 0
    torch.testing.assert_close(model(ids, mask, types), model(changed, mask, types))
    assert not torch.allclose(model(ids, mask, types), model(ids, torch.ones_like(mask), types))


def test_masked_lm_loss_counts_hidden_tokens_only() -> None:
    torch.manual_seed(0)
    job = zoo.find("bert-base-mlm").load()
    model = BertMaskedLm(TINY_BERT).eval()
    ids, mask = torch.randint(WORDS, (2, 8)), torch.ones(2, 8, dtype=torch.int64)
    batch = {"input_ids": ids, "attention_mask": mask, "token_type_ids": mask * 0, "labels": torch.full((2, 8), -100)}
    batch["labels"][:, 3] = 7
    logits = model(ids, mask, mask * 0)
    torch.testing.assert_close(job.loss(model, batch), F.cross_entropy(logits[:, 3], torch.tensor([7, 7])))


def test_masked_lm_batch_hides_a_seventh() -> None:
    batch = zoo.find("bert-base-mlm").load().batch(2, seq_len=21)
    assert isinstance(batch, dict)
    hidden = batch["labels"] != -100
    assert hidden.sum(1).tolist() == [3, 3]
    assert (batch["input_ids"][hidden] == 103).all()


def test_inceptions_auxiliary_loss_counts_two_fifths() -> None:
    logits, auxiliary, target = torch.randn(3, 5), torch.randn(3, 5), torch.tensor([0, 1, 4])
    wanted = F.cross_entropy(logits, target) + 0.4 * F.cross_entropy(auxiliary, target)
    torch.testing.assert_close(criterion((logits, auxiliary), target), wanted)
    torch.testing.assert_close(criterion(logits, target), F.cross_entropy(logits, target))


def test_inception_has_no_auxiliary_output_in_evaluation() -> None:
    with torch.device("meta"):
        model = zoo.find("inception_v3").load().model().eval()
        assert model(torch.randn(1, 3, 299, 299)).shape == (1, 1000)


def test_stochastic_depth_drops_whole_samples() -> None:
    torch.manual_seed(0)
    x = torch.ones(64, 2, 3, 3)
    layer = StochasticDepth(0.25)
    kept = layer(x).flatten(1)
    assert kept.unique().tolist() == [0.0, pytest.approx(1 / 0.75)]
    assert torch.equal(kept.min(1).values, kept.max(1).values)
    assert layer.eval()(x) is x


def test_dice_loss_is_zero_for_a_perfect_answer() -> None:
    target = torch.randint(2, (2, 1, 4, 4, 4)).float()
    assert dice_loss(1000 * (target - 0.5), target).item() == pytest.approx(0, abs=1e-6)
    assert dice_loss(-1000 * (target - 0.5), target).item() > 0.9
