"""Evidence record of one item: a readable account made from its history lines, and the lines
themselves.

The readable part can be rebuilt from the lines (`differences` does that), so a holder of the record
needs no ledger to check it. Only the correlation id and the outputs come from elsewhere: the digest
of an output is in its line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from msgspec import UNSET

from milepost.core.events import events_of
from milepost.core.forgetting import readable_name
from milepost.core.history import Line, decode_line, link, origin
from milepost.core.item import Item, digest_of
from milepost.core.status import ACTS, NOTES, TERMINAL, Reason
from milepost.core.values.durations import iso
from milepost.core.values.json import canonical_json
from milepost.core.values.redaction import redacted

SCHEMA = "milepost.evidence/1"
DIGEST = 32
"""Bytes of a digest."""

SEPARATOR = "\x1f"
HEX_DIGITS = frozenset("0123456789abcdef")

_STAGE_ENDS = frozenset({Reason.ADVANCED, Reason.COMPLETED, Reason.CONFIRMED, Reason.SKIPPED})
"""Reasons of lines that end a stage."""
_REPORTS = _STAGE_ENDS | {Reason.CHECKED}
"""Reasons of lines that report a stage's work, with its output if it has one."""
_MAYBE_ACTS = frozenset({Reason.ACCEPTED, Reason.CONFIRMED, Reason.RESENT, Reason.NOTED})
"""Reasons that programs use too; an operator's line has a reason in words."""


def blob_name(route: str, key: str, life: int = 0) -> str:
    """Blob name of the evidence of an item whose row has left; safe in every blob store."""
    named = f"{route}\x1f{key}\x1f{life}" if life else f"{route}\x1f{key}"
    name = sha256(named.encode("utf-8", "surrogatepass")).hexdigest()
    return f"evidence/{name[:2]}/{name}"


def evidence(
    route: str,
    key: str,
    input_digest: bytes,
    correlation_id: str,
    head: bytes,
    bodies: Sequence[bytes],
    results: Mapping[str, Any],
) -> dict[str, Any]:
    """The record of an item with these lines, oldest first. `results` are the stages' outputs that
    still exist."""
    lines = [decode_line(body) for body in bodies]
    latest = {
        line.stage: line.version
        for line in lines
        if line.reason in _REPORTS and line.output is not None
    }
    by_digest = {digest_of(value).hex(): value for value in results.values()}

    def output_of(line: Line) -> Any:
        if latest.get(line.stage) == line.version and results.get(line.stage) is not None:
            # Take the value stored under the stage's name even if its digest is wrong: verification
            # must find that, not miss it.
            return results[line.stage]
        return by_digest.get(line.output or "", UNSET)

    about = {
        "route": route,
        "key": key,
        "input_digest": input_digest.hex(),
        "correlation_id": correlation_id,
    }
    return _record(about, head.hex(), bodies, lines, output_of)


def without_secrets(record: dict[str, Any]) -> dict[str, Any]:
    """The record to pass on: without the outputs that hold an apparent secret. Their digests stay,
    so it can be verified like any other."""
    stages = record.get("stages", [])
    hidden = [
        entry
        for entry in stages
        if "output" in entry and redacted(entry["output"]) != entry["output"]
    ]
    if not hidden:
        return record
    bare = [
        {name: value for name, value in entry.items() if name != "output"}
        if entry in hidden
        else entry
        for entry in stages
    ]
    return {**record, "stages": bare}


def kept(item: Item, bodies: Sequence[bytes], place: int) -> tuple[str, bytes]:
    """Evidence of an item whose row is about to leave: the blob's name and content. `place` is the
    place of the last line in the feed (0: not known). The same item always gives the same bytes."""
    row = item.row
    record = evidence(
        row.route, row.key, row.input_digest, row.correlation_id, row.head, bodies, item.results
    )
    return blob_name(row.route, row.key, row.life), canonical_json(
        {"record": record, "place": place, "input": item.input}
    )


def _record(
    about: dict[str, str],
    head: str,
    bodies: Sequence[bytes],
    lines: Sequence[Line],
    output_of: Callable[[Line], Any],
) -> dict[str, Any]:
    """The record of these lines; `about` are its route, key, input digest and correlation id."""
    route, key = about["route"], about["key"]
    ended = [line.at for line in lines if line.reason not in NOTES and line.status in TERMINAL]
    last = lines[-1] if lines else None
    return {
        "schema": SCHEMA,
        **about,
        "status": None if last is None else last.status.value,
        "stage": None if last is None else last.after_stage,
        "created_at": None if last is None else iso(lines[0].at),
        "changed_at": None if last is None else iso(last.at),
        "ended_at": iso(ended[-1])
        if last is not None and last.status in TERMINAL and ended
        else None,
        "stages": _stages(lines, output_of),
        "acts": [
            _act(line)
            for line in lines
            if line.reason in ACTS or (line.reason in _MAYBE_ACTS and line.why)
        ],
        "events": [
            event.id
            for line in lines
            for event in events_of(line, route, key, about["correlation_id"])
        ],
        "chain": {
            "origin": origin(route, key, bytes.fromhex(about["input_digest"]), _life(lines)).hex(),
            "head": head,
            "lines": [body.decode(errors="replace") for body in bodies],
        },
    }


