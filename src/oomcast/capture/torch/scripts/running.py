"""A script as `__main__` in this process, on the virtual GPU, up to the moment when enough was seen of it.

It is stopped without any of its code running again: no exception that it could catch, no `finally`, no exit handler.
This process answers from wherever the script is, and ends.
"""

from __future__ import annotations

import builtins
import contextlib
import dataclasses
import importlib.util
import io
import os
import sys
import threading
import time
import traceback
import types
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ....devices import find_gpu, stack_of
from ....errors import BadInput, CaptureFailed, JobFailed, OomcastError, TookTooLong
from ....spec import COMPILING_MAY_TAKE, Launch, Script, Spec, read_launch
from ....trace import Ending, Phase, ScriptRun, Trace, trace_to_bytes
from ...explain import CompiledCodeFailed, first_sentence
from ...frameworks import older_than_promised
from ...job_process import answer_now
from ...keeping_apart import what_was_written
from ...messages import Answer
from ..devices import DEVICES
from ..errors import NoSuchGpu, RaisedAsOnGpu
from ..hooks import HOOKS
from ..machine import VirtualGpu, virtual_gpu
from ..patches import Patches
from .batches import BatchChooser
from .launchers import set_by_accelerate
from .processes import install_ends, install_processes, sit_at_a_terminal
from .shortening import ForwardMemory, install_shortening
from .watching import StepWatch, Stop

if TYPE_CHECKING:
    from ..distributed import Membership

__all__ = ["capture_script"]

_OURS = str(Path(__file__).parents[3]) + os.sep
_VIRTUAL_GPU = str(Path(__file__).parents[1]) + os.sep
_COMPILERS = tuple(
    os.path.join(os.path.dirname(torch.__file__), part) + os.sep for part in ("_dynamo", "_functorch", "_inductor")
)
_OF_PYTHON = str(Path(traceback.__file__).parent) + os.sep
_TRAINING = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER, Phase.ZERO_GRAD)
_BYTES_OF_DATA = 2 << 30
"""Data that a script makes itself and may read again are real, up to so much in all."""
_WITHOUT_CUDA = (
    "accelerator device when none is available",
    "not linked with support for cuda",
    "from the 'CUDA' backend",
)
_NEAR_THE_LIMIT = 0.7
"""Of the time limit: until then evaluation and checkpoint are waited for …"""
_NEAR_THE_LIMIT_WITH_COMPILER = 0.9
"""… and until then where torch compiled meanwhile."""
_PATIENCE = 2.0
"""Seconds in which a script that runs on the GPU comes to a point where it can be stopped."""


def capture_script(spec: Spec) -> Trace:
    """Raises OomcastError where nothing can be told of the script's memory."""
    script = spec.script
    assert script is not None
    launch = read_launch(script.line)
    machines = spec.place.machines
    _check_processes(launch, spec)
    with warnings.catch_warnings(), contextlib.ExitStack() as contexts:
        warnings.simplefilter("ignore")
        gpu, stack = find_gpu(machines.gpu), stack_of(spec.place.environment, "torch")
        # By name: the counters simulate the allocator, whose room this one does not know.
        counters = importlib.import_module("oomcast.virtual").memory_counters(gpu, stack)
        virtual = contexts.enter_context(virtual_gpu(gpu, stack, counters=counters))
        virtual.recorder.bytes_of_data = _BYTES_OF_DATA
        virtual.compiled.eager_because = script.eager_because or ""
        must_join: Membership | None = None
        if torch.distributed.is_available():
            from ..distributed import World, join_world

            world = World(machines.world_size, spec.place.rank or 0, machines.gpus_per_node)
            membership = contexts.enter_context(join_world(virtual, world))
        variables = dict(launch.variables)
        if launch.for_accelerate:
            variables |= set_by_accelerate(launch.for_accelerate)
        if machines.world_size > 1:
            must_join = membership
            variables |= world.environment()
        launch = dataclasses.replace(launch, variables=variables)
        return _Session(spec, script, launch, virtual, must_join).run()


