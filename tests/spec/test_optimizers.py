"""Names of optimizers: one table, split into what is trained with and how torch runs it."""

from __future__ import annotations

from oomcast.spec import DEFAULT_OPTIMIZER, OPTIMIZER_KINDS, OPTIMIZERS, VARIANTS, missing_optimizer, split_optimizer


def test_every_name_is_a_kind_with_or_without_a_variant() -> None:
    for name in OPTIMIZERS:
        base, variant = split_optimizer(name)
        assert base in OPTIMIZER_KINDS
        assert variant in ("", *VARIANTS)
        assert name == (f"{base}-{variant}" if variant else base)
    assert len(set(OPTIMIZERS)) == len(OPTIMIZERS)
    assert DEFAULT_OPTIMIZER in OPTIMIZERS
    assert split_optimizer("sgd-momentum") == ("sgd-momentum", "")
    assert "rmsprop-fused" not in OPTIMIZERS


def test_torch_has_the_classes_and_the_variants() -> None:
    import torch

    from oomcast.capture.torch.optimizers import make_optimizer

    for name in OPTIMIZERS:
        base, variant = split_optimizer(name)
        if OPTIMIZER_KINDS[base].library != "torch":
            continue
        kind = OPTIMIZER_KINDS[base]
        parameters = [torch.nn.Parameter(torch.zeros(2, 2) if kind.matrices_only else torch.zeros(2))]
        made = make_optimizer(name, parameters)
        optimizer = made.parts[0] if kind.matrices_only else made
        assert type(optimizer).__name__ == OPTIMIZER_KINDS[base].class_name
        assert kind.matrices_only or optimizer.defaults.get("momentum", 0.0) == kind.momentum
        assert VARIANTS.get(variant, {}).items() <= optimizer.defaults.items()


def test_the_sentence_for_one_that_a_framework_lacks() -> None:
    error = missing_optimizer("Keras", "adam-fused", ["sgd", "adam"])
    assert str(error) == "Keras has no optimizer adam-fused; choose among sgd, adam, without a suffix."
