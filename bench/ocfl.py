"""Looking for assets in an OCFL repository: `CustodialCopy.check`, alone and through a whole
ledger, beside a bare loop that reads and parses each inventory, whose path it has been given, and a
loop that makes the file system calls of a check and nothing else.

Each part is a process of its own: `python -m bench.ocfl WHAT FOLDER N`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import milepost as mp
from bench.measure import Span, ledger_bytes, tell
from bench.ours import completed, run_station
from bench.route import NAME
from milepost.composition import open_context
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost_postingest.custodial_copy import CustodialCopy

VALIDATOR = Path(__file__).resolve().parent.parent / ".standins/ocfl/bin/ocfl-validate.py"
ROUNDS = 5
SAMPLE = 20
VERSIONS = 3
PARTS = ("bare", "calls", "check", "calls-versions", "versions", "fixity", "ledger")
LONGER = {"versions": "check", "calls-versions": "calls"}
"""The parts that run on objects with several versions, and what they are there."""
TITLES = {
    "bare": "a bare loop: read and json.loads each inventory",
    "calls": "the file system calls of a check, and nothing else",
    "calls-versions": f"these calls of objects with {VERSIONS} versions",
    "check": "check: inventory, sidecar, versions, every file seen",
    "versions": f"check of objects with {VERSIONS} versions",
    "fixity": "check with fixity: every file read",
    "ledger": "submitted, checked and completed in a SQLite ledger",
}
Part = Callable[..., dict[str, float]]


def run(folder: Path, part: Part, *, quick: bool, say: Callable[[str], None]) -> dict[str, Any]:
    """`part(WHAT, FOLDER, N, module=…)` runs one part. Rounds are interleaved, and ratios are taken
    within each."""
    n, rounds = (1_000, 1) if quick else (10_000, ROUNDS)
    say(f"ocfl: writing {n:,} objects of three files, and as many with {VERSIONS} versions")
    repository, longer = folder / "repository", folder / "longer"
    for root, versions in ((repository, 1), (longer, VERSIONS)):
        write(root, n, versions)
        say(f"ocfl: {validated(root, n)}")
        part("check", root, n, module="bench.ocfl")  # so that all of them find the files in memory
    facts: dict[str, list[dict[str, float]]] = {what: [] for what in PARTS}
    for number in range(rounds):
        for what in PARTS if number % 2 == 0 else reversed(PARTS):
            asked, root = (LONGER[what], longer) if what in LONGER else (what, repository)
            facts[what].append(part(asked, root, n, module="bench.ocfl"))
        say("  " + ", ".join(f"{what} {facts[what][-1]['rate']:,.0f}/s" for what in PARTS))
    figures = {
        what: {
            "rate": median(fact["rate"] for fact in facts[what]),
            "cpu_us": median(fact["cpu_us"] for fact in facts[what]),
            "ratio": median(
                fact["rate"] / bare["rate"]
                for fact, bare in zip(facts[what], facts["bare"], strict=True)
            ),
        }
        for what in PARTS
    }
    return {"n": n, "rounds": rounds, "figures": figures}


def text(found: dict[str, Any]) -> str:
    lines = [
        "",
        f"Assets looked for in an OCFL repository of {found['n']:,} (medians of {found['rounds']}, files in memory)",
        "",
    ]
    lines.append(f"  {'':56}{'assets/s':>10}{'CPU µs':>8}{'of bare':>9}")
    for what, figure in found["figures"].items():
        lines.append(
            f"  {TITLES[what]:56}{figure['rate']:>10,.0f}{figure['cpu_us']:>8,.0f}{figure['ratio']:>9.2f}"
        )
    return "\n".join(lines)


# The repository -----------------------------------------------------------------------------------


def object_id(number: int) -> str:
    return str(uuid.UUID(int=(0xB << 124) + number))


def place(root: Path, number: int) -> Path:
    digest = hashlib.sha256(object_id(number).encode()).hexdigest()
    return root / digest[:3] / digest[3:6] / digest[6:9] / digest


def write(root: Path, n: int, versions: int = 1) -> None:
    """Straight to disk, as the library would take too long; `validated` has it look at some."""
    root.mkdir()
    (root / "0=ocfl_1.1").write_text("ocfl_1.1\n")
    (root / "ocfl_layout.json").write_text(
        json.dumps({"extension": "0004-hashed-n-tuple-storage-layout", "description": "hashed"})
    )
    for number in range(n):
        add(root, number, versions)


def add(root: Path, number: int, versions: int) -> None:
    """One object. Each version after the first has other metadata, and keeps the rest."""
    folder = place(root, number)
    inner = f"Preservation_1/{uuid.UUID(int=(0xC << 124) + number)}"
    files = {
        "IO_Metadata.xml": f"<io>{number}</io>\n" * 40,
        f"{inner}/CO_Metadata.xml": f"<co>{number}</co>\n" * 40,
        f"{inner}/original/g1/{number}.txt": f"line {number}\n" * 100,
    }
    manifest: dict[str, list[str]] = {}
    states: dict[str, dict[str, object]] = {}
    for head in (f"v{version}" for version in range(1, versions + 1)):
        for name, content in files.items():
            digest = hashlib.sha512(content.encode()).hexdigest()
            if digest not in manifest:
                manifest[digest] = [f"{head}/content/{name}"]
                path = folder / head / "content" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
        states[head] = {
            "created": "2026-01-01T00:00:00Z",
            "message": "ingest",
            "user": {"name": "ingest", "address": "mailto:ops@example.org"},
            "state": {
                hashlib.sha512(content.encode()).hexdigest(): [name]
                for name, content in files.items()
            },
        }
        inventory = json.dumps(
            {
                "id": object_id(number),
                "type": "https://ocfl.io/1.1/spec/#inventory",
                "digestAlgorithm": "sha512",
                "head": head,
                "manifest": manifest,
                "versions": states,
            },
            indent=2,
        )
        for where in (folder, folder / head):
            (where / "inventory.json").write_text(inventory)
            (where / "inventory.json.sha512").write_text(
                f"{hashlib.sha512(inventory.encode()).hexdigest()} inventory.json\n"
            )
        files["IO_Metadata.xml"] = f"<io>{number}, after {head}</io>\n" * 40
    (folder / "0=ocfl_object_1.1").write_text("ocfl_object_1.1\n")


def validated(root: Path, n: int) -> str:
    """A library that is not ours looks at a sample of the objects."""
    if not VALIDATOR.exists():
        return "not validated: there is no ocfl-py in .standins"
    sample = [place(root, number) for number in range(0, n, -(-n // SAMPLE))]
    done = subprocess.run(
        [VALIDATOR.with_name("python"), VALIDATOR, "--quiet", *sample],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(
            f"ocfl-py does not find the objects valid: {(done.stdout + done.stderr).strip()[-1500:]}"
        )
    return f"ocfl-py finds {len(sample)} of them valid"


# The parts ----------------------------------------------------------------------------------------


def bare(root: Path, n: int) -> None:
    paths = [str(place(root, number) / "inventory.json") for number in range(n)]
    with Span() as span:
        for path in paths:
            with open(path, "rb") as file:
                json.loads(file.read())
    tell(span, n)


def calls(root: Path, n: int) -> None:
    """Every folder is listed, every inventory, sidecar and declaration read, the size of every
    content file asked for."""
    flags = os.O_RDONLY | os.O_NOFOLLOW
    known = []
    for top in (str(place(root, number)) for number in range(n)):
        found = [(os.path.relpath(folder, top), names) for folder, _, names in os.walk(top)]
        files = [
            (os.path.normpath(f"{folder}/{name}"), "/content" in folder)
            for folder, names in found
            for name in names
        ]
        folders = [f"{top}/{folder}" for folder, _ in found if folder != "."]
        known.append(
            (
                top,
                folders,
                [path for path, inner in files if not inner],
                [path for path, inner in files if inner],
            )
        )
    with Span() as span:
        for top, folders, read, measured in known:
            opened = os.open(top, flags | os.O_DIRECTORY)
            [*os.scandir(opened)]
            for folder in folders:
                [*os.scandir(folder)]
            for path in read:
                file = os.open(path, flags, dir_fd=opened)
                os.read(file, 1 << 15)
                os.close(file)
            for path in measured:
                os.stat(path, dir_fd=opened, follow_symlinks=False)
            os.close(opened)
    tell(span, n)


def check(root: Path, n: int, *, fixity: bool = False) -> None:
    payloads = list(_payloads(n))
    look = CustodialCopy(root, fixity=fixity).check
    with Span() as span:
        done = sum(isinstance(look(payload), mp.Done) for payload in payloads)
    if done != n:
        raise SystemExit(f"expected {n} assets confirmed, got {done}")
    tell(span, n)


def ledger(root: Path, n: int) -> None:
    """From the first submit until the last settle is on disk."""
    route = mp.Route(NAME, key="preservationSystemId")
    route.stage("CC")(CustodialCopy(root))
    with tempfile.TemporaryDirectory(dir=root.parent) as folder:
        file = Path(folder, "ledger.db")
        span = _through(open_context(f"sqlite:///{file}", [route]), n)
        size = ledger_bytes(str(file))
    tell(span, n, bytes_each=size / n)


def _through(ctx: Context, n: int) -> Span:
    payloads = list(_payloads(n))
    with Span() as span:
        submit(ctx, NAME, payloads)
        run_station(ctx, n, span)
    done = completed(ctx)
    ctx.ledger.close()
    if done != n:
        raise SystemExit(f"expected {n} items COMPLETED, got {done}")
    return span


def _payloads(n: int) -> Iterator[dict[str, str]]:
    return ({"preservationSystemId": object_id(number)} for number in range(n))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=[what for what in PARTS if what not in LONGER])
    parser.add_argument("folder", type=Path)
    parser.add_argument("n", type=int)
    a = parser.parse_args()
    if a.what == "fixity":
        check(a.folder, a.n, fixity=True)
    else:
        {"bare": bare, "calls": calls, "check": check, "ledger": ledger}[a.what](a.folder, a.n)


if __name__ == "__main__":
    main()