def _check_processes(launch: Launch, spec: Spec) -> None:
    """A launcher starts a process for each GPU; where the line does not say how many, the device does."""
    world_size, processes = spec.place.machines.world_size, launch.processes
    if processes not in (1, world_size):
        nodes = f"{launch.nodes}x" if launch.nodes > 1 else ""
        raise BadInput(
            f"the line starts {processes} processes, one for each GPU, but the device has {world_size}; name "
            f"--device {nodes}{processes // launch.nodes}x{spec.place.machines.gpu}, or let the launcher start "
            f"{world_size}."
        )


class _Session:
    """The script's one run."""

    def __init__(
        self, spec: Spec, script: Script, launch: Launch, virtual: VirtualGpu, must_join: Membership | None
    ) -> None:
        self._spec = spec
        self._must_join = must_join
        self._launch = launch
        self._virtual = virtual
        self._watch = StepWatch(
            virtual.ledger, lambda: virtual.recorder.streams.launches, script.max_steps, self._is_late
        )
        self._batches = BatchChooser(
            synthetic=script.synthetic_data,
            worst_first=script.worst_batch,
            as_data_code=virtual.recorder.real_host,
        )
        self._memory: ForwardMemory | None = None
        self._started = time.monotonic()
        self._visible = launch.variables.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._ending = threading.Lock()
        self._main = threading.get_ident()

    def run(self) -> Trace:
        virtual = self._virtual
        with Patches() as patches:
            self._memory = install_shortening(patches, virtual, self._watch, self._batches)
            machines = self._spec.place.machines
            install_processes(patches, virtual, self._spec.place.rank or 0, machines.world_size)
            install_ends(patches, self._left_at_once, self._killed)
            virtual.on_step.append(self._after_step)
            virtual.on_backward.append(self._after_backward)
            virtual.scope.on_root.append(self._before_forward)
            sit_at_a_terminal()
            threading.Thread(target=self._mind_the_clock, daemon=True).start()
            try:
                _run_as_main(self._launch)
            except SystemExit as error:
                stop = self._left(error)
            except BaseException as error:
                stop = self._failed(error)
            else:
                stop = Stop(Ending.FINISHED, "the script came to its end")
            with self._ending:
                return self._trace(self._with_last_words(stop))

    # -- what the script does --------------------------------------------------------------------------------------

    def _after_step(self, optimizer: Any) -> None:
        if self._memory is not None:
            self._memory.after_step()
        stop = self._watch.stepped(optimizer)
        if stop is not None:
            self._finish(stop)

    def _after_backward(self) -> None:
        if self._memory is not None:
            self._memory.after_backward()
        self._look_at_the_clock()

    def _before_forward(self, module: Any) -> None:
        stop = self._watch.enough() if self._virtual.ledger.phase is Phase.FORWARD else None
        if stop is not None:
            self._finish(stop)
        self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        if self._used() > 1:
            self._finish(self._too_long())

    def _passed(self) -> float:
        """Time since the start, as a part of the time limit."""
        return (time.monotonic() - self._started) / self._spec.effort.time_limit

    def _used(self) -> float:
        """The part of its time that the script has used. What torch takes to compile is not the script's."""
        compiling = self._virtual.compiled.findings.seconds / self._spec.effort.time_limit
        return self._passed() - min(compiling, COMPILING_MAY_TAKE)

    def _is_late(self) -> bool:
        """Whether nothing is waited for any more: who waits for the answer waits for the compiler too."""
        return self._used() > _NEAR_THE_LIMIT or self._passed() > _NEAR_THE_LIMIT_WITH_COMPILER

    # -- the end ---------------------------------------------------------------------------------------------------

    def _finish(self, stop: Stop) -> NoReturn:
        """Answer and end the process; whichever thread comes first."""
        self._ending.acquire()
        try:
            answer = Answer(payload=trace_to_bytes(self._stopped_trace(stop)))
        except OomcastError as error:
            answer = Answer(
                error=type(error).__name__,
                message=str(error),
                traceback=getattr(error, "traceback", ""),
                exit_code=error.exit_code,
            )
        answer_now(answer)

    def _mind_the_clock(self) -> None:
        """In a thread of its own: ends a script that hangs, wherever that is."""
        limit = self._spec.effort.time_limit
        while (left := (1 - self._used()) * limit + _PATIENCE) > 0:
            time.sleep(min(left, 60.0))
        if self._ending.locked():
            return
        sys.setswitchinterval(60.0)  # the script stands still while its record is read
        self._finish(self._too_long())

    def _too_long(self) -> Stop:
        line = _line_of(sys._current_frames().get(self._main))
        where = f",{_at(line)}" if line else ""
        return Stop(Ending.TIME_LIMIT, f"stopped at the time limit of {self._spec.effort.time_limit:g} s{where}")

    def _trace(self, stop: Stop) -> Trace:
        virtual, watch = self._virtual, self._watch
        if stop.ending is Ending.TIME_LIMIT and virtual.compiled.is_used and not watch.steps_seen:
            raise CompiledCodeFailed(f"it was not done within the time limit of {self._spec.effort.time_limit:g} s")
        if not virtual.ledger.event_count:
            raise _nothing_seen(self._launch.target, stop)
        if self._must_join is not None and not self._must_join.joined and stop.ending is not Ending.FAILED:
            raise _alone(self._launch.target, self._spec)
        rising = watch.still_rising
        trace = virtual.trace(self._workload(), whole_process=True)
        run = ScriptRun(
            ending=stop.ending,
            reason=f"{stop.reason}; {rising}" if rising else stop.reason,
            optimizer_steps=watch.steps_seen,
            not_seen=watch.not_seen(),
            gpus=self._gpus(),
            batches=tuple(dict.fromkeys(self._batches.sentences)),  # some make their data set anew for each epoch
        )
        trace = dataclasses.replace(trace, script=run, assumptions=(*trace.assumptions, *self._shortened(), *_tf32()))
        if trace.only_infers:
            reason = f"it computes no gradient, and is taken as inference; {run.reason}"
            trace = dataclasses.replace(trace, script=dataclasses.replace(run, reason=reason, not_seen=()))
        return trace

    def _stopped_trace(self, stop: Stop) -> Trace:
        """The same with what the worker adds to the record of a job that returns."""
        trace = self._trace(stop)
        told = [sentence for sentence in (what_was_written(), older_than_promised("torch", HOOKS.least)) if sentence]
        return dataclasses.replace(trace, assumptions=(*trace.assumptions, *told)) if told else trace

    def _gpus(self) -> tuple[int, ...]:
        """Unknown where the script has set which of them it sees: it counts from there."""
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        return tuple(sorted(DEVICES.used)) if seen == self._visible else ()

    def _workload(self) -> dict[str, Any]:
        return {"job": self._spec.workload.job.reference}

    def _shortened(self) -> tuple[str, ...]:
        told = []
        if self._batches.repeated:
            told.append(
                f"{self._batches.repeated} batches were not loaded, since those before them were alike: a larger one "
                "among them was not seen (--worst-batch looks for it)"
            )
        if self._memory is not None and self._memory.skipped:
            told.append(
                f"{self._memory.skipped} forwards of a form that was run three times before were taken to be like those"
            )
        return tuple(told)

    def _left_at_once(self, status: int) -> NoReturn:
        where = _at(_line_of(sys._getframe()))
        if status == 0:
            self._finish(Stop(Ending.FINISHED, f"the script ended itself by os._exit{where}"))
        self._finish(Stop(Ending.FAILED, f"the script ended itself by os._exit with exit code {status}{where}"))

    def _killed(self, signal: str) -> NoReturn:
        where = _at(_line_of(sys._getframe()))
        self._finish(Stop(Ending.FAILED, f"the script ended itself by the signal {signal}{where}"))

    def _left(self, error: SystemExit) -> Stop:
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_the_users(frame.filename)]
        where = _at(f"{lines[-1].filename}:{lines[-1].lineno}" if lines else "")
        if error.code is None or error.code == 0:
            return Stop(Ending.FINISHED, f"the script ended itself by sys.exit{where}")
        cause = error.__context__  # launchers such as Hydra's report an error and leave
        if isinstance(cause, OomcastError):
            raise cause
        if isinstance(error.code, str):
            said = error.code
        elif isinstance(cause, Exception) and not error.__suppress_context__:
            said = _what_went_wrong(cause, traceback.extract_tb(cause.__traceback__), self._spec.place.machines.gpu)
        else:
            said = _last_words()
        code = 1 if isinstance(error.code, str) else error.code
        return Stop(Ending.FAILED, f"the script ended itself with exit code {code}{where}{': ' + said if said else ''}")

    def _with_last_words(self, stop: Stop) -> Stop:
        """A script that ends as if all were well before it has trained may have caught an error and printed it."""
        said = _last_words() if stop.ending is Ending.FINISHED and self._watch.steps_seen < 2 else ""
        return dataclasses.replace(stop, reason=f"{stop.reason}; the last that it printed: {said}") if said else stop

    def _failed(self, error: BaseException) -> Stop:
        if isinstance(error, OomcastError):
            raise error
        frames = traceback.extract_tb(error.__traceback__)
        device = self._spec.place.machines.gpu
        sentence = _what_went_wrong(error, frames, device)
        if self._virtual.compiled.is_used and any(_is_compiled(frame.filename) for frame in frames):
            raise CompiledCodeFailed(f"{type(error).__name__}: {first_sentence(error)[:200]}".rstrip("."))
        if self._watch.is_steady and self._virtual.ledger.phase in _TRAINING:
            # Its steps are made up by now: what it does with them may not be its own fault, but is told.
            enough = self._watch.seen_enough()
            return dataclasses.replace(enough, reason=f"{enough.reason}; in a step made up after that, {sentence}")
        if not self._virtual.ledger.event_count or (_met_the_real_cuda(error) and self._watch.steps_seen < 2):
            lines = "" if _known_cause(error, frames, device) else "".join(traceback.format_exception(error))
            kind_of_error = CaptureFailed if _is_our_fault(error, frames) else JobFailed
            raise kind_of_error(f"{self._launch.target} cannot be followed: {sentence}.", lines) from error
        sys.stderr.write("".join(traceback.format_exception(error)))
        return Stop(Ending.FAILED, sentence)


