"""Kubernetes asks before it admits a pod: an AdmissionReview comes in, and goes out with the verdict.

A pod says what it trains in the annotation `oomcast/job`: the JSON of a question, like
`{"job": "zoo:resnet50", "batch_size": 64}`. Its GPU is the node selector that NVIDIA's feature discovery sets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..devices import find_gpu
from ..errors import BadInput
from .questions import read_json

__all__ = ["ANNOTATION", "Review", "judged", "read_review", "reviewed"]

ANNOTATION = "oomcast/job"
_PRODUCT, _GPUS = "nvidia.com/gpu.product", "nvidia.com/gpu"


class Review(NamedTuple):
    uid: str
    asked: dict[str, Any] | None
    """The question; None where the pod says nothing of what it trains."""


def read_review(given: Any) -> Review:
    """Raises BadInput for what is no review, or where the annotation cannot be asked."""
    request = _object(given).get("request")
    uid = _object(request).get("uid")
    if not isinstance(uid, str) or not uid:
        raise BadInput("this is no AdmissionReview of Kubernetes: its request has no uid.")
    pod = _object(_object(request).get("object"))
    template = _object(_object(pod.get("spec")).get("template"))  # of a Job, a Deployment …
    pod = template or pod
    text = _object(_object(pod.get("metadata")).get("annotations")).get(ANNOTATION)
    return Review(uid, None if text is None else _question(text, _object(pod.get("spec"))))


def _question(text: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    asked = read_json(text.encode()) if isinstance(text, str) else None
    if not isinstance(asked, dict):
        raise BadInput(f'the annotation {ANNOTATION} must be like {{"job": "zoo:resnet50", "batch_size": 64}}.')
    if "device" not in asked:
        product = _object(spec.get("nodeSelector")).get(_PRODUCT)
        if not isinstance(product, str):
            raise BadInput(f"the pod names no GPU: give the node selector {_PRODUCT}, or a device in {ANNOTATION}.")
        gpu, count = find_gpu(product).name, _gpus(spec)
        asked["device"] = f"{count}x{gpu}" if count > 1 else gpu
    return asked


def _gpus(spec: Mapping[str, Any]) -> int:
    containers = spec.get("containers")
    limits = [
        _object(_object(_object(one).get("resources")).get("limits")).get(_GPUS, 0)
        for one in (containers if isinstance(containers, list) else ())
    ]
    try:
        return sum(int(limit) for limit in limits)
    except (TypeError, ValueError):
        raise BadInput(f"the limit {_GPUS} of a container is no number.") from None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def judged(uid: str, estimate: Mapping[str, Any], sentence: str) -> dict[str, Any]:
    """Refused where it does not fit; where it is tight, admitted with a warning."""
    verdict = estimate["verdict"]
    if verdict == "oom":
        return reviewed(uid, refusal=f"it does not fit: {sentence}")
    return reviewed(uid, warning="" if verdict == "fits" else f"{verdict}: {sentence}")


def reviewed(uid: str, *, refusal: str = "", warning: str = "") -> dict[str, Any]:
    """The answer to a review."""
    response: dict[str, Any] = {"uid": uid, "allowed": not refusal}
    if refusal:
        response["status"] = {"code": 403, "message": f"oomcast: {refusal}"}
    if warning:
        response["warnings"] = [f"oomcast: {warning}"]
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}
