"""`python -m lab serve`: the service under load, killed, and attacked. On this machine only, bounded in count and time.

Three parts: cached answers at a steady rate (latency, memory); many clients with new questions while the server is
killed and started again (none may be lost); mutated requests (no crash, no answer without the token, no file read).
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from oomcast.errors import OomcastError
from oomcast.web import Client

from .cached_load import cached_load
from .served import Server, send
from .service_attack import attack

__all__ = ["add_to"]


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
            told["cached"] = cached_load(place / "cached.db", options.seconds, options.rate)
        if options.clients > 0:
            told["killed"] = _killed(place / "killed.db", options.clients, options.kills)
        if options.requests > 0:
            told["attacked"] = attack(place, options.requests, options.seed, options.attack_seconds)
    faults = [fault for part in told.values() for fault in part["faults"]]
    if options.json:
        print(json.dumps(told, indent=2))
    else:
        for name, part in told.items():
            print(f"{name}: " + ", ".join(f"{key} {value}" for key, value in part.items()))
    return 1 if faults else 0


def _killed(store: Path, clients: int, kills: int) -> dict[str, Any]:
    """Every client asks for a batch size of its own; each must get its own answer, whatever happens to the server."""
    server = Server(store)
    address, answers, faults = f"http://127.0.0.1:{server.port}", {}, []
    places: list[int] = []

    def ask(number: int) -> None:
        asked: dict[str, Any] = {"job": "zoo:mlp", "batch_size": 100 + number, "device": "t4", "steps": 1}
        try:
            with contextlib.suppress(OSError, ValueError, http.client.HTTPException):  # it may be killed just then
                told = json.loads(send(server.port, "POST", "/estimate", json.dumps(asked).encode())[1])
                if told.get("state") == "waiting":
                    places.append(told["place"])
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
    return {
        "clients": clients,
        "kills": kills,
        "answered": len(answers),
        "told_their_place": len(places),
        "last_place": max(places, default=0),
        "faults": faults,
    }
