"""One part of the benchmark in a process of its own: `python -m bench.part WHO WHAT LEDGER N [LIST] [--more]`."""

from __future__ import annotations

import argparse

from bench import ours, raw


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("ours", "raw"))
    parser.add_argument("what", choices=("intake", "again", "process"))
    parser.add_argument("ledger")
    parser.add_argument("n", type=int)
    parser.add_argument("list", nargs="?", default="")
    parser.add_argument("--handlers", default="plain")
    a = parser.parse_args()
    if a.what == "process":
        (ours if a.who == "ours" else raw).process(a.ledger, a.n, a.handlers)
    elif a.who == "ours":
        ours.intake(a.ledger, a.list, a.n, "new" if a.what == "intake" else "in_progress")
    elif a.what == "intake":
        raw.intake(a.ledger, a.list, a.n)
    else:
        raw.again(a.ledger, a.list, a.n)


if __name__ == "__main__":
    main()