def life_of(record: dict[str, Any]) -> int:
    """The life of its key that a record is of; 0 where its lines do not say it."""
    lines = record["chain"]["lines"] if record["schema"] == SCHEMA else ()
    return decode_line(lines[0].encode()).life if lines and '"life":' in lines[0] else 0


class EarlierLife(NamedTuple):
    """A life of a key, as the first line of a later life names it: its number, the head of its
    chain, and how it ended, if that is known."""

    life: int
    head: str
    status: str = ""
    stage: str = ""
    ended_at: str | None = None


class EarlierLives(NamedTuple):
    """The lives of a key before the one of a record, oldest first."""

    lives: tuple[EarlierLife, ...] = ()
    complete: bool = True
    """False: an earlier Milepost wrote the line, or the lives before could not be read then, so
    that there may be more."""


def earlier_lives_of(record: Mapping[str, Any]) -> EarlierLives:
    """The earlier lives of its key that the first line of a record names."""
    lines = record["chain"]["lines"] if record["schema"] == SCHEMA else ()
    return named_lives(decode_line(lines[0].encode())) if lines else EarlierLives()


def named_lives(first: Line) -> EarlierLives:
    """The earlier lives of its key that the first line of a life names: the one before with its
    end, those before that with their heads."""
    after = first.note.get("after") if isinstance(first.note, dict) else None
    if not first.life or not isinstance(after, dict):
        return EarlierLives()
    # Lines of before the number was recorded: then the life before was nearly always the first.
    life = after.get("life", 0)
    ended_at = after.get("ended_at")
    latest = EarlierLife(
        life if isinstance(life, int) else 0,
        str(after.get("head", "")),
        str(after.get("status", "")),
        str(after.get("stage", "")),
        ended_at if isinstance(ended_at, str) else None,
    )
    before = after.get("before", [])
    named = (
        [EarlierLife(*entry) for entry in before if _names_life(entry)]
        if isinstance(before, list)
        else []
    )
    return EarlierLives((*named, latest), complete="before" in after or latest.life == 0)


def is_digest(text: Any) -> bool:
    """Whether this is a digest as records have it: 64 hex digits in lower case."""
    return isinstance(text, str) and len(text) == 2 * DIGEST and set(text) <= HEX_DIGITS


def _names_life(entry: Any) -> bool:
    return (
        isinstance(entry, list)
        and len(entry) == 2
        and isinstance(entry[0], int)
        and isinstance(entry[1], str)
    )


def _life(lines: Sequence[Line]) -> int:
    """The life of the key that these lines belong to: the first line has it, and it is part of the
    chain's origin."""
    return lines[0].life if lines else 0


def rounds(lines: Sequence[Line]) -> list[int]:
    """The round of each line: how often an operator had started that stage again, from 1."""
    found, current = [], 1
    for line in lines:
        if line.reason in (Reason.OPERATOR_RETRY, Reason.RERUN):
            current = 1 if line.to else current + 1
        elif line.reason is Reason.REPLACED:
            current = 1
        found.append(current)
        if (line.reason in _STAGE_ENDS and line.to) or line.reason in (
            Reason.MOVED,
            Reason.BACK_FILL,
        ):
            current = 1
    return found


def _stages(lines: Sequence[Line], output_of: Callable[[Line], Any]) -> list[dict[str, Any]]:
    stages = []
    for line, current in zip(lines, rounds(lines), strict=True):
        if line.reason not in _REPORTS:
            continue
        entry: dict[str, Any] = {
            "stage": line.stage,
            "how": line.reason.value,
            "at": iso(line.at),
            "by": line.by,
            "claimed_at": iso(line.since),
            "why": line.why,
            "round": current,
            "line": line.version,
            "to": line.to,
            "output_digest": line.output,
        }
        output = UNSET if line.output is None else output_of(line)
        if output is not UNSET:
            entry["output"] = output
        stages.append(entry)
    return stages


def _act(line: Line) -> dict[str, Any]:
    """An operator's act, from its history line."""
    return {
        "act": line.reason.value,
        "at": iso(line.at),
        "by": line.by,
        "why": line.why,
        "stage": line.stage,
        "to": line.to,
        "bulk_act": line.act,
        "line": line.version,
    }


def seal_record(
    route: str,
    key: str,
    status: str,
    stage: str,
    input_digest: bytes,
    ended_at: int | None,
    head: bytes,
) -> dict[str, Any]:
    """Record of an item whose lines are gone and whose evidence was not kept: nothing in it can be
    verified by itself."""
    return {
        "schema": SEAL_SCHEMA,
        "route": route,
        "key": key,
        "input_digest": input_digest.hex(),
        "status": status,
        "stage": stage,
        "ended_at": iso(ended_at),
        "head": head.hex(),
    }


