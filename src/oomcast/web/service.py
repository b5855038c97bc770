"""The routes: what can be asked, and how the answer is waited for. Everything that takes long is in the workers."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from importlib import resources
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from .. import __version__
from ..advise.sweeps import stops_of
from ..devices import all_gpus, other_gpus
from ..errors import BadInput, OomcastError
from ..estimation.calibration import calibrations_folder
from ..provenance import library_versions, source_digest
from ..report.catalogue_text import devices_as_json, models_as_json
from ..report.page import styles
from ..report.words import LABELS
from ..units import format_bytes
from ..zoo.catalogue import MODELS
from ..zoo.public_models import public_models
from .admission import judged, read_review, reviewed
from .answering import JSON
from .gate import App, Gate, Guards
from .metrics import Metrics
from .questions import KINDS, OFFERED, PARAMETER, Limits, Question, read_json, read_question
from .schema import option_schemas, question_schema
from .spelling import as_command_line, as_python
from .store import DONE, REFUSED, QueueFull, Status, Store
from .workers import Workers

__all__ = ["make_app"]

MOST_WAIT = 60.0
_ADMISSION_WAIT = 8.0
"""Kubernetes itself waits for 10 seconds, unless told otherwise."""
_LOOK_AGAIN = 1.0
_PAGES = {
    "index.html": "text/html; charset=utf-8",
    "api.html": "text/html; charset=utf-8",
    "app.js": "text/javascript; charset=utf-8",
    "answers.js": "text/javascript; charset=utf-8",
    "asking.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "curves.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "recordings.js": "text/javascript; charset=utf-8",
    "report.css": "text/css; charset=utf-8",
}


def make_app(store: Store, limits: Limits, workers: int, guards: Guards) -> App:
    """The whole service, behind its gate. The store is closed with it."""
    service = _Service(store, limits, workers)
    app = FastAPI(
        title="oomcast",
        version=__version__,
        description="How much GPU memory a training job will hold, before it runs, without a GPU.",
        docs_url=None,  # FastAPI's own pages load scripts from another host
        redoc_url=None,
        lifespan=service.running,
    )
    service.add_routes(app)
    return Gate(app, guards, service.metrics)


class _Service:
    def __init__(self, store: Store, limits: Limits, workers: int) -> None:
        self.store, self.limits = store, limits
        self.metrics = Metrics()
        self.workers = Workers(store, limits, workers, self._finished)
        self._software = _software()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed: asyncio.Event | None = None

    @contextlib.asynccontextmanager
    async def running(self, app: FastAPI) -> AsyncIterator[None]:
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        self.workers.start()
        try:
            yield
        finally:
            await run_in_threadpool(self.workers.close)
            self.store.close()

    def _finished(self, id: str, kind: str, state: str, seconds: float) -> None:
        self.metrics.answered(kind, state, seconds)
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        """Whoever waits looks again."""
        if self._changed is not None:
            self._changed.set()
            self._changed = asyncio.Event()

    # Routes

    def add_routes(self, app: FastAPI) -> None:
        for kind, summary in KINDS.items():
            self._add_question(app, kind, summary)
        app.add_api_route("/questions/{id}", self._status, summary="How far a question is, and its place in the queue")
        app.add_api_route("/answers/{id}", self._answer, summary="The answer itself, once there is one")
        app.add_api_route(
            "/words",
            self._words,
            methods=["POST"],
            summary="The settings as a command line and as Python",
            openapi_extra={"requestBody": _body(question_schema("estimate"))},
        )
        app.add_api_route(
            "/admission",
            self._admission,
            methods=["POST"],
            summary="Kubernetes' question whether a pod may be admitted: an AdmissionReview",
            openapi_extra={"requestBody": _body({"type": "object"})},
        )
        app.add_api_route("/models", self._models, summary="The models that can be named as a job")
        app.add_api_route("/devices", self._devices, summary="The GPUs that can be targets")
        app.add_api_route(
            "/options", self._options, summary="Every option, the names of categories, the sliders' stops"
        )
        app.add_api_route("/health", self._health, summary="Whether the service and its store answer")
        app.add_api_route("/metrics", self._metrics, summary="For Prometheus")
        app.add_api_route("/", lambda: _page("index.html"), include_in_schema=False)
        app.add_api_route("/docs", lambda: _page("api.html"), include_in_schema=False)
        app.add_api_route("/page/{name}", _page, include_in_schema=False)
        app.add_exception_handler(OomcastError, _sentence)
        app.add_exception_handler(HTTPException, _plain_error)

    def _add_question(self, app: FastAPI, kind: str, summary: str) -> None:
        async def asked(request: Request) -> Response:
            return await self._ask(kind, request)

        asked.__name__ = kind
        app.add_api_route(
            f"/{kind}",
            asked,
            methods=["POST"],
            summary=summary[0].upper() + summary[1:],
            responses=_RESPONSES,
            openapi_extra={"requestBody": _body(question_schema(kind)), "parameters": [_WAIT]},
        )

    async def _ask(self, kind: str, request: Request) -> Response:
        wait = _wait_of(request)
        body = await request.body()
        id, status = await run_in_threadpool(self._noted, kind, body)
        known = status.is_over
        if known:
            self.metrics.from_store(kind)
            await run_in_threadpool(self.store.used, id)
        else:
            self.workers.wake()
            status = await self._waited(status, wait)
        return _answered(status, cached=known) if status.is_over else _waiting(status)

    def _noted(self, kind: str, body: bytes) -> tuple[str, Status]:
        question = read_question(kind, read_json(body), self.limits)
        id = question.id(self._versions())
        return id, self.store.ask(id, question)

    async def _waited(self, status: Status, seconds: float) -> Status:
        """The status once it is over, or after so long."""
        end = asyncio.get_running_loop().time() + seconds
        while not status.is_over:
            left = end - asyncio.get_running_loop().time()
            if left <= 0 or self._changed is None:
                break
            with contextlib.suppress(asyncio.TimeoutError):  # another server of the same store may have answered it
                await asyncio.wait_for(self._changed.wait(), min(left, _LOOK_AGAIN))
            known: Status | None = await run_in_threadpool(self.store.status, status.id)
            status = known or status
        return status

    async def _status(self, id: str, request: Request) -> Response:
        status = await self._known(id, request)
        plain = {"id": status.id, "kind": status.kind, "state": status.state}
        if status.place is not None:
            plain["place"] = status.place  # type: ignore[assignment]
        if status.is_over and status.state != DONE:
            plain["error"] = status.text
        return _json(plain)

    async def _answer(self, id: str, request: Request) -> Response:
        status = await self._known(id, request)
        return _answered(status, cached=True) if status.is_over else _waiting(status)

    async def _known(self, id: str, request: Request) -> Status:
        wait = _wait_of(request)
        status = await run_in_threadpool(self.store.status, id[:64])
        if status is None:
            raise HTTPException(404, "there is no question of this id.")
        return await self._waited(status, wait)

    async def _admission(self, request: Request) -> Response:
        """A pod is not held back by what cannot be said in time: it is admitted with a warning."""
        review = read_review(read_json(await request.body()))
        if review.asked is None:
            return _json(reviewed(review.uid))
        _, status = await run_in_threadpool(self._noted, "estimate", json.dumps(review.asked).encode())
        self.workers.wake()
        status = await self._waited(status, _ADMISSION_WAIT)
        if not status.is_over:
            return _json(reviewed(review.uid, warning="its memory was not known in time; the answer is being made."))
        if status.state != DONE:
            return _json(reviewed(review.uid, warning=f"its memory is not known: {status.text}"))
        estimate = json.loads(status.text)
        total, usable = format_bytes(estimate["device_total"]), format_bytes(estimate["device_usable"])
        return _json(judged(review.uid, estimate, f"{total} of {usable} usable on {estimate['device']}"))

    async def _words(self, request: Request) -> Response:
        question: Question = read_question("estimate", read_json(await request.body()), self.limits)
        return _json({"command": as_command_line(question), "python": as_python(question)})

    def _models(self) -> Response:
        shipped = [
            {"job": f"hf:{name}", "family": model.family, "source": model.source}
            for model in public_models()
            for name in model.names
        ]
        return _json({**models_as_json(MODELS), "shipped": shipped})

    def _devices(self) -> Response:
        return _json(devices_as_json((*all_gpus(), *other_gpus())))

    def _options(self) -> Response:
        stops = {parameter: list(stops_of(parameter)) for parameter in PARAMETER.choices}
        return _json({"options": option_schemas(OFFERED), "labels": LABELS, "stops": stops})

    def _health(self) -> Response:
        counts = self.store.counts()
        return _json({"status": "ok", "version": __version__, "questions": counts})

    def _metrics(self) -> Response:
        return Response(self.metrics.text(self.store.counts()), media_type="text/plain; version=0.0.4")

    def _versions(self) -> str:
        """Of everything that decides an answer: code, libraries, and what calibrations there are now."""
        try:
            files = sorted(calibrations_folder().iterdir())
            kept = [(file.name, file.stat().st_mtime_ns, file.stat().st_size) for file in files]
        except OSError:
            kept = []
        return f"{self._software} {kept}"


def _software() -> str:
    return json.dumps([__version__, source_digest("oomcast"), library_versions()])


_WAIT = {
    "name": "wait",
    "in": "query",
    "required": False,
    "schema": {"type": "number", "minimum": 0, "maximum": MOST_WAIT, "default": 0},
    "description": "seconds to wait for the answer before the place in the queue is told instead",
}
_RESPONSES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The answer."},
    202: {"description": "It is waiting or being answered: id, state and place. Ask /questions/{id}?wait=30."},
    400: {"description": "It cannot be asked like this; the sentence says what to change."},
    422: {"description": "It could not be answered; the sentence says why."},
    503: {"description": "Too many questions are waiting."},
}


def _body(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"required": True, "content": {JSON: {"schema": schema}}}


def _wait_of(request: Request) -> float:
    try:
        wait = float(request.query_params.get("wait", "0"))
    except ValueError:
        wait = -1.0
    if not 0 <= wait <= MOST_WAIT:
        raise BadInput(f"wait must be a number of seconds from 0 to {MOST_WAIT:g}.")
    return wait


def _answered(status: Status, *, cached: bool) -> Response:
    headers = {"x-oomcast-question": status.id, "x-oomcast-cached": "yes" if cached else "no"}
    if status.state == DONE:
        if not status.media.startswith(JSON):
            # A report is a page of its own, whose policy stands in it.
            headers["content-security-policy"] = "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
        return Response(status.text, media_type=status.media, headers=headers)
    return _json({"error": status.text}, 400 if status.state == REFUSED else 422, headers)


def _waiting(status: Status) -> Response:
    plain = {"id": status.id, "state": status.state, "place": status.place, "url": f"/questions/{status.id}"}
    return _json(plain, 202, {"x-oomcast-question": status.id})


def _json(plain: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(json.dumps(plain) + "\n", status, media_type=JSON, headers=dict(headers or {}))


def _page(name: str) -> Response:
    if name not in _PAGES:
        raise HTTPException(404, "there is no such page.")
    if name == "report.css":
        return Response(styles(), media_type=_PAGES[name], headers={"cache-control": "no-cache"})
    content = (resources.files(__package__) / "page" / name).read_bytes()
    return Response(content, media_type=_PAGES[name], headers={"cache-control": "no-cache"})


async def _sentence(request: Request, error: Exception) -> Response:
    if isinstance(error, QueueFull):
        return _json({"error": str(error)}, 503, {"retry-after": "30"})
    code = getattr(error, "exit_code", 1)
    return _json({"error": str(error)}, 400 if code == BadInput.exit_code else 503)


async def _plain_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _json({"error": str(error.detail)}, error.status_code)
