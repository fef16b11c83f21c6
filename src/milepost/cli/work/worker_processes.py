"""Several worker processes under one command: started together, replaced if one is killed, and stopped together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence

from milepost.cli.work.announce import say
from milepost.cli.work.foreground import stop_on_signal

PARENT_FD = "MILEPOST_PARENT_FD"
"""Environment variable: a pipe that is closed when the parent process ends."""
LOOK_S = 0.1
RESTART_S, LONGEST_RESTART_S = 1.0, 60.0
"""Pause before a killed process is replaced: the first one, and the longest. It doubles while processes are killed soon after their start."""


class WorkerProcesses:
    """Runs `n` processes of a command until all have ended.

    A process that is killed by a signal (out of memory, say) is replaced, and its items are worked on again. One that ends by itself is not:
    without an error it was idle; with an error, such as a mistake in the configuration, the others are stopped too.
    """

    def __init__(self, command: Sequence[str], n: int) -> None:
        self._command = list(command)
        self._wanted = n
        self._read_fd, self._write_fd = os.pipe()
        self._running: list[tuple[subprocess.Popen[bytes], float]] = []
        self._restarts: list[float] = []
        """Times at which killed processes are to be replaced."""
        self._pause = 0.0
        self._stopping = False

    def run(self) -> int:
        """Exit code: of the first process that ended with an error, else 0."""
        for _ in range(self._wanted):
            self._start()
        say(f"milepost work: processes {', '.join(str(process.pid) for process, _ in self._running)}")
        # After a second signal this process ends at once. The pipe to the others is then closed, and they end at once too.
        stop_on_signal(self._stop)
        code = 0
        while self._running or self._restarts:
            time.sleep(LOOK_S)
            now = time.monotonic()
            for process, began in list(self._running):
                ended = process.poll()
                if ended is None:
                    continue
                self._running.remove((process, began))
                if ended > 0:
                    code = code or ended
                    if not self._stopping:
                        self._stop()
                elif ended < 0 and not self._stopping:
                    self._replace_later(process.pid, -ended, began, now)
            for at in [at for at in self._restarts if at <= now]:
                self._restarts.remove(at)
                self._start()
        return code

    def _start(self) -> None:
        # In a session of its own: Ctrl-C reaches only this process, which passes it on once.
        process = subprocess.Popen(
            self._command, env={**os.environ, PARENT_FD: str(self._read_fd)}, pass_fds=[self._read_fd], start_new_session=True
        )
        self._running.append((process, time.monotonic()))
        if self._stopping:
            process.terminate()  # a signal has come meanwhile

    def _replace_later(self, pid: int, number: int, began: float, now: float) -> None:
        lived_long = now - began > LONGEST_RESTART_S
        self._pause = RESTART_S if lived_long else min(LONGEST_RESTART_S, max(RESTART_S, self._pause * 2))
        self._restarts.append(now + self._pause)
        say(f"milepost work: process {pid} was killed ({signal.Signals(number).name}); another one starts in {self._pause:g} s")

    def _stop(self) -> None:
        self._stopping = True
        self._restarts.clear()
        for process, _ in self._running:
            process.terminate()  # does nothing if it has ended


def worker_command(arguments: Sequence[str]) -> list[str]:
    """The command of one worker process: this program with the same arguments, of which the last `--processes` counts."""
    return [sys.executable, "-m", "milepost", *arguments, "--processes", "1"]


def stop_with_parent() -> None:
    """In a worker process: stop as after SIGTERM when the parent process has ended in whichever way."""
    named = os.environ.pop(PARENT_FD, None)
    if named is None:
        return
    fd = int(named)

    def wait() -> None:
        if not os.read(fd, 1):
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()
