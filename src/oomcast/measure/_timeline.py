"""A timeline of bounded length that keeps the highest point of every stretch."""

from __future__ import annotations

__all__ = ["TimelineSampler"]


class TimelineSampler:
    """Takes any number of samples; keeps at most `most` points, each the highest of equally many samples."""

    def __init__(self, most: int = 200) -> None:
        self._most = most
        self._points: list[tuple[float, int]] = []
        self._samples_per_point = 1
        self._waiting: list[tuple[float, int]] = []

    def add(self, seconds: float, held: int) -> None:
        self._waiting.append((seconds, held))
        if len(self._waiting) < self._samples_per_point:
            return
        self._points.append(_highest(self._waiting))
        self._waiting.clear()
        if len(self._points) >= self._most:
            self._points = [_highest(self._points[i : i + 2]) for i in range(0, len(self._points), 2)]
            self._samples_per_point *= 2

    @property
    def points(self) -> tuple[tuple[float, int], ...]:
        last = [_highest(self._waiting)] if self._waiting else []
        return tuple((round(at, 4), held) for at, held in self._points + last)


def _highest(points: list[tuple[float, int]]) -> tuple[float, int]:
    return max(points, key=lambda point: point[1])
