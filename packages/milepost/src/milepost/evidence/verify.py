"""Offline verification of an evidence file, without ledger and network: what is proved, and what is
not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec

from milepost.core.errors import MilepostError, UsageError
from milepost.core.future import REDATED
from milepost.core.history import Line, decode_line
from milepost.core.values.durations import iso, short_span
from milepost.core.values.json import canonical_json
from milepost.evidence.completeness import FileLines, completeness
from milepost.evidence.files import (
    BESIDE,
    END,
    FILE_SIGNED,
    HEADER,
    NAMED,
    RECORD_SIGNED,
    chosen,
    records_in,
)
from milepost.evidence.heads import Heads, proved_root
from milepost.evidence.named_lives import NamedLife, NamedLives
from milepost.evidence.record import (
    FORGOTTEN_SCHEMA,
    SCHEMA,
    SEAL_SCHEMA,
    chain_links,
    differences,
    life_of,
)
from milepost.evidence.repeats import SeenItems
from milepost.evidence.reported_files import reported_files, volumes_of
from milepost.evidence.signing import fingerprint, is_signed, public_text, read_public
from milepost.evidence.verdict import Verdict, VerifiedRecord, VerifiedStage
from milepost.evidence.views import VIEWS

CLOCKS_MS = 300_000
"""How far times may run back: clocks of several machines differ, and one that was wrong is
corrected, by at most five minutes."""
PER_RECORD_MS = 100
"""Most time that an export takes for a record: lines may be written while it runs, after the time
in its header."""
_HEADER_FIELDS = frozenset(
    {
        "schema",
        "route",
        "made_at",
        "made_by",
        "choice",
        "view",
        "public_key",
        "key_fields",
        "media",
        "newest",
        "follow_up",
    }
)
_ENTRY_FIELDS = frozenset({"record", "digest", "proof", "covered", "signature"})
_END_FIELDS = frozenset({"schema", "count", "digest", "signature"})


OnRecord = Callable[[VerifiedRecord], None]


def verify(
    path: Path,
    public: bytes | None = None,
    heads: Heads | None = None,
    on_record: OnRecord | None = None,
    *,
    allow_newer: bool = False,
    complete: bool = False,
) -> Verdict:
    """Verify an evidence file, or a view with the evidence beside it. `on_record` is called with
    each record. `allow_newer`: a record that is newer than the newest head given need not be under
    one. `complete`: it must be known that no line of the route is missing up to the newest head
    given."""
    try:
        with path.open("rb") as file:
            start = file.read(1)
        if start in (b"{", b""):
            return _Checker(path, public, heads, on_record, allow_newer, complete).run()
        beside = path.with_name(path.name + BESIDE)
        if not beside.exists():
            raise UsageError(
                f"{path} is a view, and its evidence file {beside.name} is not beside it; both are needed"
            )
        return _view(
            path, beside, _Checker(beside, public, heads, on_record, allow_newer, complete)
        )
    except OSError as error:
        raise MilepostError(f"cannot read {error.filename or path}: {error.strerror}") from None


def _view(path: Path, beside: Path, checker: _Checker) -> Verdict:
    """Verify a view: its evidence must be valid, and the view must equal, byte for byte, the one
    made from it."""
    verdict = checker.run()
    verdict.file = str(path)
    view = str(checker.header.get("view"))
    make = VIEWS.get(view)
    if make is None:
        verdict.differ(1, "view", f"{beside.name} was not written for a file beside it")
    elif verdict.holds:
        number = 0
        with path.open("rb") as file:
            for number, piece in enumerate(make(lambda: records_in(beside), checker.header), 1):
                wanted = piece.encode()
                if file.read(len(wanted)) != wanted:
                    verdict.differ(number, view, f"{path.name} differs here from {beside.name}")
                    return verdict
            if file.read(1):
                verdict.differ(number + 1, view, f"{path.name} continues where it should end")
                return verdict
        verdict.proved.append(f"{path.name} says what the records say, no more and no less")
    return verdict


class _Checker:
    """Verifies one evidence file in one pass."""

    def __init__(
        self,
        path: Path,
        public: bytes | None,
        heads: Heads | None,
        on_record: OnRecord | None,
        allow_newer: bool,
        complete: bool,
    ) -> None:
        self._path = path
        self._allow_newer = allow_newer
        self._complete = complete
        self._seen = SeenItems()
        self._earlier = NamedLives()
        self._lines = FileLines()
        self._latest: tuple[int, str] = (0, "")
        """The latest time of a line, and the key of its item."""
        self._given = public
        self._key = public
        self._heads = heads
        self._digest = sha256()
        self._signatures = 0
        self._on_record = on_record
        self.header: dict[str, Any] = {}
        self.verdict = Verdict(str(path))

    def run(self) -> Verdict:
        verdict = self.verdict
        number, ended = 0, False
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if ended:
                    verdict.differ(number, "line", "there is content after the last line")
                    break
                value = self._read(number, line)
                if value is None:
                    pass
                elif number == 1 and "record" in value and not file.peek(1):
                    self._entry(number, value)
                    if verdict.holds:
                        verdict.not_proved.append(
                            "whether other records belong to it: this is one record, handed on by itself"
                        )
                    return self._finished()
                elif number == 1:
                    self._first(value)
                elif value.get("schema") == END:
                    ended = True
                    self._end(number, value)
                else:
                    self._entry(number, value)
                self._digest.update(line)
        if not ended:
            verdict.differ(
                number + 1, "line", "the last line, with the digest of all others, is missing"
            )
        return self._finished()

    def _read(self, number: int, line: bytes) -> dict[str, Any] | None:
        try:
            value = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            self.verdict.differ(number, "line", f"it cannot be read: {error}")
            return None
        if not isinstance(value, dict):
            self.verdict.differ(number, "line", "it is not an object")
            return None
        if canonical_json(value) + b"\n" != line:
            self.verdict.differ(
                number, "line", "it is not in canonical form: sorted names, no spaces, one line end"
            )
        return value

    def _first(self, value: dict[str, Any]) -> None:
        if value.get("schema") != HEADER:
            self.verdict.differ(
                1,
                "schema",
                f"a file of evidence begins with {HEADER!r}; the beginning may be missing",
            )
            return
        self._fields(1, value, _HEADER_FIELDS, None)
        self.header, choice = value, value.get("choice")
        if not isinstance(choice, dict):
            self.verdict.differ(1, "choice", "the selection of items is missing")
        else:
            self.verdict.choice, self.verdict.whole = choice, not choice
            self.verdict.chosen = chosen(str(value.get("route")), choice, str(value.get("made_at")))
        if "public_key" in value:
            try:
                named = read_public(str(value["public_key"]))
            except UsageError:
                self.verdict.differ(1, "public_key", "it is not a public key")
                return
            if self._given is not None and named != self._given:
                self.verdict.differ(
                    1, "public_key", f"it is signed with another key: {public_text(named)}"
                )
            self._key = self._given or named
        elif self._given is not None:
            self.verdict.differ(1, "public_key", "the file is not signed")

    def _entry(self, number: int, value: dict[str, Any]) -> None:
        record = value.get("record")
        key = str(record["key"]) if isinstance(record, dict) and "key" in record else None
        self._fields(number, value, _ENTRY_FIELDS, key)
        self.verdict.records += 1
        differed, under = self.verdict.found, self.verdict.under_heads
        digest = sha256(canonical_json(record)).hexdigest()
        if value.get("digest") != digest:
            self.verdict.differ(number, "digest", "it is not the digest of this record", key)
        for field, what in differences(record):
            self.verdict.differ(number, field, what, key)
        if isinstance(record, dict):
            self.verdict.seals += record.get("schema") == SEAL_SCHEMA
            self.verdict.forgotten += record.get("schema") == FORGOTTEN_SCHEMA
        self._signature(number, value, RECORD_SIGNED, digest, key)
        if isinstance(record, dict):
            self._belongs(number, record, key)
            self._times(number, record, key)
            self._lines.all += _line_count(record)
            if "covered" in value:
                self._covered(number, value, record, key)
            if "proof" in value:
                self._proof(number, value["proof"], record, key)
            elif self._heads is not None:
                self._not_under(number, record, key, None)
        if self._on_record is not None and isinstance(record, dict):
            sound, proved = self.verdict.found == differed, self.verdict.under_heads > under
            self._on_record(_summary(record, value.get("proof"), sound, proved))

    def _proof(self, number: int, proof: Any, record: dict[str, Any], key: str | None) -> None:
        try:
            head = record["chain"]["head"] if "chain" in record else record["head"]
            root = proved_root(proof, bytes.fromhex(head))
            day = str(proof["day"])
        except (AttributeError, KeyError, TypeError, ValueError):
            self.verdict.differ(number, "proof", "it is not a proof", key)
            return
        if root != proof.get("root"):
            self.verdict.differ(
                number,
                "proof",
                f"it does not lead from the item's last line to its root for {day}",
                key,
            )
        elif self._heads is not None and day not in self._heads.by_day:
            self._not_under(number, record, key, day)
        elif self._heads is not None and self._heads.by_day[day].get("root") != root:
            self.verdict.differ(
                number, "proof", f"the published head of {day} has another root", key
            )
        elif self._heads is not None and "chain" not in record:
            self.verdict.lack(
                number,
                f"its digest is under the head of {day}, but what it says does not follow from a digest",
                key,
            )
        elif self._heads is not None:
            self.verdict.under_heads += 1
            self._lines.count(day, _line_count(record))

    def _covered(
        self, number: int, value: dict[str, Any], record: dict[str, Any], key: str | None
    ) -> None:
        """A record that goes on after the newest head says how many of its lines are under heads,
        and proves it for the last of these."""
        try:
            proof, lines = value["covered"]["proof"], value["covered"]["lines"]
            fields = set(value["covered"]) == {"lines", "proof"}
            root = proved_root(proof, chain_links(record)[lines - 1])
            day = str(proof["day"])
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            self.verdict.differ(number, "covered", "it is not a number of lines with a proof", key)
            return
        if not fields or not 0 < lines < _line_count(record) or "proof" in value:
            self.verdict.differ(
                number,
                "covered",
                "only a record that goes on after the newest head has it, with the lines before",
                key,
            )
        elif root != proof.get("root"):
            self.verdict.differ(
                number, "covered", f"it does not lead from line {lines} to its root for {day}", key
            )
        elif self._heads is not None and day in self._heads.by_day:
            if self._heads.by_day[day].get("root") == root:
                self._lines.count(day, lines)
            else:
                self.verdict.differ(
                    number, "covered", f"the published head of {day} has another root", key
                )

    def _not_under(
        self, number: int, record: dict[str, Any], key: str | None, day: str | None
    ) -> None:
        """A record that is not proved to be under a given head; `day` is that of the head in its
        proof, None: it has no proof."""
        assert self._heads is not None
        newest = self._heads.newest_day
        written = max(filter(None, [day, _day_of(record)]), default="")
        if (
            self._allow_newer
            and "chain" in record
            and written >= newest
            and day not in self._heads.by_day
        ):
            self.verdict.newer += 1
        elif day is not None:
            self.verdict.lack(
                number, f"its proof names the head of {day}, which was not given", key
            )
        else:
            when = (
                "no head covers it yet, or its proof was removed"
                if written >= newest
                else "its proof was removed, or its head is missing"
            )
            self.verdict.lack(number, f"it has no proof that a head covers it: {when}", key)

    def _belongs(self, number: int, record: dict[str, Any], key: str | None) -> None:
        """A record is of the route that the header names, and stands in the file once."""
        route = self.header.get("route", record.get("route"))
        if record.get("route") != route:
            self.verdict.differ(
                number,
                "route",
                f"it is of the route {record.get('route')!r}; the file is of {route!r}",
                key,
            )
        if key is not None:
            self._seen.add(_name_of(record.get("route"), key, _life(record)), number)
            self._earlier.add(record, key, number)

    def _times(self, number: int, record: dict[str, Any], key: str | None) -> None:
        """The times of a record's lines do not run back by more than clocks do, except at a line
        that says so itself: the item was dated as of then, because a clock had been ahead."""
        before, previous = 0, None
        for place, line in enumerate(_lines_of(record)):
            if previous is not None and _redated_from(line) == iso(previous):
                self.verdict.redated += 1
                before = line.at
            elif line.at < before - CLOCKS_MS:
                back = short_span(before - line.at)
                what = f"it was written {back} before the line that it follows; clocks explain {short_span(CLOCKS_MS)} at most"
                self.verdict.differ(number, f"chain.lines[{place}]", what, key)
                break
            before, previous = max(before, line.at), line.at
        if before > self._latest[0]:
            self._latest = (before, key or "")

    def _whole_file(self) -> None:
        """Faults that show only when all records are known."""
        for number, first in self._seen.repeated():
            self.verdict.differ(
                number,
                "record",
                f"it is the same item as in line {first}: a record stands in a file once",
            )
        if not self.header:
            return
        self._earlier_lives()
        made_at = _ms_of(self.header.get("made_at"))
        if made_at is None:
            self.verdict.differ(1, "made_at", "it is not a time")
            return
        at, key = self._latest
        if at > made_at + CLOCKS_MS + PER_RECORD_MS * self.verdict.records:
            what = f"it says {self.header['made_at']}, but a line of {key} was written later, at {iso(at)}: a file is made after its content"
            self.verdict.differ(1, "made_at", what)
        if "newest" in self.header:
            self._newest(made_at)

    def _earlier_lives(self) -> None:
        """The earlier lives that records name are in the file, each with the lines that lead to the
        head that the later life names."""
        with_record: dict[int, NamedLife] = {}
        for named in self._earlier:
            route = self.header.get("route")
            line = self._seen.line_of(_name_of(route, named.key, str(named.life)))
            if line is not None:
                with_record[line] = named
                continue
            if self._seen.line_of(_name_of(route, named.key, named.head)) is None:
                what = f"{named}: its record is missing; the file has every life of an item, or a line that says that the record is lost"
                self.verdict.differ(named.line, "earlier life", what, named.key)
            else:
                self.verdict.lack(
                    named.line, f"{named}: its record is missing, only its end is known", named.key
                )
        if not with_record:
            return
        with self._path.open("rb") as file:
            for number, text in enumerate(file, 1):
                if number in with_record:
                    self._ends_as_named(number, text, with_record[number])

    def _ends_as_named(self, number: int, text: bytes, named: NamedLife) -> None:
        record = msgspec.json.decode(text)["record"]
        head = record["chain"]["head"] if "chain" in record else record["head"]
        if named.head and head != named.head:
            what = f"{named}: the record does not end as line {named.line} says: lines were cut off or added, or it is another record"
            self.verdict.differ(number, "chain.head", what, named.key)

    def _completeness(self) -> None:
        """Note whether any line of the route is missing that the given heads count."""
        verdict = self.verdict
        if self._heads is None:
            return
        self._lines.without = verdict.seals + verdict.forgotten
        result = completeness(self._heads, self.header, self._lines)
        verdict.complete_to, verdict.later_lines, verdict.not_complete = (
            result.complete_to,
            result.later,
            result.unknown,
        )
        verdict.lines = self._lines.proved
        if result.missing:
            verdict.differ(0, "lines", result.missing)
        elif result.short and not verdict.open:
            verdict.lack(0, f"that no line is missing: {result.short}")

    def _newest(self, made_at: int) -> None:
        """The newest line that the export covers, as its header names it."""
        newest = self.header["newest"]
        place = newest.get("place") if isinstance(newest, dict) else None
        at = _ms_of(newest.get("at")) if isinstance(newest, dict) else None
        if (
            not isinstance(place, int)
            or set(newest) != {"place", "at"}
            or (at is None and newest.get("at") is not None)
        ):
            self.verdict.differ(1, "newest", "it is not a place and a time")
        elif at is not None and at > made_at + CLOCKS_MS:
            self.verdict.differ(
                1, "newest", f"it was written at {newest['at']}, after the file was made"
            )

    def _end(self, number: int, value: dict[str, Any]) -> None:
        self._fields(number, value, _END_FIELDS, None)
        if value.get("count") != self.verdict.records:
            self.verdict.differ(
                number,
                "count",
                f"it is {value.get('count')}, but there are {self.verdict.records} records: some are missing or were added",
            )
        digest = self._digest.hexdigest()
        if value.get("digest") != digest:
            self.verdict.differ(number, "digest", "the lines before were changed")
        self._signature(number, value, FILE_SIGNED, digest, None)

    def _fields(
        self, number: int, value: dict[str, Any], known: Iterable[str], key: str | None
    ) -> None:
        for name in sorted(set(value) - set(known)):
            self.verdict.differ(number, name, "a file of evidence has no such field here", key)

    def _signature(
        self, number: int, value: dict[str, Any], kind: str, digest: str, key: str | None
    ) -> None:
        if self._key is None:
            return
        if "signature" not in value:
            self.verdict.differ(number, "signature", "it is missing", key)
        elif not is_signed(self._key, value["signature"], kind, digest):
            self.verdict.differ(
                number, "signature", "it is not valid for this key and content", key
            )
        self._signatures += 1

    def _finished(self) -> Verdict:
        verdict = self.verdict
        if self._heads is not None:
            for number, what in self._heads.faults:
                verdict.differ(number, "head", what)
            if self._heads.unsigned:
                days = self._heads.unsigned
                named = ", ".join(days[:NAMED]) + (
                    f" and {len(days) - NAMED:,} more" if len(days) > NAMED else ""
                )
                verdict.lack(0, f"whose the heads are is not proved: not signed: {named}")
        self._whole_file()
        if verdict.holds:
            self._completeness()
        if not verdict.holds:
            return verdict
        if self._complete and self._heads is None:
            verdict.lack(
                0,
                "that no later line is missing is not known: no published head was given (--head)",
            )
        elif self._complete and verdict.not_complete:
            verdict.lack(0, f"that no later line is missing is not known: {verdict.not_complete}")
        elif self._complete and verdict.later_lines:
            verdict.lack(0, f"it is not the present: {self._later()}")
        whole = verdict.records - verdict.seals - verdict.forgotten
        verdict.proved.insert(
            0,
            f"{whole:,} of {verdict.records:,} records: the chain is complete, and every field follows from its lines",
        )
        if not self.header:
            verdict.not_proved += self._earlier.not_here()
        if verdict.choice:
            verdict.not_proved.append(
                f"anything of the route's other items: this is {verdict.chosen}"
            )
        if verdict.seals:
            verdict.not_proved.append(
                f"what happened to {_items(verdict.seals)} of which only the seal is left"
            )
        if verdict.forgotten:
            verdict.not_proved.append(
                f"what happened to {_items(verdict.forgotten)}: content removed, only digests are left"
            )
        if verdict.redated:
            verdict.not_proved.append(
                f"when the lines before {verdict.redated:,} others were written: by a clock that was ahead, as those say"
            )
        if self._key is None or not self._signatures:
            verdict.not_proved.append(
                "who wrote this, and that it was not rewritten since: nothing here is signed, or no key was given"
            )
            verdict.not_proved.append("correlation ids: they stand in no line")
        elif self._given is None:
            verdict.signed_by = fingerprint(self._key)
            verdict.proved.append(
                "everything is signed with the one key that the file itself names"
            )
            verdict.not_proved.append(
                f"whose key that is: get it from its owner, and give it with --public-key ({verdict.signed_by})"
            )
        else:
            verdict.signed_by = fingerprint(self._given)
            verdict.proved.append(
                f"everything was signed with the key that was given ({verdict.signed_by})"
            )
        if self._heads is None:
            verdict.not_proved.append(
                "when it was written, except by the statement of the signer: no published head was given (--head)"
            )
        else:
            under = f"{verdict.under_heads:,} of {verdict.records:,} records: every line given is under a published head"
            (verdict.proved if verdict.under_heads else verdict.not_proved).append(under)
            if verdict.newer:
                newer = f"{verdict.newer:,} of {verdict.records:,} records: they are newer than the newest head given, as was allowed"
                verdict.not_proved.append(newer)
            self._say_how_complete(self._heads)
        if "follow_up" in self.header:
            follow_up = self.header["follow_up"]
            verdict.not_proved.append(
                f"what happened to its items afterwards on the route {follow_up!r}: export that route too"
            )
        if "newest" in self.header:
            verdict.covers = self.header["newest"]
            verdict.not_proved.append(_beyond(verdict.covers, self._heads))
        elif self.header:
            verdict.not_proved.append(
                "how much of the ledger it covers: it names no newest line, because an earlier Milepost made it"
            )
        verdict.not_proved.append(
            "that the reported results are true: a stage's output is the statement of its worker or partner"
        )
        return verdict

    def _say_how_complete(self, heads: Heads) -> None:
        """What is proved and not proved of lines that are not in the file."""
        verdict = self.verdict
        if verdict.complete_to is None:
            what = f"that these are the last lines of their items: not known from these files: {verdict.not_complete}"
            verdict.not_proved.append(what)
        else:
            verdict.proved.append(
                f"no line of the route up to the head of {verdict.complete_to} is missing: that head and those before count "
                f"{verdict.lines:,}, as many as are here"
            )
        if verdict.later_lines:
            verdict.not_proved.append(f"what happened since: {self._later()}")
        verdict.not_proved.append(
            f"that nothing happened later: newest head given: {heads.newest_day}; later events are not excluded"
        )

    def _later(self) -> str:
        verdict, heads = self.verdict, self._heads
        assert heads is not None
        return f"the heads after {verdict.complete_to}, up to {heads.newest_day}, count {verdict.later_lines:,} more lines of the route"


def _name_of(route: Any, key: str, life: str) -> str:
    return f"{route}\x1f{key}\x1f{life}"


def _line_count(record: dict[str, Any]) -> int:
    chain = record.get("chain")
    return len(_list(chain.get("lines"))) if isinstance(chain, dict) else 0


def _summary(record: dict[str, Any], proof: Any, holds: bool, under_head: bool) -> VerifiedRecord:
    """Summary of a record that may be malformed: fields of another type are left out."""
    entries = [entry for entry in _list(record.get("stages")) if isinstance(entry, dict)]
    stages = [
        VerifiedStage(
            str(entry.get("stage")),
            str(entry.get("how")),
            _text(entry.get("at")),
            _text(entry.get("by")),
            len(reported_files([entry])),
            volumes_of(entry.get("output")),
        )
        for entry in entries
    ]
    return VerifiedRecord(
        str(record.get("key")),
        _text(record.get("status")),
        _text(record.get("ended_at")),
        record.get("schema") == SEAL_SCHEMA,
        record.get("schema") == FORGOTTEN_SCHEMA,
        stages,
        _text(proof.get("day")) if isinstance(proof, dict) else None,
        under_head,
        holds,
    )


def _beyond(newest: dict[str, Any], heads: Heads | None) -> str:
    """What an export does not cover."""
    covers = f"anything written after place {newest['place']:,} of the ledger" + (
        f" ({newest['at']})" if newest.get("at") else ""
    )
    if heads is None or heads.up_to <= newest["place"]:
        return f"{covers}: the file covers no more"
    return f"{covers}: the file covers no more, and the head of {heads.newest_day} goes on to place {heads.up_to:,}, so it is not the present"


def _lines_of(record: dict[str, Any]) -> list[Line]:
    chain = record.get("chain")
    lines = chain.get("lines") if isinstance(chain, dict) else None
    return [
        decode_line(text.encode(errors="replace")) for text in _list(lines) if isinstance(text, str)
    ]


def _redated_from(line: Line) -> str | None:
    """The time of the line before, as a line names it that dates an item from the future as of now;
    None: it is no such line."""
    redated = line.note.get(REDATED) if isinstance(line.note, dict) else None
    return _text(redated.get("updated_at")) if isinstance(redated, dict) else None


def _life(record: dict[str, Any]) -> str:
    """What distinguishes the records of one key in a file: the lives of the key."""
    try:
        return str(life_of(record)) if record.get("schema") == SCHEMA else str(record.get("head"))
    except (AttributeError, KeyError, TypeError):
        return ""


def _day_of(record: dict[str, Any]) -> str:
    """The day on which a record's item changed last, by its own statement."""
    return str(record.get("changed_at") or record.get("ended_at") or "")[:10]


def _ms_of(text: Any) -> int | None:
    """A time in milliseconds; None: it is not one."""
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (TypeError, ValueError, OverflowError):
        return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _items(n: int) -> str:
    return f"{n:,} {'item' if n == 1 else 'items'}"
