"""`python -m lab serve`: the service under load, killed, and attacked. On this machine only, bounded in count and time.

Three parts: cached answers at a steady rate (latency, memory); many clients with new questions while the server is
killed and started again (none may be lost); mutated requests (no crash, no answer without the token, no file read).
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import random
import re
import socket
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from oomcast.errors import OomcastError
from oomcast.units import format_bytes
from oomcast.web import Client

from .served import Server, serving

__all__ = ["add_to"]

_TOKEN = "laboratory-token-0123"
_CACHED: dict[str, Any] = {"job": "zoo:mlp", "batch_size": 16, "device": "t4"}
_SECRET = "SECRET-OF-THE-SERVER"


def add_to(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("serve", help="the service under load, killed, attacked")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="S", help="of cached answers (default: 60)")
    parser.add_argument("--rate", type=float, default=1000.0, metavar="N", help="requests a minute (default: 1000)")
    parser.add_argument("--clients", type=int, default=50, metavar="N", help="with new questions (default: 50)")
    parser.add_argument("--kills", type=int, default=2, metavar="N", help="of the server meanwhile (default: 2)")
    parser.add_argument("--requests", type=int, default=5000, metavar="N", help="mutated ones (default: 5000)")
    parser.add_argument("--attack-seconds", type=float, default=3600.0, metavar="S", help="at most (default: 3600)")
    parser.add_argument("--seed", type=int, default=1, metavar="N")
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="oomcast-lab-") as folder:
        place = Path(folder)
        if options.seconds > 0:
            told["cached"] = _cached(place / "cached.db", options.seconds, options.rate)
        if options.clients > 0:
            told["killed"] = _killed(place / "killed.db", options.clients, options.kills)
        if options.requests > 0:
            told["attacked"] = _attacked(place, options.requests, options.seed, options.attack_seconds)
    faults = [fault for part in told.values() for fault in part["faults"]]
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        for name, part in told.items():
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in part.items()))
    return 1 if faults else 0


def _cached(store: Path, seconds: float, rate: float) -> dict[str, Any]:
    with serving(store) as server:
        Client(f"http://127.0.0.1:{server.port}").estimate(**_CACHED)
        body, times, faults = json.dumps(_CACHED).encode(), [], []
        held: list[int] = []
        started = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for number in range(max(1, int(rate * seconds / 60))):
            time.sleep(max(0.0, started + number * 60 / rate - time.monotonic()))
            begun = time.monotonic()
            connection.request("POST", "/estimate", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            response.read()
            times.append(time.monotonic() - begun)
            if response.status != 200:
                faults.append(f"status {response.status}")
            held.append(server.resident())
        connection.close()
        taken = time.monotonic() - started
    times.sort()
    early, late = max(held[: len(held) // 5 or 1]), max(held[-(len(held) // 5 or 1) :])
    return {
        "requests": len(times),
        "per_minute": round(60 * len(times) / taken),
        "p50_ms": round(1000 * times[len(times) // 2], 1),
        "p99_ms": round(1000 * times[int(len(times) * 0.99)], 1),
        "memory": format_bytes(late),
        "memory_grew": format_bytes(max(late - early, 0)),
        "faults": faults,
    }


def _killed(store: Path, clients: int, kills: int) -> dict[str, Any]:
    """Every client asks for a batch size of its own; each must get its own answer, whatever happens to the server."""
    server = Server(store)
    address, answers, faults = f"http://127.0.0.1:{server.port}", {}, []
    places: set[int] = set()

    def ask(number: int) -> None:
        asked: dict[str, Any] = {"job": "zoo:mlp", "batch_size": 100 + number, "device": "t4", "steps": 1}
        try:
            with contextlib.suppress(OSError, ValueError):
                waiting = _send(server.port, "POST", "/estimate", json.dumps(asked).encode())[1]
                places.add(json.loads(waiting).get("place") or 0)
            found = Client(address, timeout=1800).estimate(**asked)
            answers[number] = found["workload"]["batch_size"]
        except OomcastError as error:
            faults.append(f"client {number}: {error}")

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for kill in range(kills):
        while len(answers) < clients * (kill + 1) // (kills + 2) and any(thread.is_alive() for thread in threads):
            time.sleep(0.2)
        server.kill()
        server = Server(store, server.port)
    for thread in threads:
        thread.join()
    server.stop()
    faults += [f"client {number} got another's answer" for number, size in answers.items() if size != 100 + number]
    return {"clients": clients, "kills": kills, "answered": len(answers), "last_place": max(places), "faults": faults}


def _send(
    port: int, method: str, path: str, body: bytes | None, headers: dict[str, str] | None = None
) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90)
    sent = {"Content-Type": "application/json"} if body is not None else {}
    try:
        connection.request(method, path, body, {**sent, **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


# Attack

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
        "/sweep",
        "/map",
        "/compare",
        "/words",
        "//",
        "/%ff%fe",
        "/?token=x",
    ),
)


def _attacked(folder: Path, count: int, seed: int, seconds: float) -> dict[str, Any]:
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
        alive = _send(server.port, "GET", "/health", None, {"Authorization": f"Bearer {_TOKEN}"})[0] == 200
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
    body = _body(chance, target) if method in ("POST", "PUT") else None
    if path in ("/estimate", "/sweep", "/map") and body is not None and b'"zoo:mlp"' in body:
        path = "/words"  # the same reading, without a capture
    return _send(port, method, path, body, headers)


def _body(chance: random.Random, target: Path) -> bytes:
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
    data = bytearray(json.dumps(asked).encode())
    if chance.random() < 0.3:
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    return bytes(data) if chance.random() < 0.97 else b"[" * 300_000


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
