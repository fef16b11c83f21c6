"""Signals that end a program, collected while its work is drained."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def collected_signals(
    *numbers: signal.Signals, on_signal: Callable[[], Any] = lambda: None
) -> Iterator[list[signal.Signals]]:
    """Collect these signals instead of ending the program, where it has no handler of its own.
    Afterwards the handlers are as before, and `signal.raise_signal` gives a signal its usual
    effect. Only the main thread can handle signals; in another one nothing is collected."""
    received: list[signal.Signals] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def receive(number: int, _frame: Any) -> None:
        received.append(signal.Signals(number))
        on_signal()

    replaced = {}
    for number in numbers:
        handler = signal.getsignal(number)
        if handler in (signal.SIG_DFL, signal.default_int_handler):
            signal.signal(number, receive)
            replaced[number] = handler
    try:
        yield received
    finally:
        for number, handler in replaced.items():
            if signal.getsignal(number) is receive:
                signal.signal(number, handler)
