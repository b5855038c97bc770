"""`--write-summary FILE`: the table of `oomcast accuracy`, renewed for the data sets that were judged."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from oomcast import __version__
from oomcast.errors import BadInput
from oomcast.estimation.accuracy import Calls, RecordedAccuracy, accuracy_to_json, read_accuracy

from .judging import judge_parts
from .metrics import Score
from .running import Result

__all__ = ["WHAT", "write_summary"]

WHAT: Mapping[str, str] = {
    "timm_a100_fp32": "image models of timm, fp32",
    "timm_rtx3090_fits": "image models of timm, fp16: did the batch fit?",
    "real_models": "named models: ResNet, VGG, BERT, GPT-2 …",
    "xmem_runs": "xMem's own runs: CNNs and small language models",
    "gpumemnet_mlp_step1": "random multilayer perceptrons of GPUMemNet",
    "gpumemnet_mlp_step2": "random multilayer perceptrons of GPUMemNet, with norms and dropout",
    "gpumemnet_cnn": "random convolutional networks of GPUMemNet",
    "gpumemnet_transformer": "Transformer encoders of GPUMemNet",
    "litgpt": "fine-tuning of language models: full, LoRA, adapters",
    "rasbt_memory": "a GPT of 124 million parameters and a large ViT",
    "hf_docs_bert_large": "BERT-large in January 2022",
    "torchtune": "fine-tuning of Llama 3.2 3B",
    "torchao": "fine-tuning of a giant ViT, bf16",
}
"""In words for somebody who has never heard of the file."""


def write_summary(results: Mapping[str, Sequence[Result]], estimator: str, path: Path) -> None:
    """One row for each data set and GPU. Rows of other sets in the file stay; it is made where there is none.

    The runs count as seen: whoever judges on runs that were kept aside writes so into the file.
    """
    judged = [row for name, found in results.items() for row in _rows(name, found, estimator)]
    if not judged:
        raise BadInput("there is nothing to summarise: no run of these data sets was judged.")
    try:
        before = read_accuracy(path.read_text(encoding="utf-8")) if path.exists() else ()
        renewed = {(row.data, row.gpu): row for row in (*before, *judged)}
        content = accuracy_to_json(tuple(renewed.values()))
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise BadInput(f"cannot write the summary to {path}: {error.strerror or error}.") from error


def _rows(data: str, results: Sequence[Result], estimator: str) -> list[RecordedAccuracy]:
    scores = judge_parts(results, [estimator], lambda result: result.case.gpu)
    return [_row(data, score) for score in scores if score.estimator == estimator]


def _row(data: str, score: Score) -> RecordedAccuracy:
    return RecordedAccuracy(
        data=data,
        what=WHAT.get(data, data),
        gpu=score.data,
        runs=score.rows,
        median_error=_rounded(score.mre),
        p90_error=_rounded(score.p90),
        exceeded=_rounded(score.exceeded),
        fits=_calls(score.runs_right, score.runs),
        ooms=_calls(score.ooms_right, score.ooms),
        kept_aside=False,
        version=__version__,
        date=datetime.date.today().isoformat(),
        source="python -m lab accuracy --write-summary",
    )


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)


def _calls(share: float | None, count: int) -> Calls | None:
    return None if share is None else Calls(round(share * count), count)
