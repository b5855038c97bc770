"""Linux's Landlock: from here on this process, and all it starts, may change files only in the named folders.

A promise of the kernel (5.19 and later, where it is switched on), which holds for C++ and Rust code and for other
programs as well, though not for a file's times and modes. It cannot be taken back, so it is for a process that was made
for one job.
The numbers are those of https://docs.kernel.org/userspace-api/landlock.html.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterable
from functools import reduce
from operator import or_

__all__ = ["change_files_only_in", "landlock_version"]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The system calls; the same numbers on every architecture."""
_PR_SET_NO_NEW_PRIVS = 38
_RULE_PATH_BENEATH = 1
_VERSION = 1
_FIRST_WITH_MOVES = 2
_FIRST_WITH_TRUNCATE = 3
_CHANGES = {
    "write_file": 1 << 1,
    "remove_dir": 1 << 4,
    "remove_file": 1 << 5,
    "make_char": 1 << 6,
    "make_dir": 1 << 7,
    "make_reg": 1 << 8,
    "make_sock": 1 << 9,
    "make_fifo": 1 << 10,
    "make_block": 1 << 11,
    "make_sym": 1 << 12,
    "refer": 1 << 13,
}
"""Rights that change files. Reading and running programs stay as they are."""
_TRUNCATE = 1 << 14


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"  # which a packed structure implies; Python 3.14 wants it said
    _fields_ = (("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32))


def change_files_only_in(folders: Iterable[str]) -> bool:
    """Whether the kernel has promised it; False, with nothing done, on systems that cannot."""
    version = landlock_version()
    if version < _FIRST_WITH_MOVES:  # the first version forbids every move from folder to folder
        return False
    libc = _libc()
    rights = reduce(or_, _CHANGES.values()) | (_TRUNCATE if version >= _FIRST_WITH_TRUNCATE else 0)
    handled = ctypes.c_uint64(rights)
    ruleset = libc.syscall(_CREATE_RULESET, ctypes.byref(handled), ctypes.c_size_t(ctypes.sizeof(handled)), 0)
    if ruleset < 0:
        return False
    try:
        for folder in folders:
            _allow(libc, ruleset, folder, rights)
        if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
            return False
        return bool(libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0)
    finally:
        os.close(ruleset)


def landlock_version() -> int:
    """Below 1 where the kernel has none, or has it switched off."""
    if not sys.platform.startswith("linux"):
        return 0
    return int(_libc().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION))


def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def _allow(libc: ctypes.CDLL, ruleset: int, folder: str, rights: int) -> None:
    with contextlib.suppress(OSError):  # a folder that is not there needs no permission
        place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            rule = _PathBeneath(rights, place)
            libc.syscall(_ADD_RULE, ruleset, _RULE_PATH_BENEATH, ctypes.byref(rule), 0)
        finally:
            os.close(place)
