"""One part of the benchmark in a process of its own: `python -m bench.part WHO WHAT LEDGER N [LIST]`."""

from __future__ import annotations

import argparse


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("who", choices=("ours", "raw"))
    parser.add_argument("what", choices=("intake", "again", "process"))
    parser.add_argument("ledger")
    parser.add_argument("n", type=int)
    parser.add_argument("list", nargs="?", default="")
    parser.add_argument("--handlers", default="plain")
    a = parser.parse_args()
    if a.who == "ours":
        from bench import ours

        if a.what == "process":
            ours.process(a.ledger, a.n, a.handlers)
        else:
            ours.intake(a.ledger, a.list, a.n, "new" if a.what == "intake" else "in_progress")
    else:
        from bench import raw

        if a.what == "process":
            raw.process(a.ledger, a.n, a.handlers)
        else:
            (raw.intake if a.what == "intake" else raw.again)(a.ledger, a.list, a.n)


if __name__ == "__main__":
    main()
