"""Identity of a process, by which another one can tell whether it is still alive."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

PROC = Path("/proc")


class RunProcess(msgspec.Struct, frozen=True):
    """The process of a run: where it is, and when it was started, since a number is used again when a process has ended."""

    host: str
    pid: int
    space: str = ""
    """The start of the machine and the space of process numbers in it (a container has its own); empty where the system does not say."""
    started: str = ""


def this_process(proc: Path = PROC) -> RunProcess:
    """The identity of this process."""
    pid = os.getpid()
    return RunProcess(platform.node(), pid, _space(proc), started(pid, proc))


def seen_from_here(process: RunProcess, proc: Path = PROC) -> bool | None:
    """Is the process alive? None: it runs elsewhere, or the system does not say, so that only its silence can tell."""
    if not process.space or not process.started or process.space != _space(proc):
        return None
    return started(process.pid, proc) == process.started


def started(pid: int, proc: Path = PROC) -> str:
    """When a process was started, in ticks since the start of the machine; empty if there is none, or if it has ended already."""
    try:
        # The name, in brackets, may hold blanks and brackets itself.
        state, *fields = (proc / f"{pid}" / "stat").read_text(errors="replace").rpartition(")")[2].split()
        return "" if state in "ZXx" else fields[18]
    except (OSError, ValueError, IndexError):
        return ""


def _space(proc: Path) -> str:
    try:
        return f"{(proc / 'sys/kernel/random/boot_id').read_text().strip()} {(proc / 'self/ns/pid').readlink()}"
    except OSError:
        return ""
