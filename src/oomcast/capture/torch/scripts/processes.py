"""What a script does with processes: one for each GPU, and the end of its own.

`torch.multiprocessing.spawn` starts a process for each GPU that runs one function; here that function runs in the
process at hand, for the rank that is looked at. Several GPUs in one process, of which only the first is followed, are
refused in a sentence. A script that ends its process at once (`os._exit`, a signal to itself) would take what was seen
with it: it is told and stopped there instead. Its standard input is a terminal, as it is for who starts a
script by hand: some ask `stty` for its width.
"""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Callable
from typing import Any

import torch

from ....errors import BadInput
from ..machine import VirtualGpu
from ..patches import Patches

__all__ = ["install_ends", "install_processes", "sit_at_a_terminal"]


class _Done:
    """What `spawn(..., join=False)` returns: its processes have ended."""

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        return True


def install_processes(patches: Patches, virtual: VirtualGpu, rank: int, world_size: int) -> None:
    device = virtual.gpu.name

    def where() -> str:
        line = virtual.scope.user_line()
        return f" at {line}" if line else ""

    def spawn(fn: Callable[..., Any], args: Any = (), nprocs: int = 1, join: bool = True, **_: Any) -> _Done | None:
        if nprocs not in (1, world_size):
            raise BadInput(
                f"the script starts {nprocs} processes{where()}, one for each GPU, but the device has {world_size}; "
                f"name --device {nprocs}x{device}."
            )
        fn(rank if nprocs > 1 else 0, *args)
        return None if join else _Done()

    wrap = torch.nn.DataParallel.__init__

    def wrap_for_one(module: Any, *args: Any, **kwargs: Any) -> None:
        wrap(module, *args, **kwargs)
        if len(module.device_ids) > 1:
            raise BadInput(
                f"the script works on {len(module.device_ids)} GPUs from one process{where()} (torch.nn.DataParallel), "
                f"which cannot be followed; name one GPU, --device {device}, and a GPU's share of the batch."
            )

    patches.set(torch.nn.DataParallel, "__init__", wrap_for_one)
    patches.set(torch.multiprocessing, "spawn", spawn)
    patches.set(torch.multiprocessing, "start_processes", spawn)


def sit_at_a_terminal() -> None:
    """Of 80 columns, at which nobody types: whatever reads from it is at the end of its input at once."""
    try:
        import fcntl
        import termios

        keyboard, screen = os.openpty()
    except (ImportError, OSError):  # not on this system, or no terminal is left: standard input stays empty
        return
    fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    modes = termios.tcgetattr(screen)
    modes[3] &= ~termios.ICANON  # a read waits neither for a line nor, with these two, for a character
    modes[6][termios.VMIN] = modes[6][termios.VTIME] = 0
    termios.tcsetattr(screen, termios.TCSANOW, modes)
    os.dup2(screen, 0)
    os.close(screen)
    os.set_inheritable(keyboard, False)  # it stays open as long as this process lives


def install_ends(patches: Patches, left: Callable[[int], Any], killed: Callable[[str], Any]) -> None:
    """Where the script ends its own process, tell the exit code or the signal's name instead.

    Neither of the two returns. Processes that the script forked end as they would.
    """
    if not hasattr(os, "getpgid"):
        return
    own, group = os.getpid(), os.getpgid(0)
    leave, kill, kill_group, raise_signal = os._exit, os.kill, os.killpg, signal.raise_signal

    def tell(number: int) -> None:
        if os.getpid() == own and _ends_a_process(number):
            killed(signal.Signals(number).name)

    def _exit(status: int) -> None:
        if os.getpid() == own:
            left(status)
        leave(status)

    def kill_or_tell(pid: int, number: int) -> None:
        if pid in (own, 0, -group):
            tell(number)
        kill(pid, number)

    def kill_group_or_tell(pgid: int, number: int) -> None:
        if pgid in (group, 0):
            tell(number)
        kill_group(pgid, number)

    def raise_or_tell(number: int) -> None:
        tell(number)
        raise_signal(number)

    patches.set(os, "_exit", _exit)
    patches.set(os, "kill", kill_or_tell)
    patches.set(os, "killpg", kill_group_or_tell)
    patches.set(signal, "raise_signal", raise_or_tell)


def _ends_a_process(number: int) -> bool:
    if number == signal.SIGKILL:
        return True
    return number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGINT) and (
        signal.getsignal(number) is signal.SIG_DFL
    )
