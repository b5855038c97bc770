"""Mutated requests to the service: it must not end, run code, read a file, or answer without the token."""

from __future__ import annotations

import base64
import http.client
import json
import random
import re
import socket
import time
from collections import Counter
from pathlib import Path
from typing import Any

from oomcast.web.questions import KINDS

from .served import send, serving

__all__ = ["attack"]

_TOKEN = "laboratory-token-0123"
_SECRET = "SECRET-OF-THE-SERVER"

_JOBS = (
    *(
        "zoo:mlp",
        "hf:../../{secret}",
        "hf:{secret}",
        "{secret}",
        "job.py",
        "file:///{secret}",
        "timm:local-dir:{folder}",
    ),
    *(
        "zoo:" + "a" * 5000,
        "template:mlp",
        "hf:a/../..",
        "config.json",
        "a.yml",
        "\ud800",
        "zoo:\0",
        "",
        "torchvision:x",
    ),
)
_FILES = (
    {"config.json": '{"model_type": "gpt2", "auto_map": {"AutoConfig": "{folder}--x.y"}, "_name_or_path": "{secret}"}'},
    {"a.yml": "base_model: {folder}\nmicro_batch_size: 1\nsequence_len: 8\n"},
    {"a.yml": "a: &a [x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n"},
    {"a.yml": "!!python/object/apply:os.system ['touch {folder}/ran']"},
    {"../x.json": "{}"},
    {"x.py": "open('{folder}/ran', 'w')"},
    {"config.json": "[" * 5000},
)
_RECORDINGS = (
    "cos\nsystem\n(S'touch {folder}/ran'\ntR.",
    "cbuiltins\nopen\n(S'{secret}'\ntR.",
    "\x1f\x8b",
    '{"segments": [], "device_traces": [[{"action": "alloc", "addr": -1, "size": 1e99}]]}',
    "{}",
    "",
)
"""What a comparison gets instead of a memory snapshot."""
_PATHS = (
    *(
        "/estimate",
        "/answers/{random}",
        "/questions/%00",
        "/page/../../{secret}",
        "/page/%2e%2e%2f%2e%2e",
        "/page/app.js",
    ),
    *(
        "/health",
        "/metrics",
        "/openapi.json",
        "/models",
        "/",
        *("/sweep", "/map", "/compare", "/report", "/gpus", "/advise", "/admission", "/replay"),
        "/words",
        "//",
        "/%ff%fe",
        "/?token=x",
    ),
)


def attack(folder: Path, count: int, seed: int, seconds: float) -> dict[str, Any]:
    """With a token, which most requests do not have; the others send what may do harm."""
    chance = random.Random(seed)
    target = folder / "target"
    target.mkdir()
    (target / "config.json").write_text(json.dumps({"model_type": "gpt2", "n_layer": 1, "note": _SECRET}))
    statuses: Counter[str] = Counter()
    faults: list[str] = []
    deadline = time.monotonic() + seconds
    # Questions that pass are to be refused by the worker; a capture of each would take hours.
    with serving(folder / "attacked.db", "--token", _TOKEN, "--time-limit", "20") as server:
        for number in range(count):
            if time.monotonic() > deadline:
                break
            allowed = chance.random() < 0.5
            try:
                status, body = _mutated(server.port, chance, target, allowed)
            except (OSError, http.client.HTTPException) as error:
                statuses[type(error).__name__] += 1
                if server.process.poll() is not None:
                    return {"requests": number, "faults": ["the server ended"]}
                continue
            statuses[str(status)] += 1
            if not allowed and 200 <= status < 300:
                faults.append(f"request {number}: answered {status} without the token")
            if status >= 500 and status != 503:
                faults.append(f"request {number}: status {status}")
            if _SECRET.encode() in body:
                faults.append(f"request {number}: a file of the server was read")
        alive = send(server.port, "GET", "/health", None, {"Authorization": f"Bearer {_TOKEN}"})[0] == 200
    if not alive:
        faults.append("the server does not answer any more")
    if (target / "ran").exists():
        faults.append("code was run")
    return {"requests": sum(statuses.values()), "statuses": dict(sorted(statuses.items())), "faults": faults}


