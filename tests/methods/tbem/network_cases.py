"""Parameters for small networks of each template, drawn at random over what each parameter takes."""

from __future__ import annotations

from hypothesis import strategies as st

from oomcast.methods.tbem import Parameter, Template, Value

_SMALL: dict[str, dict[str, st.SearchStrategy[Value]]] = {
    "vgg": {
        "depth": st.integers(8, 20),
        "convolutions": st.integers(5, 20),
        "edge": st.integers(24, 72),
        "width": st.sampled_from((0.03125, 0.0625, 0.125)),
        "dense_width": st.integers(1, 32),
    },
    "resnet": {"blocks": st.integers(4, 9), "edge": st.integers(8, 48), "width": st.sampled_from((0.0625, 0.125))},
    "mlp": {"features": st.integers(1, 40), "depth": st.integers(1, 6), "width": st.integers(1, 40)},
    "unet2d": {"edge": st.integers(8, 48), "width": st.integers(1, 8)},
    "unet3d": {"edge": st.integers(4, 20), "width": st.integers(1, 4)},
    "transformer": {
        "length": st.integers(1, 12),
        "vocabulary": st.integers(1, 50),
        "width": st.sampled_from((4, 6, 8, 12, 24)),
        "depth": st.integers(1, 3),
        "heads": st.sampled_from((1, 2, 3, 4)),
    },
    "lstm": {
        "length": st.integers(1, 12),
        "vocabulary": st.integers(2, 50),
        "width": st.integers(1, 12),
        "hidden": st.integers(1, 12),
        "depth": st.integers(1, 3),
    },
}
_EVERYWHERE: dict[str, st.SearchStrategy[Value]] = {
    "batch_size": st.integers(1, 3),
    "channels": st.integers(1, 4),
    "classes": st.integers(2, 12),
    "convolutions": st.integers(1, 3),
    "levels": st.integers(1, 5),
    "dropout": st.sampled_from((0.0, 0.25)),
}


def small_parameters(template: Template) -> st.SearchStrategy[dict[str, Value]]:
    return (
        st.fixed_dictionaries(
            {},
            optional={
                p.name: _values(p, template.name) for p in template.parameters if p.name not in _needed(template)
            },
        )
        .flatmap(
            lambda drawn: st.fixed_dictionaries({name: _SMALL[template.name][name] for name in _needed(template)}).map(
                lambda sizes: {**drawn, **sizes}
            )
        )
        .map(lambda values: {"batch_size": 2, **values})
    )


def _needed(template: Template) -> list[str]:
    """The parameters whose defaults would make the network large."""
    return list(_SMALL[template.name])


def _values(parameter: Parameter, template: str) -> st.SearchStrategy[Value]:
    if parameter.name in _EVERYWHERE:
        return _EVERYWHERE[parameter.name]
    if parameter.choices:
        return st.sampled_from(parameter.choices)
    if parameter.kind == "bool":
        return st.booleans()
    if parameter.kind == "float":
        return st.sampled_from((0.5, 1.0, 2.0))
    assert parameter.kind == "int"
    return st.integers(int(parameter.minimum or 0), int(parameter.minimum or 0) + 2)