def _tf32() -> tuple[str, ...]:
    if torch.backends.cudnn.allow_tf32:
        return ()
    return ("the script turns TF32 off for convolutions: their workspaces are those with TF32",)


def _is_our_fault(error: BaseException, frames: traceback.StackSummary) -> bool:
    not_ours = (RaisedAsOnGpu, SyntaxError)
    if isinstance(error, not_ours) or not frames:
        return False
    return frames[-1].filename.startswith(_VIRTUAL_GPU) or _met_the_real_cuda(error)


def _met_the_real_cuda(error: BaseException) -> bool:
    """Whether torch itself says that there is no GPU: modes hold in the thread that entered them, not in others."""
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _WITHOUT_CUDA)


def _known_cause(error: BaseException, frames: traceback.StackSummary, device: str) -> str:
    """Of what users meet most, with what to do, as the end of a sentence about the script; "" for anything else."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}, is not valid Python: {error.msg}"
    if isinstance(error, ModuleNotFoundError) and error.name:
        return f"it needs the package {error.name.partition('.')[0]}, which is not installed here"
    if isinstance(error, FileNotFoundError) and error.filename is not None:
        return f"it needs the file {error.filename}, which is not there"
    if isinstance(error, NoSuchGpu):
        return (
            f"it uses cuda:{error.index}, which the device has not; let it use cuda:0 alone, or start a process for "
            f"each GPU (torchrun) and name --device {error.index + 1}x{device}"
        )
    if _met_the_real_cuda(error):
        return "it uses the GPU from a thread of its own, which cannot be followed; let it do so from its main thread"
    in_getpass = bool(frames) and os.path.basename(frames[-1].filename) == "getpass.py"
    if isinstance(error, EOFError) and (in_getpass or "EOF when reading a line" in str(error)):
        return "it asks for input, which nobody can give here; give it as an argument"
    return ""


def _what_went_wrong(error: BaseException, frames: traceback.StackSummary, device: str) -> str:
    """As the end of a sentence about the script, with the user's line."""
    where = next((f"{f.filename}:{f.lineno}" for f in reversed(frames) if _is_the_users(f.filename)), "")
    at = f" ({where})" if where and not isinstance(error, SyntaxError) else ""
    known = _known_cause(error, frames, device)
    if known:
        return known + at
    kind = type(error).__bases__[-1] if isinstance(error, RaisedAsOnGpu) else type(error)
    return f"it raised {kind.__name__}: {first_sentence(error)}{at}"


