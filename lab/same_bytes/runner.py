"""Asks oomcast about one job: through its public interface and its command line, nothing else."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from . import jax_files, mxnet_files, onnx_files, tensorflow_files, torch_files
from .figures import of_advice, of_estimate, of_fit, of_ranking
from .jobs import Job

__all__ = ["FILES", "Runner", "last_line"]

FILES = {
    **torch_files.FILES,
    **tensorflow_files.FILES,
    **jax_files.FILES,
    **mxnet_files.FILES,
    **onnx_files.FILES,
}


class ObjectJob:
    """A job that is an object of this process; torch is loaded in the process that captures."""

    @staticmethod
    def model() -> Any:
        from torch import nn

        return nn.Sequential(nn.Linear(300, 700), nn.Sigmoid(), nn.Linear(700, 300))

    @staticmethod
    def batch(batch_size: int) -> Any:
        import torch

        return torch.randn(batch_size, 300), torch.randn(batch_size, 300)

    @staticmethod
    def loss(model: Any, batch: Any) -> Any:
        import torch

        return torch.nn.functional.smooth_l1_loss(model(batch[0]), batch[1])


class Runner:
    """Answers for a job, as plain JSON data; a job that fails has the error as its answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = folder / "files"
        for name, text in FILES.items():
            path = self.files / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def placed(self, text: Any) -> Any:
        """`file:NAME` as the path of that file."""
        if isinstance(text, str) and text.startswith("file:"):
            return str(self.files / text.removeprefix("file:"))
        if isinstance(text, str) and text.startswith("hf:file:"):
            return "hf:" + str(self.files / text.removeprefix("hf:file:"))
        return ObjectJob if text == "object" else text

    def run(self, job: Job) -> dict[str, Any]:
        try:
            return self.clean(getattr(self, f"_{job.kind}")(job))
        except Exception as error:
            return self.clean({"error": {"class": type(error).__name__, "message": str(error)}})

    def clean(self, value: Any) -> Any:
        """Without the temporary folder's name."""
        if isinstance(value, str):
            return value.replace(str(self.folder), "<folder>")
        if isinstance(value, dict):
            return {self.clean(key): self.clean(item) for key, item in value.items()}
        return [self.clean(item) for item in value] if isinstance(value, list) else value

    def _call(self, job: Job, function: str) -> Any:
        import oomcast

        options = {key: self.placed(value) for key, value in job.options.items()}
        return getattr(oomcast, function)(self.placed(job.job), **options)

    def _estimate(self, job: Job) -> dict[str, Any]:
        return of_estimate(self._call(job, "estimate"))

    def _sweep(self, job: Job) -> dict[str, Any]:
        """Each file by itself; one that fails has its error recorded, and the job goes on."""
        answers = {}
        for name in sorted(name for name in FILES if name.startswith(job.job)):
            answer = self.run(dataclasses.replace(job, job=f"file:{name}", kind="estimate"))
            wanted = ("error", "peak_allocated", "peak_reserved", "device_total", "least_capacity", "breakdown",
                      "phase_peaks", "unsupported", "assumptions", "top_tensors")  # fmt: skip
            answers[name] = {key: answer[key] for key in wanted if key in answer}
        return answers

    def _fit(self, job: Job) -> dict[str, Any]:
        return of_fit(self._call(job, "fit"))

    def _rank_gpus(self, job: Job) -> dict[str, Any]:
        return of_ranking(self._call(job, "rank_gpus"))

    def _what_to_change(self, job: Job) -> dict[str, Any]:
        return of_advice(self._call(job, "what_to_change"))

    def _script(self, job: Job) -> dict[str, Any]:
        ran = self._python(self.placed(job.job))
        if ran.returncode:
            raise RuntimeError(f"exit code {ran.returncode}: {last_line(ran.stderr)}")
        return {"told": json.loads(last_line(ran.stdout))}

    def _cli(self, job: Job) -> dict[str, Any]:
        ran = self._python("-m", "oomcast", "estimate", self.placed(job.job), *job.options["arguments"], "--json")
        return {"exit_code": ran.returncode, "estimate": of_estimate(json.loads(ran.stdout)) if ran.stdout else None,
                "error": None if ran.stdout else last_line(ran.stderr)}  # fmt: skip

    def _replay(self, job: Job) -> dict[str, Any]:
        snapshot = str(self.folder / f"{job.name}.pickle")
        arguments = [*job.options["arguments"], "--snapshot", snapshot]
        answers: dict[str, Any] = self._cli(dataclasses.replace(job, options={"arguments": arguments}))
        if answers["estimate"] is None:
            raise RuntimeError(answers["error"])
        for settings in job.options["what_if"]:
            more = ["--alloc-conf", settings] if settings else []
            ran = self._python("-m", "oomcast", "replay", snapshot, *more, "--json")
            if ran.returncode:
                raise RuntimeError(f"exit code {ran.returncode}: {last_line(ran.stderr)}")
            answers[f"replay {settings or 'as it was'}"] = json.loads(ran.stdout)
        return answers

    def _python(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.folder, timeout=600, check=False)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
