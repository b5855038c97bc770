"""The service as programs see it: the command line's answers, and nothing else."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from service_process import Service, running

import oomcast
from oomcast.cli import main
from oomcast.errors import BadInput
from oomcast.report import snapshot_as_pickle
from oomcast.web import Client
from oomcast.web.admission import read_review
from oomcast.web.questions import OFFERED

MLP = {"job": "zoo:mlp", "batch_size": 48, "device": "rtx-3090", "optimizer": "sgd"}
TOKEN = "a-token-for-the-tests"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("service")) as started:
        yield started


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    with running(tmp_path_factory.mktemp("guarded"), "--token", TOKEN) as started:
        yield started


def without_seconds(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if '"seconds"' not in line)


def test_an_answer_is_that_of_the_command_line_to_the_byte(
    service: Service, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "estimate zoo:mlp --batch-size 48 --device rtx-3090 --optimizer sgd --json"
    assert main(words.split()) == 0
    expected = capsys.readouterr().out
    service.ask("estimate", **MLP)
    status, headers, body = service.send("POST", "/estimate", MLP)
    assert status == 200
    assert without_seconds(body.decode()) == without_seconds(expected)
    assert headers["x-oomcast-cached"] == "yes"
    told = service.send("GET", f"/questions/{headers['x-oomcast-question']}")
    assert json.loads(told[2])["state"] == "done"
    assert service.send("GET", f"/answers/{headers['x-oomcast-question']}")[2] == body


def test_a_recording_is_replayed_without_a_job(
    service: Service, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    history = oomcast.estimate(**MLP, keep_history=True).history
    assert history is not None
    (tmp_path / "run.pickle").write_bytes(snapshot_as_pickle(history))
    sent = {"snapshot": base64.b64encode((tmp_path / "run.pickle").read_bytes()).decode()}
    assert main(["replay", str(tmp_path / "run.pickle"), "--json"]) == 0
    assert service.ask("replay", **sent) == json.loads(capsys.readouterr().out)
    assert json.loads(Client(service.address).ask("replay", **sent))["exact"] is True
    grown = service.ask("replay", **sent, alloc_conf="expandable_segments:True")
    assert grown["settings"]["expandable_segments"] is True
    for wrong, sentence in (
        ({"snapshot": "AAAA"}, "recorded.pickle"),
        ({**sent, "alloc_conf": "expandable_segments"}, "expandable_segments"),
        ({**sent, "job": "zoo:mlp"}, "option of a replay"),
        ({}, "snapshot is missing"),
    ):
        status, _, body = service.send("POST", "/replay?wait=60", wrong)
        assert (status, sentence in json.loads(body)["error"]) == (400, True), body


def test_a_new_question_is_told_its_place_and_answered_later(service: Service) -> None:
    asked = [{**MLP, "batch_size": size} for size in (3, 5, 7, 9, 11, 13)]
    waiting = [json.loads(service.send("POST", "/estimate", one)[2]) for one in asked]
    assert {one["state"] for one in waiting} <= {"waiting", "taken"}
    assert [one for one in waiting if one["state"] == "waiting"][-1]["place"] >= 1
    for one, question in zip(waiting, asked, strict=True):
        service.ask("estimate", **question)
        assert json.loads(service.send("GET", one["url"])[2])["state"] == "done"


def review(annotation: str | None, product: str = "NVIDIA-GeForce-RTX-3090", gpus: int = 1) -> dict[str, Any]:
    """As Kubernetes sends it for a Job."""
    template = {
        "metadata": {"annotations": {} if annotation is None else {"oomcast/job": annotation}},
        "spec": {
            "nodeSelector": {"nvidia.com/gpu.product": product},
            "containers": [{"name": "train", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}],
        },
    }
    request = {"uid": "u-1", "kind": {"kind": "Job"}, "object": {"kind": "Job", "spec": {"template": template}}}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def test_kubernetes_is_told_which_pods_fit(service: Service) -> None:
    def answer(*told: Any, **more: Any) -> dict[str, Any]:
        status, _, body = service.send("POST", "/admission", review(*told, **more))
        assert status == 200, body
        response: dict[str, Any] = json.loads(body)["response"]
        assert response["uid"] == "u-1"
        return response

    assert answer(None) == {"uid": "u-1", "allowed": True}
    service.ask("estimate", **MLP)
    assert answer(json.dumps({name: value for name, value in MLP.items() if name != "device"}))["allowed"]
    large = {"job": "zoo:mlp", "batch_size": 3_000_000}
    service.ask("estimate", **large, device="t4")
    refused = answer(json.dumps(large), product="Tesla-T4")
    assert not refused["allowed"]
    assert "does not fit" in refused["status"]["message"]
    for annotation, told in (("[1]", "must be like"), ('{"job": "job.py"}', "code")):
        status, _, body = service.send("POST", "/admission", review(annotation))
        assert (status, told in body.decode()) == (400, True)
    assert service.send("POST", "/admission", {"kind": "Pod"})[0] == 400


def test_a_review_reads_the_gpu_of_the_pod() -> None:
    asked = read_review(review('{"job": "zoo:mlp"}', product="NVIDIA-A100-SXM4-40GB", gpus=4)).asked
    assert asked == {"job": "zoo:mlp", "device": "4xa100-40gb"}
    with pytest.raises(BadInput, match="unknown"):
        read_review(review('{"job": "zoo:mlp"}', product="Toaster"))


def ray_review(kind: str, annotated: str, replicas: int = 2, gpus: int = 4) -> dict[str, Any]:
    """As Kubernetes sends it for a resource of KubeRay; the head has no GPU."""
    told = {"annotations": {"oomcast/job": '{"job": "zoo:mlp", "parallel": "fsdp2"}'}}

    def template(count: int) -> dict[str, Any]:
        limits = {"limits": {"nvidia.com/gpu": str(count)} if count else {"cpu": "2"}}
        spec = {
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "containers": [{"resources": limits}],
        }
        return {"metadata": told if annotated == "workers" and count else {}, "spec": spec}

    cluster: dict[str, Any] = {
        "headGroupSpec": {"template": template(0)},
        "workerGroupSpecs": [
            {"groupName": "data", "replicas": 9, "template": template(0)},
            {"groupName": "training", "replicas": replicas, "template": template(gpus)},
        ],
    }
    within = {"RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
    spec = {within[kind]: cluster} if kind in within else cluster
    resource = {"kind": kind, "metadata": told if annotated == "cluster" else {}, "spec": spec}
    request = {"uid": "u-2", "kind": {"kind": kind}, "object": resource}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


@pytest.mark.parametrize("kind", ["RayCluster", "RayJob", "RayService"])
@pytest.mark.parametrize("annotated", ["workers", "cluster"])
def test_a_ray_cluster_is_its_workers(kind: str, annotated: str) -> None:
    asked = {"job": "zoo:mlp", "parallel": "fsdp2"}
    assert read_review(ray_review(kind, annotated)).asked == {**asked, "device": "2x4xh100-80gb"}
    assert read_review(ray_review(kind, annotated, replicas=2, gpus=1)).asked == {**asked, "device": "2x1xh100-80gb"}
    assert read_review(ray_review(kind, annotated, replicas=1, gpus=1)).asked == {**asked, "device": "h100-80gb"}
    assert read_review(ray_review(kind, "nobody")).asked is None


def test_a_pod_of_a_ray_cluster_is_not_asked_about_alone() -> None:
    pod = review('{"job": "zoo:mlp"}')
    assert read_review(pod).asked is not None
    pod["request"]["object"]["metadata"] = {"labels": {"ray.io/cluster": "train"}}
    assert read_review(pod).asked is None


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"job": "job.py"}, "code"),
    ({"job": "/etc/passwd"}, "no paths"),
    ({"job": "hf:/etc"}, "no paths"),
    ({"job": "hf:../../etc/config.json"}, "no paths"),
    ({"job": "hf:a/.."}, "no paths"),
    ({"job": "timm:local-dir:/etc"}, "not taken"),
    ({"job": "timm:a/b"}, "unknown timm model"),
    ({"job": "template:mlp,width=4"}, "not taken"),
    ({"job": "zoo:mlp", "calibration": "/etc/passwd"}, "names a file of the server"),
    ({"job": "zoo:mlp", "write_files": True}, "write to the server"),
    ({"job": "zoo:mlp", "keep_history": True}, "unknown option"),
    ({"job": "zoo:mlp", "model": "../x"}, "no name"),
    ({"job": "hf:gpt2", "objective": "grpo", "reward_model": "/etc/passwd"}, "no name"),
    ({"job": "hf:gpt2", "objective": "grpo", "reward_model": "hf:../x/config.json"}, "no name"),
    ({"job": "zoo:mlp", "configs": ["/etc/passwd"]}, "in files"),
    ({"job": "zoo:mlp", "batch_size": 10**13}, "beyond"),
    ({"job": "zoo:mlp", "batch_size": 0}, "at least 1"),
    ({"job": "zoo:mlp", "time_limit": 1e6}, "at most"),
    ({"job": "zoo:mlp", "device": "a\u0000b"}, "cannot be shown"),
    ({"job": "zoo:mlp", "devise": "t4"}, "did you mean device"),
    ({"job": "hf:gpt2", "adapter": "prompt_tuning,tokenizer_name_or_path=/etc"}, "tokenizer_name_or_path"),
    ({"job": "hf:gpt2", "adapter": {"kind": "lora", "target_modules": "/etc/passwd"}}, "target_modules"),
    ({"job": "x.py", "files": {"x.py": "import os"}}, "code"),
    ({"job": "../x.json", "files": {"../x.json": "{}"}}, "plain name"),
    ({"job": 7}, "missing"),
]


@pytest.mark.parametrize(("asked", "words"), REFUSED)
def test_what_is_code_or_a_path_is_refused_in_a_sentence(service: Service, asked: dict[str, Any], words: str) -> None:
    status, _, body = service.send("POST", "/estimate", {"batch_size": 2, "device": "t4", **asked})
    assert status == 400
    assert words in json.loads(body)["error"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{", b"\xff", b'{"job": NaN}', b"[" * 100_000, b'{"a": 1' + b"0" * 9000 + b"}"]
)
def test_what_is_no_question_is_refused(service: Service, body: bytes) -> None:
    status, _, answer = service.send("POST", "/estimate", body)
    assert status == 400
    assert json.loads(answer)["error"]


def test_files_are_data_of_bounded_size(service: Service) -> None:
    status, _, _ = service.send("POST", "/estimate", b" " * (300 * 1024))
    assert status == 413
    names_a_path = "base_model: /etc\nmicro_batch_size: 1\nsequence_len: 64\n"
    asked = {"job": "a.yml", "files": {"a.yml": names_a_path}, "device": "t4"}
    status, _, body = service.send("POST", "/estimate?wait=60", asked)
    while status == 202:
        status, _, body = service.send("POST", "/estimate?wait=60", asked)
    assert status == 400
    assert "no paths" in json.loads(body)["error"]


def test_a_dropped_configuration_is_read(service: Service, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 500}
    config = json.dumps({"model_type": "gpt2", **sizes})
    asked = {"job": "config.json", "files": {"config.json": config}, "batch_size": 2, "seq_len": 32, "device": "t4"}
    found = service.ask("estimate", **asked)
    assert found["workload"]["job"] == "hf:config.json"
    assert found["breakdown"]["parameter"] > 0


def test_other_names_origins_and_methods_are_not_answered(service: Service) -> None:
    assert service.send("GET", "/health", headers={"Host": "evil.example"})[0] == 421
    assert service.send("GET", "/health", headers={"Host": f"localhost:{service.port}"})[0] == 200
    assert service.send("POST", "/estimate", MLP, {"Origin": "http://evil.example"})[0] == 403
    assert service.send("POST", "/estimate", MLP, {"Content-Type": "text/plain"})[0] == 415
    assert service.send("OPTIONS", "/estimate", headers={"Origin": "http://evil.example"})[0] == 403
    assert service.send("DELETE", "/estimate")[0] == 405
    status, headers, _ = service.send("GET", "/health")
    assert status == 200
    assert not [name for name in headers if name.startswith("access-control")]


@pytest.mark.parametrize("path", ["/", "/health", "/metrics", "/models", "/openapi.json", "/page/app.js", "/answers/x"])
def test_nothing_is_answered_without_the_token(guarded: Service, path: str) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": "oomcast_token=wrong"}, {"Cookie": "=;;\x7f"}):
        assert guarded.send("GET", path, headers=headers)[0] == 401
    assert guarded.send("POST", "/estimate", MLP)[0] == 401
    assert guarded.send("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})[0] in (200, 404)


def test_a_browser_brings_the_token_once(guarded: Service) -> None:
    assert guarded.send("GET", "/?token=wrong")[0] == 401
    status, headers, _ = guarded.send("GET", f"/?token={TOKEN}")
    assert status == 303
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=Strict" in headers["set-cookie"]
    assert guarded.send("GET", "/health", headers={"Cookie": f"oomcast_token={TOKEN}"})[0] == 200
    assert TOKEN not in guarded.log.read_text()


def test_it_describes_itself_with_every_option(service: Service) -> None:
    api = json.loads(service.send("GET", "/openapi.json")[2])
    body = api["paths"]["/estimate"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert set(body["properties"]) == {"job", "files", *(option.name for option in OFFERED)}
    assert body["properties"]["precision"]["enum"] == ["fp32", "tf32", "amp-fp16", "amp-bf16", "bf16"]
    for page in ("/", "/docs", "/page/app.css", "/page/api.js"):
        status, _, content = service.send("GET", page)
        assert status == 200
        assert b"//cdn" not in content
        assert b"https://" not in content


def test_lists_health_and_metrics(service: Service) -> None:
    models = json.loads(service.send("GET", "/models")[2])
    assert {"zoo", "others", "shipped"} <= set(models)
    assert "rtx-3090" in {gpu["name"] for gpu in json.loads(service.send("GET", "/devices")[2])}
    assert json.loads(service.send("GET", "/health")[2])["status"] == "ok"
    service.ask("estimate", **MLP)
    metrics = service.send("GET", "/metrics")[2].decode()
    assert 'oomcast_answers_total{kind="estimate",state="done"}' in metrics
    assert "oomcast_request_seconds_count" in metrics
    lines = [json.loads(line) for line in service.log.read_text().splitlines()]
    assert {"time", "event", "method", "path", "status", "ms"} <= set(lines[-1])


def test_the_client_gets_the_same_and_raises_what_the_service_says(service: Service, guarded: Service) -> None:
    client = Client(service.address)
    assert client.estimate(**MLP)["verdict"] == "fits"
    with pytest.raises(BadInput, match="code"):
        client.estimate("job.py", batch_size=1, device="t4")
    with pytest.raises(BadInput, match="token"):
        Client(guarded.address).get("/health")
    assert "ok" in Client(guarded.address, TOKEN).get("/health")


def test_values_between_captures_are_those_of_captures_and_say_what_they_are(service: Service) -> None:
    swept = service.ask("sweep", **MLP)
    by_value = {point["value"]: point for point in swept["points"]}
    assert [value for value, point in by_value.items() if point["captured"]] == [1, 48, 512]
    assert not by_value[96]["captured"]
    captured = service.ask("estimate", **{**MLP, "batch_size": 96})
    for name in ("device_total", "low", "high", "p_oom", "verdict", "breakdown", "peak_allocated", "least_capacity"):
        assert by_value[96][name] == captured[name]


def test_a_host_that_others_reach_needs_a_token(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "0.0.0.0", "--no-browser"]) == 2
    assert "token" in capsys.readouterr().err
    assert main(["serve", "--token", "short", "--no-browser"]) == 2
