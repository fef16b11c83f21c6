"""Ctrl-C that does not interrupt the wait of a program's main thread."""

from __future__ import annotations

import ctypes
import signal
from pathlib import Path


def interrupt_beside_main_thread(process: int) -> None:
    """Send SIGINT to a thread of the process that is not its main thread (Linux).

    Python handles a signal in the main thread, which nothing wakes here: as if the signal had come
    just before the main thread began to wait.
    """
    thread = max(int(entry.name) for entry in Path(f"/proc/{process}/task").iterdir())
    assert thread != process, "the process has no other thread"
    sent = ctypes.CDLL(None, use_errno=True).tgkill(process, thread, signal.SIGINT)
    assert sent == 0, ctypes.get_errno()