def _mutated(port: int, chance: random.Random, target: Path, allowed: bool) -> tuple[int, bytes]:
    path = (
        chance.choice(_PATHS)
        .replace("{secret}", str(target / "config.json"))
        .replace("{random}", chance.randbytes(8).hex())
    )
    headers = {"Authorization": f"Bearer {_TOKEN if allowed else chance.choice(('', 'x', _TOKEN[:-1], _TOKEN + 'x'))}"}
    if chance.random() < 0.2:
        headers[chance.choice(("Host", "Origin", "Cookie", "Content-Type", "Transfer-Encoding", "X-Forwarded-For"))] = (
            chance.choice(("evil.example", "a" * 9000, "\x7f", "=;=;", "chunked", "127.0.0.1, x"))
        )
    if chance.random() < 0.05:
        return _raw(port, chance)
    method = chance.choice(("GET", "POST", "POST", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE"))
    body = _body(chance, target, path) if method in ("POST", "PUT") else None
    if path.removeprefix("/") in (*KINDS, "admission") and body is not None and b"zoo:mlp" in body:
        path = "/words"  # the same reading, without a capture
    return send(port, method, path, body, headers)


def _body(chance: random.Random, target: Path, path: str) -> bytes:
    def filled(text: str) -> str:
        return text.replace("{secret}", str(target / "config.json")).replace("{folder}", str(target))

    values: list[Any] = [
        1,
        -1,
        0,
        1e308,
        10**30,
        None,
        True,
        "x",
        "fp32",
        [],
        {},
        [[]],
        "\ud800",
        "a" * 3000,
        "-1",
        [1, 2],
    ]
    names = [
        "batch_size",
        "device",
        "seq_len",
        "adapter",
        "configs",
        "model",
        "calibration",
        "write_files",
        "precision",
    ]
    asked: dict[str, Any] = {"job": filled(chance.choice(_JOBS)), "device": "t4", "batch_size": 1}
    for _ in range(chance.randrange(4)):
        asked[chance.choice(names)] = chance.choice(values)
    if chance.random() < 0.3:
        asked["files"] = {name: filled(text) for name, text in chance.choice(_FILES).items()}
    if chance.random() < 0.2:
        recording = filled(chance.choice(_RECORDINGS)).encode("latin-1")
        asked["snapshot"] = base64.b64encode(recording).decode() if chance.random() < 0.9 else "%%"
    if path == "/replay":
        asked = {name: value for name, value in asked.items() if name == "snapshot" or chance.random() < 0.1}
    if path == "/admission":
        asked = _review(asked)
    data = bytearray(json.dumps(asked).encode())
    if chance.random() < 0.3:
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data) if chance.random() < 0.97 else b"[" * 300_000


def _review(asked: dict[str, Any]) -> dict[str, Any]:
    """The question as the annotation of a pod that Kubernetes asks about."""
    pod = {"metadata": {"annotations": {"oomcast/job": json.dumps(asked)}}, "spec": {"containers": [{"name": "a"}]}}
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"uid": "1", "kind": {"kind": "Pod"}, "object": {"kind": "Pod", **pod}},
    }


def _raw(port: int, chance: random.Random) -> tuple[int, bytes]:
    """What is no HTTP."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(
            chance.choice((b"GET / HTTP/9.9\r\n\r\n", chance.randbytes(200), b"\r\n" * 50, b"A" * 20_000))
        )
        connection.shutdown(socket.SHUT_WR)
        found = connection.recv(4096)
    status = re.match(rb"HTTP/1\.1 (\d+)", found)
    return int(status[1]) if status else 400, found
