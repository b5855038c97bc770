"""The large LSTM language model of Zaremba et al.: two layers of 1500 units, dropout 0.65 between all layers."""

from __future__ import annotations

from torch import Tensor, nn

from ._entry import ZooModel
from ._jobs import CausalLmJob

__all__ = ["LstmLm", "lstm_lm"]

_VOCABULARY = 10_000


class LstmLm(nn.Module):
    """Each batch starts from a state of zeros."""

    def __init__(self, vocabulary: int, width: int, depth: int, dropout: float) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width)
        self.dropout = nn.Dropout(dropout)
        self.lstm = nn.LSTM(width, width, depth, batch_first=True, dropout=dropout)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, input_ids: Tensor) -> Tensor:
        x, _ = self.lstm(self.dropout(self.words(input_ids)))
        return self.head(self.dropout(x))


def lstm_lm(entry: ZooModel) -> CausalLmJob:
    return CausalLmJob(entry, lambda: LstmLm(_VOCABULARY, 1500, 2, 0.65), _VOCABULARY, positions=None)