def _nothing_seen(target: str, stop: Stop) -> OomcastError:
    if stop.ending is Ending.TIME_LIMIT:
        return TookTooLong(f"{target} had not used the GPU when it was {stop.reason}.")
    if stop.ending is Ending.FAILED:
        return JobFailed(f"{target} never used the GPU: {stop.reason}.")
    return BadInput(f"{target} never used the GPU ({stop.reason}): is it told to train on cuda?")


def _alone(target: str, spec: Spec) -> BadInput:
    machines = spec.place.machines
    return BadInput(
        f"{target} is not written for several GPUs: it never calls torch.distributed.init_process_group, so all "
        f"{machines.world_size} processes would work on the first one; name a single GPU: --device {machines.gpu}."
    )


# -- as Python itself would start it -----------------------------------------------------------------------------------


def _run_as_main(launch: Launch) -> None:
    os.environ.update(launch.variables)
    main = types.ModuleType("__main__")
    main.__dict__["__builtins__"] = builtins
    if launch.is_module:
        sys.path.insert(0, os.getcwd())
        specification = _module_to_run(launch.target)
        assert specification.loader is not None
        code = specification.loader.get_code(specification.name)
        path = specification.origin or launch.target
        main.__spec__, main.__package__ = specification, specification.parent
    else:
        path = launch.target
        if os.path.isdir(path):
            sys.path.insert(0, os.path.abspath(path))
            path = os.path.join(path, "__main__.py")
        else:
            sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
        with io.open_code(os.path.abspath(path)) as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        main.__spec__, main.__package__ = None, None
    # Python reads this at its start, when the script was not known yet.
    listed = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    sys.path[1:1] = [folder for folder in listed if folder not in sys.path]
    main.__file__ = path
    sys.argv = [path, *launch.arguments]
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _module_to_run(name: str) -> Any:
    """As `python -m` finds it: a package stands for its `__main__`."""
    specification = None
    with contextlib.suppress(ModuleNotFoundError, ValueError):
        specification = importlib.util.find_spec(name)
        if specification is not None and specification.submodule_search_locations is not None:
            specification = importlib.util.find_spec(f"{name}.__main__")
    if specification is None or specification.loader is None:
        raise BadInput(f"there is no module {name!r} that could be run from here.")
    return specification


def _is_compiled(filename: str) -> bool:
    """Whether a line is the compiler's, or one that it wrote."""
    return filename.startswith((*_COMPILERS, "<inductor>", "<eval_with_key>"))


def _is_the_users(filename: str) -> bool:
    if filename.startswith((_OURS, "<")) or f"{os.sep}site-packages{os.sep}" in filename:
        return False
    return not filename.startswith(_OF_PYTHON)


def _line_of(frame: types.FrameType | None) -> str:
    """The innermost line of the user's own."""
    while frame is not None:
        if _is_the_users(frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _at(line: str) -> str:
    return f" at {line}" if line else ""


def _last_words() -> str:
    """The last line that the script printed; its output is in the file that this process writes to."""
    with contextlib.suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
        end = os.fstat(2).st_size
        lines = os.pread(2, 4096, max(0, end - 4096)).decode(errors="replace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")[:300]
    return ""
