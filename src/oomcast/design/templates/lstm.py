"""A recurrent language model: LSTM layers, or GRU or plain ones, that predict each next token."""

from __future__ import annotations

from ._builder import Builder, Given
from ._network import Input, Network
from ._parameters import NetworkTemplate, batch_size, choice, dropout, flag, optimizer, whole

__all__ = ["LSTM"]


def _build(given: Given) -> Network:
    builder = Builder()
    rate, vocabulary = given.real("dropout"), given.whole("vocabulary")
    builder.at("tokens")
    x = builder.drop(builder.add("embedding", "x", rows=vocabulary, width=given.whole("width")), rate)
    builder.at("recurrent")
    x = builder.add(
        "recurrent",
        x,
        cell=given.text("cell"),
        hidden=given.whole("hidden"),
        layers=given.whole("depth"),
        bidirectional=given.flag("bidirectional"),
        dropout=rate if given.whole("depth") > 1 else 0.0,
        bias=given.flag("bias"),
    )
    builder.at("head")
    builder.linear(builder.drop(x, rate), vocabulary)
    cell = {"lstm": "LSTM", "gru": "GRU", "rnn": "plain recurrent"}[given.text("cell")]
    return Network(
        "lstm",
        f"A language model of {given.whole('depth')} {cell} layers, {given.whole('hidden')} wide",
        given.whole("batch_size"),
        Input((given.whole("length"),), vocabulary=vocabulary),
        tuple(builder.layers),
        "tokens",
        vocabulary,
        given.text("optimizer"),
    )


LSTM = NetworkTemplate(
    "lstm",
    (
        batch_size(20),
        whole("length", 35, 1, 65_536, "tokens in a text"),
        whole("vocabulary", 10_000, 2, 1_000_000, "different tokens"),
        whole("width", 650, 1, 32_768, "width of a token's vector"),
        whole("hidden", 650, 1, 32_768, "width of the recurrent layers"),
        whole("depth", 2, 1, 64, "recurrent layers"),
        choice("cell", "lstm", ("lstm", "gru", "rnn"), "the kind of recurrent layer"),
        flag("bidirectional", False, "whether a second cell reads each text from its end"),
        flag("bias", True, "whether recurrent layers have biases"),
        dropout(0.5, "between layers"),
        optimizer("sgd"),
    ),
    _build,
)
