"""Several processes under one command: started together, replaced if one is killed, and stopped
together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from itertools import cycle
from typing import NamedTuple

from milepost.cli.config import CliSettings
from milepost.cli.work.foreground import say, stop_on_signal
from milepost.core.errors import UsageError
from milepost.runners.process import cpus_by_core

PARENT_FD = "MILEPOST_PARENT_FD"
"""Environment variable: a pipe that is closed when the parent process ends."""
LOOK_S = 0.1
RESTART_S, LONGEST_RESTART_S = 1.0, 60.0
"""Pause before a killed process is replaced: the first one, and the longest. It doubles while
processes are killed soon after their start."""


class ProcessGroup:
    """Runs a process for each of these commands until all have ended. `name` is the command of
    milepost in messages.

    A process that is killed by a signal (out of memory, say) is replaced, and its items are worked
    on again. One that ends by itself is not: without an error it was idle; with an error, such as a
    mistake in the configuration, the others are stopped too.
    """

    def __init__(self, name: str, commands: Sequence[GroupCommand]) -> None:
        self._name = name
        self._commands = commands
        self._read_fd, self._write_fd = os.pipe()
        self._running: list[StartedProcess] = []
        self._restarts: list[tuple[float, GroupCommand]] = []
        """Times at which killed processes are to be replaced, with their commands."""
        self._pause = 0.0
        self._stopping = False

    def run(self) -> int:
        """Exit code: of the first process that ended with an error, else 0."""
        # After a second signal this process ends at once. The pipe to the others is then closed,
        # and they end at once too.
        stop_on_signal(self._stop)
        for command in self._commands:
            self._start(command)
        say(
            f"milepost {self._name}: processes {', '.join(str(one.process.pid) for one in self._running)}"
        )
        code = 0
        while self._running or self._restarts:
            time.sleep(LOOK_S)
            now = time.monotonic()
            for one in list(self._running):
                ended = one.process.poll()
                if ended is None:
                    continue
                self._running.remove(one)
                if ended > 0:
                    code = code or ended
                    if not self._stopping:
                        self._stop()
                elif ended < 0 and not self._stopping:
                    self._replace_later(one, -ended, now)
            for restart in [restart for restart in self._restarts if restart[0] <= now]:
                self._restarts.remove(restart)
                self._start(restart[1])
        return code

    def _start(self, command: GroupCommand) -> None:
        # In a session of its own: Ctrl-C reaches only this process, which passes it on once.
        process = subprocess.Popen(
            command.words,
            env={**os.environ, PARENT_FD: str(self._read_fd)},
            pass_fds=[self._read_fd],
            start_new_session=True,
        )
        if command.cpu is not None and sys.platform == "linux":
            with suppress(OSError):  # it has ended already, or a sandbox forbids it
                os.sched_setaffinity(process.pid, {command.cpu})
        self._running.append(StartedProcess(process, command, time.monotonic()))
        if self._stopping:
            process.terminate()  # a signal has come meanwhile

    def _replace_later(self, killed: StartedProcess, number: int, now: float) -> None:
        lived_long = now - killed.began > LONGEST_RESTART_S
        self._pause = (
            RESTART_S if lived_long else min(LONGEST_RESTART_S, max(RESTART_S, self._pause * 2))
        )
        self._restarts.append((now + self._pause, killed.command))
        name = signal.Signals(number).name
        say(
            f"milepost {self._name}: process {killed.process.pid} was killed ({name}); another one starts in {self._pause:g} s"
        )

    def _stop(self) -> None:
        self._stopping = True
        self._restarts.clear()
        for one in self._running:
            one.process.terminate()  # does nothing if it has ended


class GroupCommand(NamedTuple):
    """The command line of a process of the group, and the one CPU that the process may use; None:
    any."""

    words: list[str]
    cpu: int | None = None


class StartedProcess(NamedTuple):
    """A process of the group, its command, and when it began (seconds of the monotonic clock)."""

    process: subprocess.Popen[bytes]
    command: GroupCommand
    began: float


def command_line(given: CliSettings, name: str, **options: str | bool | None) -> list[str]:
    """The command line of another process with the same settings: `milepost NAME`, with each option
    that has a value."""
    words = [sys.executable, "-m", "milepost", *given.arguments, name]
    for option, value in options.items():
        word = f"--{option.replace('_', '-')}"
        words += (
            [word]
            if value is True
            else []
            if value is None or value is False
            else [f"{word}={value}"]
        )
    return words


def worker_commands(words: list[str], processes: int, *, pin: bool) -> list[GroupCommand]:
    """The same command for each of these processes. With `pin`, each has a CPU of its own while
    there are enough."""
    if not pin:
        return [GroupCommand(words)] * processes
    if sys.platform != "linux":
        raise UsageError("--pin works on Linux only; leave it out")
    cpus = cycle(cpus_by_core())
    return [GroupCommand(words, next(cpus)) for _ in range(processes)]


def check_shared(given: CliSettings) -> None:
    """Raise UsageError if several processes cannot share the ledger."""
    if given.ledger.startswith("memory:"):
        raise UsageError(
            "a ledger in memory cannot be shared by processes; leave out --processes, or use a ledger in a file"
        )


def stop_with_parent() -> bool:
    """In a process of a group: stop as after SIGTERM when the parent process has ended in whichever
    way. Returns whether it is one."""
    named = os.environ.pop(PARENT_FD, None)
    if named is None:
        return False
    fd = int(named)

    def wait() -> None:
        if not os.read(fd, 1):
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()
    return True
