"""Networks fitted in torch answer the same in numpy, learn what can be learnt, and refuse what does not fit."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from oomcast.methods.gpumemnet.networks import (
    MlpEnsemble,
    SequenceEnsemble,
    arrays_from_bytes,
    arrays_to_bytes,
    pad_sequences,
    probabilities_of_one,
)
from oomcast.methods.gpumemnet.training.fitting import (
    FitSettings,
    _Encoder,
    _Mlps,
    fit_mlp_ensemble,
    fit_sequence_ensemble,
)

QUICK = FitSettings(members=2, hidden=(8, 8), width=8, epochs=40, patience=40, batch_size=32, longest=12)


def _rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(seed)
    x = drawn.normal(size=(count, 3))
    return x, (x[:, 0] + x[:, 1] > 0).astype(np.int64) + (x[:, 0] + x[:, 1] > 1)


def _sequences(count: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    drawn = np.random.default_rng(seed)
    sequences = [drawn.normal(size=(drawn.integers(1, 10), 2)) for _ in range(count)]
    labels = np.array([int(one[:, 0].mean() > 0) for one in sequences])
    return sequences, drawn.normal(size=(count, 1)), labels


def test_an_ensemble_learns_and_its_heads_are_probabilities() -> None:
    x, labels = _rows(400)
    found = fit_mlp_ensemble(x, [labels, labels // 2], [3, 2], QUICK)
    new, truth = _rows(200, seed=1)
    fine, coarse = found.probabilities(new)
    assert np.allclose(fine.sum(axis=1), 1, atol=1e-5)
    assert np.mean(fine.argmax(axis=1) == truth) > 0.85
    assert np.mean(coarse.argmax(axis=1) == truth // 2) > 0.9


def test_the_same_seed_gives_the_same_networks_and_another_seed_others() -> None:
    x, labels = _rows(60)
    short = FitSettings(members=2, hidden=(4,), epochs=3)
    first, second = (fit_mlp_ensemble(x, [labels], [3], short) for _ in range(2))
    other = fit_mlp_ensemble(x, [labels], [3], FitSettings(members=2, hidden=(4,), epochs=3, seed=1))
    assert all(
        np.array_equal(a, b) for a, b in zip(first.to_arrays().values(), second.to_arrays().values(), strict=True)
    )
    assert not np.array_equal(first.layers[0][0], other.layers[0][0])


def test_a_sequence_model_learns_from_the_sequence() -> None:
    sequences, x, labels = _sequences(300)
    found = fit_sequence_ensemble(sequences, x, [labels], [2], QUICK)
    new, side, truth = _sequences(150, seed=1)
    (answer,) = found.probabilities(new, side)
    assert np.mean(answer.argmax(axis=1) == truth) > 0.85


def test_numpy_answers_what_torch_answers() -> None:
    generator = torch.Generator().manual_seed(0)
    network = _Encoder(2, 1, 3, FitSettings(width=8, layers=2, longest=12), generator)
    sequences, x, _ = _sequences(7)
    block, mask = pad_sequences(sequences)
    with torch.no_grad():
        logits = network(torch.from_numpy(block), torch.from_numpy(mask), torch.from_numpy(x.astype(np.float32)))
    arrays = {name: value.detach().numpy()[None] for name, value in network.named_parameters()}
    neutral = {"mean": 0.0, "scale": 1.0, "token_mean": 0.0, "token_scale": 1.0}
    sizes = {"mean": 1, "scale": 1, "token_mean": 2, "token_scale": 2}
    arrays |= {name: np.full((1, sizes[name]), value, dtype=np.float32) for name, value in neutral.items()}
    (answer,) = SequenceEnsemble.from_arrays(arrays, 2, [3]).probabilities(sequences, x)
    assert np.allclose(answer, logits.softmax(dim=-1).numpy(), atol=1e-5)


def test_padding_changes_nothing() -> None:
    sequences, x, labels = _sequences(40)
    found = fit_sequence_ensemble(sequences, x, [labels], [2], FitSettings(members=1, width=8, epochs=2, longest=12))
    (together,) = found.probabilities(sequences, x)
    alone = [found.probabilities([one], x[i : i + 1])[0][0] for i, one in enumerate(sequences)]
    assert np.allclose(together, np.array(alone), atol=1e-5)


def test_members_are_kept_each_at_its_own_best() -> None:
    x, labels = _rows(80)
    made = fit_mlp_ensemble(x, [labels], [3], FitSettings(members=3, hidden=(4,), epochs=5))
    assert made.layers[0][0].shape[0] == 3
    assert _Mlps((3, 4, 3), 3, torch.Generator())(torch.zeros(2, 3)).shape == (3, 2, 3)


def test_one_row_in_plain_numbers_is_the_same_row() -> None:
    sequences, x, labels = _sequences(40)
    settings = FitSettings(members=1, width=8, hidden=(4,), epochs=2, longest=5)
    long = fit_sequence_ensemble(sequences, x, [labels], [2], settings)
    plain = probabilities_of_one(long, x[0].tolist(), sequences[0].tolist())
    assert np.allclose(plain[0], long.probabilities([sequences[0][:5]], x[:1])[0][0])
    wide = fit_mlp_ensemble(x, [labels], [2], settings)
    assert np.allclose(probabilities_of_one(wide, x[0].tolist(), ())[0], wide.probabilities(x[:1])[0][0])
    assert sum(probabilities_of_one(long, x[0].tolist(), ())[0]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("labels", "heads", "words"),
    [
        ([[0, 1]], [2], "2 classes for 3 rows"),
        ([[0, 1, 2]], [2], "not one of the 2"),
        ([[0, 1, 0]], [2, 2], "for 2 heads"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels: list[list[int]], heads: list[int], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit_mlp_ensemble(np.zeros((3, 2)), [np.array(one) for one in labels], heads, QUICK)


def test_arrays_survive_bytes_and_wrong_ones_are_refused() -> None:
    x, labels = _rows(40)
    made = fit_mlp_ensemble(x, [labels], [3], FitSettings(members=2, hidden=(4,), epochs=2))
    arrays = made.to_arrays()
    shapes = [(name, array.shape) for name, array in arrays.items()]
    again = arrays_from_bytes(arrays_to_bytes(arrays), shapes)
    read = MlpEnsemble.from_arrays(again, [3])
    assert np.array_equal(read.probabilities(x)[0], made.probabilities(x)[0])
    with pytest.raises(ValueError, match="do not fit"):
        arrays_from_bytes(arrays_to_bytes(arrays)[:-4], shapes)
    with pytest.raises(ValueError, match="classes"):
        MlpEnsemble.from_arrays(again, [4])
    with pytest.raises(ValueError, match="first layer"):
        MlpEnsemble.from_arrays(again | {"mean": again["mean"][:-1]}, [3])
    with pytest.raises(ValueError, match="finite"):
        MlpEnsemble.from_arrays(again | {"weight0": again["weight0"] * np.nan}, [3])


def test_a_sequence_model_of_arrays_that_do_not_fit_is_refused() -> None:
    sequences, x, labels = _sequences(30)
    settings = FitSettings(members=1, width=8, hidden=(4,), epochs=1, longest=12)
    arrays = dict(fit_sequence_ensemble(sequences, x, [labels], [2], settings).to_arrays())
    assert SequenceEnsemble.from_arrays(arrays, 2, [2]).longest == 12
    for changed, heads in (
        ({"out_weight0": arrays["out_weight0"][:, :-1]}, [2]),
        ({"head_bias": np.concatenate([arrays["head_bias"]] * 2)}, [2]),
        ({}, [3]),
    ):
        with pytest.raises(ValueError, match=r"fit|shape|equally|mismatch|classes"):
            SequenceEnsemble.from_arrays({**arrays, **changed}, 2, heads)
    with pytest.raises(ValueError, match="multiple"):
        SequenceEnsemble.from_arrays(arrays, 3, [2])
