"""One part of the benchmark in a process of its own: `python -m bench.part WHO WHAT LEDGER N LIST
[--handlers KIND]`."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Sequence


def measure(words: Sequence[str]) -> dict[str, float]:
    """Run the part in this process. What it does not need is not imported: memory is measured
    too."""
    parser = argparse.ArgumentParser(prog="python -m bench.part", description=__doc__)
    parser.add_argument("who", choices=("ours", "raw"))
    parser.add_argument("what", choices=("intake", "again", "select", "process", "ones"))
    parser.add_argument("ledger")
    parser.add_argument("n", type=int)
    parser.add_argument("list")
    parser.add_argument("--handlers", default="plain")
    a = parser.parse_args(words)
    if a.who == "ours":
        from bench import ours

        if a.what == "process":
            return ours.process(a.ledger, a.n, a.handlers)
        if a.what == "ones":
            return ours.ones(a.ledger, a.list, a.n)
        return ours.intake(
            a.ledger, a.list, a.n, a.handlers, "new" if a.what == "intake" else "in_progress"
        )
    from bench import raw

    if a.what == "process":
        return raw.process(a.ledger, a.n, a.handlers)
    return {"intake": raw.intake, "again": raw.again, "select": raw.select, "ones": raw.ones}[
        a.what
    ](a.ledger, a.list, a.n)


if __name__ == "__main__":
    # A failed try is a warning; ten thousand of them on a terminal are not what is measured.
    logging.getLogger("milepost").setLevel(logging.ERROR)
    print(json.dumps(measure(sys.argv[1:])), flush=True)
