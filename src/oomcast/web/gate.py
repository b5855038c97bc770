"""What every request passes before anything looks at it, and what every response gets on its way out.

In: the Host header (a foreign page whose name was rebound to 127.0.0.1 has another one), the token, the origin, the
size and the pace of the body. Out: headers that forbid the browser everything the page does not need, a line of log.
"""

from __future__ import annotations

import asyncio
import hmac
import http.cookies
import json
import sys
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

from .metrics import Metrics
from .questions import MOST_BYTES, MOST_SNAPSHOT

__all__ = ["LOOPBACK", "Gate", "Guards"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

LOOPBACK = ("127.0.0.1", "localhost", "::1")
_COOKIE = "oomcast_token"
_BODY_SECONDS = 10.0
_METHODS = ("GET", "HEAD", "POST")
_LARGER = {"/compare": MOST_SNAPSHOT, "/replay": MOST_SNAPSHOT}
"""Routes whose bodies may be larger than others."""
_PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
)
_ALWAYS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"SAMEORIGIN"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"content-security-policy", _PAGE_POLICY.encode()),
)


@dataclass(frozen=True)
class Guards:
    """`hosts`: the names by which the server may be called; empty where any will do, since the token protects it."""

    hosts: tuple[str, ...] = LOOPBACK
    token: str | None = None
    log: bool = True


class Gate:
    """ASGI, around the application."""

    def __init__(self, app: App, guards: Guards, metrics: Metrics) -> None:
        self._app, self._guards, self._metrics = app, guards, metrics

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self._app(scope, receive, send)
        if scope["type"] != "http":
            return None  # no web sockets here: the connection is closed
        exchange = _Exchange(scope, send)
        try:
            await self._pass(scope, receive, exchange)
        except Exception as error:  # whatever it is, the client gets a sentence and the server goes on
            _log({"event": "fault", "path": _shown(scope), "error": repr(error)[:500]})
            if not exchange.started:
                await exchange.refuse(500, "the service could not answer; its log says why.")
        seconds = time.monotonic() - exchange.begun
        route = getattr(scope.get("route"), "path", "other")
        self._metrics.request(str(scope["method"])[:10], route, exchange.status, seconds)
        if self._guards.log:
            told = {"method": scope["method"], "path": _shown(scope), "status": exchange.status}
            _log({"event": "request", **told, "ms": round(1000 * seconds, 1)})
        return None

    async def _pass(self, scope: MutableMapping[str, Any], receive: Receive, exchange: _Exchange) -> None:
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host = headers.get("host", "")
        if self._guards.hosts and _name_of(host) not in self._guards.hosts:
            return await exchange.refuse(421, "this server is not known by that name; see oomcast serve --host.")
        if not self._has_token(headers):
            return await self._ask_for_token(scope, exchange)
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return await exchange.refuse(403, "requests of other sites are not answered.")
        method = scope["method"]
        if method not in _METHODS:
            return await exchange.refuse(405, f"only {', '.join(_METHODS)} are answered.")
        if method == "POST" and headers.get("content-type", "").partition(";")[0].strip() != "application/json":
            # A form of another site can send other types without asking the browser's leave.
            return await exchange.refuse(415, "send JSON, with the header Content-Type: application/json.")
        try:
            most = _LARGER.get(scope["path"], MOST_BYTES)
            body = await asyncio.wait_for(_read(receive, most), _BODY_SECONDS)
        except asyncio.TimeoutError:
            return await exchange.refuse(408, f"the request was not complete after {_BODY_SECONDS:g} seconds.")
        if body is None:
            return await exchange.refuse(413, f"the request is larger than {most // 1024} KiB.")
        return await self._app(scope, _given(body, receive), exchange.send)

    def _has_token(self, headers: dict[str, str]) -> bool:
        token = self._guards.token
        if token is None:
            return True
        kind, _, sent = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer" and _same(sent.strip(), token):
            return True
        try:
            cookie = http.cookies.SimpleCookie(headers.get("cookie", "")).get(_COOKIE)
        except http.cookies.CookieError:
            return False
        return cookie is not None and _same(cookie.value, token)

    async def _ask_for_token(self, scope: MutableMapping[str, Any], exchange: _Exchange) -> None:
        """A browser brings the token once, in the address of the page, and gets it back as a cookie."""
        token = self._guards.token or ""
        try:
            sent = parse_qs(scope.get("query_string", b"").decode("latin-1"), max_num_fields=8).get("token", [""])[0]
        except ValueError:
            sent = ""
        if scope["path"] == "/" and scope["method"] == "GET" and _same(sent, token):
            cookie = f"{_COOKIE}={token}; HttpOnly; SameSite=Strict; Path=/"
            headers = [(b"location", b"/"), (b"set-cookie", cookie.encode("latin-1"))]
            return await exchange.refuse(303, "", headers)
        challenge = [(b"www-authenticate", b"Bearer")]
        return await exchange.refuse(401, "a token is needed: Authorization: Bearer TOKEN.", challenge)


class _Exchange:
    """One response, on its way out."""

    def __init__(self, scope: MutableMapping[str, Any], send: Send) -> None:
        self._send, self._is_head = send, scope["method"] == "HEAD"
        self.begun = time.monotonic()
        self.started, self.status = False, 0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started, self.status = True, message["status"]
            own = {name.lower() for name, _ in message.get("headers", ())}
            added = [(name, value) for name, value in _ALWAYS if name not in own]
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await self._send(message)

    async def refuse(self, status: int, sentence: str, headers: list[tuple[bytes, bytes]] | None = None) -> None:
        body = b"" if self._is_head or not sentence else json.dumps({"error": sentence}).encode() + b"\n"
        start = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self.send({"type": "http.response.start", "status": status, "headers": [*start, *(headers or [])]})
        await self.send({"type": "http.response.body", "body": body})


async def _read(receive: Receive, most: int) -> bytes | None:
    """The whole body; None where it is too large."""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b""  # the client has gone; nobody reads the answer
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            return None
        if not message.get("more_body", False):
            return b"".join(parts)


def _given(body: bytes, receive: Receive) -> Receive:
    """What has been read, then whatever follows: the client's leaving."""
    told = False

    async def next_message() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return next_message


def _name_of(host: str) -> str:
    """The name in a Host header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))


def _shown(scope: MutableMapping[str, Any]) -> str:
    return str(scope.get("path", ""))[:200]


def _log(told: dict[str, Any]) -> None:
    """JSON a line; never a query, which may hold the token."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    sys.stderr.write(json.dumps({"time": now, **told}) + "\n")
