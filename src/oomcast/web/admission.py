"""Kubernetes asks before it admits a pod: an AdmissionReview comes in, and goes out with the verdict.

A pod says what it trains in the annotation `oomcast/job`: the JSON of a question, like
`{"job": "zoo:resnet50", "batch_size": 64}`. Its GPU is the node selector that NVIDIA's feature discovery sets. Of a Ray
cluster (KubeRay's RayCluster, RayJob, RayService) the workers are looked at, each pod as a node; the annotation may be
theirs or the cluster's.
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
_OF_RAY = "ray.io/cluster"
"""KubeRay's label on the pods that it makes."""


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
    told = _object(_object(request).get("object"))
    if _OF_RAY in _object(_object(told.get("metadata")).get("labels")):
        return Review(uid, None)  # a pod of a cluster that was looked at as a whole
    pod, copies = _pod(told)
    text = _annotation(pod)
    if text is None:
        text = _annotation(told)
    return Review(uid, None if text is None else _question(text, _object(pod.get("spec")), copies))


def _pod(told: Mapping[str, Any]) -> tuple[dict[str, Any], int]:
    """The pod that works on GPUs, and how many there are of it: of a Ray cluster its workers."""
    spec = _object(told.get("spec"))
    cluster = _object(spec.get("rayClusterSpec") or spec.get("rayClusterConfig")) or spec  # of a RayJob, a RayService
    groups = cluster.get("workerGroupSpecs")
    for group in map(_object, groups if isinstance(groups, list) else ()):
        template = _object(group.get("template"))
        if _gpus(_object(template.get("spec"))):
            replicas = group.get("replicas", 1)
            return template, replicas if type(replicas) is int and replicas > 0 else 1
    return _object(spec.get("template")) or dict(told), 1  # the template of a Job, a Deployment …


def _annotation(described: Mapping[str, Any]) -> Any:
    return _object(_object(described.get("metadata")).get("annotations")).get(ANNOTATION)


def _question(text: Any, spec: Mapping[str, Any], copies: int) -> dict[str, Any]:
    asked = read_json(text.encode()) if isinstance(text, str) else None
    if not isinstance(asked, dict):
        raise BadInput(f'the annotation {ANNOTATION} must be like {{"job": "zoo:resnet50", "batch_size": 64}}.')
    if "device" not in asked:
        product = _object(spec.get("nodeSelector")).get(_PRODUCT)
        if not isinstance(product, str):
            raise BadInput(f"the pod names no GPU: give the node selector {_PRODUCT}, or a device in {ANNOTATION}.")
        gpu, count = find_gpu(product).name, _gpus(spec)
        each = f"{count}x{gpu}" if count > 1 or copies > 1 else gpu
        asked["device"] = f"{copies}x{each}" if copies > 1 else each
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
