"""The lists that everybody is given: jsonl, one object of at most 100 bytes a line, with sequential
or random keys."""

from __future__ import annotations

import random
from pathlib import Path

KEYS = ("sequential", "random")


def write_list(path: Path, n: int, keys: str, seed: int) -> None:
    """Lists of one seed are the same on every run; random keys of two seeds do not meet."""
    chance = random.Random(f"{keys}-{seed}")
    with path.open("w") as out:
        for number in range(n):
            key = (
                f"p-{seed:02}-{number:011}"
                if keys == "sequential"
                else f"{chance.getrandbits(64):016x}"
            )
            grams = chance.randrange(100, 30_000)
            out.write(
                f'{{"id":"{key}","to":"shelf {number % 997:03}","grams":{grams},"fragile":{"true" if grams % 7 == 0 else "false"}}}\n'
            )