def chain_links(record: dict[str, Any]) -> list[bytes]:
    """The digests of a record's lines, oldest first."""
    digest, found = bytes.fromhex(record["chain"]["origin"]), []
    for text in record["chain"]["lines"]:
        digest = link(digest, text.encode())
        found.append(digest)
    return found


def forgotten_record(
    route: str,
    name: str,
    ended: tuple[str, str, str | None],
    head: bytes,
    links: Sequence[bytes],
    forgotten: tuple[int, str, str] | None,
) -> dict[str, Any]:
    """Record of an item whose content was removed: `ended` is its status, stage and time of the end
    as text, `links` are the digests of its lines, as far as they are known; `forgotten` is when, by
    whom and why, if known here."""
    status, stage, ended_at = ended
    at, by, reason = forgotten or (None, None, None)
    return {
        "schema": FORGOTTEN_SCHEMA,
        "route": route,
        "key": readable_name(name),
        "status": status,
        "stage": stage,
        "ended_at": ended_at,
        "forgotten_at": iso(at),
        "by": by,
        "reason": reason,
        "head": head.hex(),
        "links": [digest.hex() for digest in links],
    }


FORGOTTEN_SCHEMA = "milepost.forgotten/1"
FORGOTTEN_FIELDS = frozenset(
    {
        "schema",
        "route",
        "key",
        "status",
        "stage",
        "ended_at",
        "forgotten_at",
        "by",
        "reason",
        "head",
        "links",
    }
)
SEAL_SCHEMA = "milepost.seal/1"
SEAL_FIELDS = frozenset(
    {"schema", "route", "key", "input_digest", "status", "stage", "ended_at", "head"}
)


def differences(record: Any) -> list[tuple[str, str]]:
    """The faults of a record, as (field, sentence); none: the chain is intact and every statement
    follows from it."""
    try:
        return _differences(record)
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        OSError,
        OverflowError,
        RecursionError,
    ) as error:
        return [("record", f"it is not a record of evidence: {type(error).__name__}: {error}")]


def _differences_of_forgotten(record: dict[str, Any]) -> list[tuple[str, str]]:
    wrong = set(record) ^ FORGOTTEN_FIELDS
    found = [
        (name, "a record without content does not have this field, or it is missing")
        for name in sorted(wrong)
    ]
    links = record["links"]
    if any(len(bytes.fromhex(digest)) != DIGEST for digest in links):
        found.append(("links", "it is not a list of digests"))
    if links and links[-1] != record["head"]:
        found.append(("links", "the last digest is not the head"))
    return found


def _differences(record: dict[str, Any]) -> list[tuple[str, str]]:
    if record["schema"] == SEAL_SCHEMA:
        wrong = set(record) ^ SEAL_FIELDS
        return [
            (name, "a seal does not have this field, or it is missing") for name in sorted(wrong)
        ]
    if record["schema"] == FORGOTTEN_SCHEMA:
        return _differences_of_forgotten(record)
    if record["schema"] != SCHEMA:
        return [
            (
                "schema",
                f"{record['schema']!r} is not {SCHEMA!r}; a later Milepost may have written it",
            )
        ]
    found: list[tuple[str, str]] = []
    if not is_digest(record["input_digest"]):
        found.append(("input_digest", "it is not a digest of 64 hex digits in lower case"))
    for name in ("route", "key"):
        # It separates the names that the chain's origin is made of.
        if SEPARATOR in record[name]:
            found.append((name, "it has a control character that no name has"))
    chain = record["chain"]
    bodies = [text.encode() for text in chain["lines"]]
    lines = [decode_line(body) for body in bodies]
    digest = origin(
        record["route"], record["key"], bytes.fromhex(record["input_digest"]), _life(lines)
    )
    for number, (body, line) in enumerate(zip(bodies, lines, strict=True), 1):
        digest = link(digest, body)
        if line.version != number:
            found.append(
                (
                    f"chain.lines[{number - 1}]",
                    f"line {number} cannot be read, or is another one (it calls itself {line.version})",
                )
            )
    if not bodies:
        found.append(("chain.lines", "there are no lines"))
    if digest.hex() != chain["head"]:
        found.append(
            (
                "chain.head",
                f"the lines lead to {digest.hex()}, not to {chain['head']}: a line, route, key or input digest was changed",
            )
        )
    given = {entry["line"]: entry["output"] for entry in record["stages"] if "output" in entry}
    for entry in record["stages"]:
        if "output" in entry and digest_of(entry["output"]).hex() != entry["output_digest"]:
            found.append(
                (
                    f"stages[{entry['stage']}].output",
                    "the output is not the one that was reported when the stage ended",
                )
            )
    about = {name: record[name] for name in ("route", "key", "input_digest", "correlation_id")}
    again = _record(
        about, chain["head"], bodies, lines, lambda line: given.get(line.version, UNSET)
    )
    return found + [
        (name, "it does not follow from the lines")
        for name in sorted(set(again) | set(record))
        if again.get(name) != record.get(name)
    ]
