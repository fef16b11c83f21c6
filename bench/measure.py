"""One measured span in a process of its own. Standard library only: the DBOS part runs it in
another venv."""

from __future__ import annotations

import json
import os
import resource
import time
from types import TracebackType
from typing import Self


class Span:
    """Wall clock and CPU (all threads, user and system) of what happens within; `stop()` ends it
    early."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu = 0.0
        self._running = False

    def __enter__(self) -> Self:
        self._running = True
        self._cpu_began = _cpu()
        self._began = time.perf_counter()
        return self

    def stop(self) -> None:
        if self._running:
            self._running = False
            self.seconds = time.perf_counter() - self._began
            self.cpu = _cpu() - self._cpu_began

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_mb() -> float:
    """This process's highest resident size. `ru_maxrss` may be the parent's at the time of the
    fork, so /proc comes first."""
    try:
        with open("/proc/self/status") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) / 1024
    except OSError:
        pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def ledger_bytes(path: str) -> int:
    """The file, what is left of its log, and the blobs beside it."""
    size = sum(os.path.getsize(path + end) for end in ("", "-wal") if os.path.exists(path + end))
    for folder, _, names in os.walk(path + "-blobs"):
        size += sum(os.path.getsize(os.path.join(folder, name)) for name in names)
    return size


def facts_of(span: Span, n: int, **more: float) -> dict[str, float]:
    """What a part measured: seconds, items a second, CPU per item in µs, and the process's peak
    memory in MB."""
    return {
        "seconds": span.seconds,
        "rate": n / span.seconds,
        "cpu_us": span.cpu * 1e6 / n,
        "mb": peak_mb(),
        **more,
    }


def tell(span: Span, n: int, **more: float) -> None:
    """Print what a part measured: one line of JSON, read by the parent."""
    print(json.dumps(facts_of(span, n, **more)), flush=True)
