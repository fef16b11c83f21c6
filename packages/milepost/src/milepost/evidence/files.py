"""Evidence file: JSON Lines with a header, one line per record, and a last line with the digest of
all of them.

Each line is JSON with sorted names and no spaces. A record's digest covers its own JSON, so that
its line can be passed on alone; the digest in the last line covers every byte before it, so that
nothing can be removed, inserted or moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import msgspec
from msgspec import Struct

from milepost.core.values.json import canonical_json
from milepost.evidence.signing import Signer, public_text

HEADER, END = "milepost.evidence-file/1", "milepost.evidence-end/1"
RECORD_SIGNED, FILE_SIGNED = "evidence-record", "evidence-file"
BESIDE = ".evidence.jsonl"
"""Suffix of the evidence file beside a view (csv, premis) that was made from it."""
NAMED = 10
"""Maximum keys or values of a selection named in text; the header has all of them."""


class NewestLine(Struct, frozen=True):
    """The newest line that an export covers: its place in the feed of the ledger, and when it was
    written."""

    place: int
    at: str | None


class Total(Struct):
    """Number of records in a file, and the digest of its lines."""

    count: int
    digest: str


def header(
    route: str,
    made_at: str,
    version: str,
    choice: dict[str, Any],
    view: str | None,
    signer: Signer | None,
    *,
    key_fields: Sequence[str] = (),
    media: Mapping[str, str] | None = None,
    newest: NewestLine | None = None,
    follow_up: str | None = None,
) -> dict[str, Any]:
    """The header: kind of file, selection of items (empty: the whole route), and the public key, if
    it is signed.

    `key_fields` are the names of the fields of a key, `media` the storage medium of each stage,
    `newest` the newest line of the ledger when the export began, `follow_up` the route on which
    completed items are followed further.
    """
    made: dict[str, Any] = {
        "schema": HEADER,
        "route": route,
        "made_at": made_at,
        "made_by": f"milepost {version}",
        "choice": choice,
    }
    if view is not None:
        made["view"] = view
    if newest is not None:
        made["newest"] = {"place": newest.place, "at": newest.at}
    if follow_up is not None:
        made["follow_up"] = follow_up
    if key_fields:
        made["key_fields"] = list(key_fields)
    if media:
        made["media"] = dict(media)
    if signer is not None:
        made["public_key"] = public_text(signer.public)
    return made


def chosen(route: str, choice: Mapping[str, Any], made_at: str) -> str:
    """The selection of an export as text."""
    if not choice:
        return f"the whole route {route!r}, as of {made_at}"
    conditions = "; ".join(
        f"{name} {', '.join(map(str, _several(value)))}" for name, value in sorted(choice.items())
    )
    return f"a selection from route {route!r}, as of {made_at}: {conditions}"


def _several(value: Any) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        return [value]
    return (
        [*value[:NAMED], f"and {len(value) - NAMED:,} more"] if len(value) > NAMED else list(value)
    )


def entry_of(
    record: dict[str, Any],
    proof: dict[str, Any] | None,
    signer: Signer | None,
    covered: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A record's line: the record, its digest, the proof that a published head covers it, and the
    signature. `covered`: of a record that goes on after the newest head, the number of its lines
    under heads, with the proof for the last of these."""
    digest = sha256(canonical_json(record)).hexdigest()
    entry: dict[str, Any] = {"record": record, "digest": digest}
    if proof is not None:
        entry["proof"] = proof
    if covered is not None:
        entry["covered"] = covered
    if signer is not None:
        entry["signature"] = signer.sign(RECORD_SIGNED, digest)
    return entry


def write_file(
    out: IO[bytes], first: dict[str, Any], entries: Iterable[dict[str, Any]], signer: Signer | None
) -> Total:
    """Write the whole file line by line."""
    digest, count = sha256(), 0

    def put(value: dict[str, Any]) -> None:
        line = canonical_json(value) + b"\n"
        digest.update(line)
        out.write(line)

    put(first)
    for entry in entries:
        put(entry)
        count += 1
    total = Total(count, digest.hexdigest())
    end: dict[str, Any] = {"schema": END, "count": count, "digest": total.digest}
    if signer is not None:
        end["signature"] = signer.sign(FILE_SIGNED, total.digest)
    out.write(canonical_json(end) + b"\n")
    return total


def records_in(path: Path) -> Iterator[dict[str, Any]]:
    """The records of a file that was just written or has been verified."""
    with path.open("rb") as file:
        for line in file:
            value = msgspec.json.decode(line)
            if "record" in value:
                yield value["record"]
