"""Settings for a process that runs only Milepost (`milepost up`, `work`, `submit`); never applied
in a program that imports it."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path


def tune_garbage_collection() -> None:
    """Collect garbage less often: a batch of items has thousands of objects and no cycles, and
    searching for cycles costs a tenth of the time. Imported objects are not scanned again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def tune_thread_switching() -> None:
    """Switch threads after 1 ms instead of 5.

    In a process that serves calls: its event loop needs the interpreter often and briefly, and so
    does the worker among handlers that compute. In one of several worker processes: the worker
    waits for the interpreter within each write, and the other processes wait for that write."""
    sys.setswitchinterval(0.001)


def schedule_as_batch() -> None:
    """Tell Linux that this process works in bulk (SCHED_BATCH): its threads do not interrupt a
    thread at work when they wake up, which saves 5 to 10 % of the CPU time of calls to partners. A
    policy that is set already stays. Programs that handlers start inherit it."""
    if sys.platform == "linux" and os.sched_getscheduler(0) == os.SCHED_OTHER:
        with suppress(OSError):  # a sandbox may forbid it
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def cpus_by_core(topology: Path = Path("/sys/devices/system/cpu")) -> list[int]:
    """The CPUs that this process may use (Linux). Those that share a core with one before them come
    last."""
    on_core: Counter[str] = Counter()
    ranked = []
    for cpu in sorted(os.sched_getaffinity(0)):
        try:
            core = (topology / f"cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:
            core = str(cpu)
        ranked.append((on_core[core], cpu))
        on_core[core] += 1
    return [cpu for _, cpu in sorted(ranked)]
