"""What the service has done so far, as Prometheus reads it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

__all__ = ["Metrics"]

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)


class Metrics:
    """Usable from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, str, int]] = Counter()
        self._answers: Counter[tuple[str, str]] = Counter()
        self._cached: Counter[str] = Counter()
        self._request_seconds, self._answer_seconds = _Histogram(), _Histogram()

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[method, route, status] += 1
            self._request_seconds.add(seconds)

    def answered(self, kind: str, state: str, seconds: float) -> None:
        """A worker is done with a question."""
        with self._lock:
            self._answers[kind, state] += 1
            self._answer_seconds.add(seconds)

    def from_store(self, kind: str) -> None:
        """A question whose answer was there already."""
        with self._lock:
            self._cached[kind] += 1

    def text(self, questions: Mapping[str, int]) -> str:
        """`questions` is how many there are in each state."""
        with self._lock:
            lines = [
                *_head("oomcast_requests_total", "counter", "Requests by method, route and status."),
                *(
                    f'oomcast_requests_total{{method="{method}",route="{route}",status="{status}"}} {count}'
                    for (method, route, status), count in sorted(self._requests.items())
                ),
                *self._request_seconds.lines("oomcast_request_seconds", "Time from a request to its response."),
                *_head("oomcast_answers_total", "counter", "Questions that workers are done with."),
                *(
                    f'oomcast_answers_total{{kind="{kind}",state="{state}"}} {count}'
                    for (kind, state), count in sorted(self._answers.items())
                ),
                *self._answer_seconds.lines("oomcast_answer_seconds", "Time that a worker took for a question."),
                *_head("oomcast_cached_total", "counter", "Questions whose answer was in the store."),
                *(f'oomcast_cached_total{{kind="{kind}"}} {n}' for kind, n in sorted(self._cached.items())),
                *_head("oomcast_questions", "gauge", "Questions in the store by state."),
                *(f'oomcast_questions{{state="{state}"}} {count}' for state, count in questions.items()),
            ]
        return "\n".join(lines) + "\n"


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[next((n for n, most in enumerate(_BUCKETS) if seconds <= most), len(_BUCKETS))] += 1
        self.total += seconds

    def lines(self, name: str, help: str) -> list[str]:
        lines, sum_so_far = list(_head(name, "histogram", help)), 0
        for most, count in zip((*map(str, _BUCKETS), "+Inf"), self.counts, strict=True):
            sum_so_far += count
            lines.append(f'{name}_bucket{{le="{most}"}} {sum_so_far}')
        return [*lines, f"{name}_sum {self.total:.6f}", f"{name}_count {sum_so_far}"]


def _head(name: str, type: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {type}"
