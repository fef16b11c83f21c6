"""Conversion between the core's rows and content and a table's attributes, whose names are those of
the design documents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.history import decode_line
from milepost.core.item import Content, Failure, Item, Row, digest_of
from milepost.core.outcome import Done, outcome_to_builtins
from milepost.core.status import FAILED, TERMINAL, Status
from milepost_aws.ledger.names import FAILED_SHARD, MARKED_SHARD, QUEUED_SHARD, due_shard, iso, ms
from milepost_aws.ledger.requests.queues import SqsMessage
from milepost_aws.ledger.tables.keys import BY_ATTRIBUTE, CONFIRMED_BY, OWN, Image, Layout
from milepost_aws.ledger.tables.values import LARGEST, WITH_KEY, Values

RETRY_ENTRY = 1024
"""Most bytes of an entry of retryHistory, as JSON."""
SHORT_DETAILS = 300
"""Characters of an error's message in an entry that would be larger."""
LONGEST_COLUMN = 2_048
"""Characters of a field of the input that is a column; the input itself has all of it."""
USUAL: Image = {
    "attempts": {"N": "0"},
    "maxRetriesExceeded": {"BOOL": False},
    "maxRetriesExceededAt": {"NULL": True},
    "nextRetryAt": {"NULL": True},
}
"""Values of Milepost's own attributes while there is nothing to say, written where the route asks
for the column."""

_encode = msgspec.json.Encoder().encode
_decode_failure = msgspec.json.Decoder(Failure).decode
_NONE_KEPT: dict[str, Any] = {}

_Write = Callable[[Any], dict[str, Any]]
_Read = Callable[[dict[str, Any]], Any]
_Conversion = tuple[_Write, _Read]
"""To and from an attribute."""
_TIME: _Conversion = (lambda at: {"S": iso(at)}, lambda attribute: ms(attribute["S"]))
_TEXT: _Conversion = (lambda text: {"S": text}, itemgetter("S"))
_NUMBER: _Conversion = (lambda number: {"N": str(number)}, lambda attribute: int(attribute["N"]))
_FLAG: _Conversion = (lambda _: {"BOOL": True}, lambda _: True)
_DIGEST: _Conversion = (lambda digest: {"B": digest}, itemgetter("B"))
_OPTIONAL: dict[str, tuple[str, Any, _Write, _Read]] = {
    "overdueAt": ("overdue_at", None, *_TIME), "claimedAt": ("claimed_at", None, *_TIME), "notBefore": ("not_before", None, *_TIME),
    "lease": ("lease", None, *_TEXT), "holder": ("holder", None, *_TEXT), "listId": ("list_id", None, *_TEXT), "note": ("note", None, *_TEXT),
    "lastLease": ("settled", None, *_TEXT), "lane": ("lane", "", *_TEXT), "contentDigest": ("content_digest", None, *_DIGEST),
    "attempts": ("attempts", 0, *_NUMBER), "totalAttempts": ("total_attempts", 0, *_NUMBER), "looks": ("looks", 0, *_NUMBER),
    "losses": ("losses", 0, *_NUMBER), "round": ("round", 1, *_NUMBER), "pass": ("pass_no", 1, *_NUMBER), "life": ("life", 0, *_NUMBER),
    "unknown": ("unknown", False, *_FLAG), "alone": ("alone", False, *_FLAG), "handedOver": ("handed_over", False, *_FLAG),
    "again": ("again", False, *_FLAG),
}  # fmt: skip
"""Attributes that a row has only where they differ from the usual value: field of the row, usual
value, conversion."""


class Handle(Struct, frozen=True, eq=False):
    """Ledger-private data that travels with a row that was read. It plays no part in comparing
    rows."""

    confirmation: dict[str, Any] | None = None
    """The present stage's confirmation as read from the row, valid or not."""
    retries: tuple[dict[str, Any], ...] = ()
    through: frozenset[str] = frozenset()
    """The stages whose attribute on the row is their result."""
    trail: tuple[dict[str, Any], ...] = ()
    """The history lines that were on the row."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle)

    __hash__ = None  # type: ignore[assignment]


class Link(Struct, frozen=True):
    """A history line that waits on its row to be copied to the journal."""

    version: int
    previous: bytes
    body: bytes


def is_ours(image: Image) -> bool:
    """Whether Milepost has taken in this row. Rows written by other programs have no version."""
    return "version" in image


def index_place(row: Row, layout: Layout) -> tuple[str, int] | None:
    """The row's partition and time in the due index; None: not in the index. Rows that wait for a
    worker have their own partition, because the queue shows whether their message still exists (see
    `lost_messages`). A row made due at once, so that its message is sent again in any case, is with
    the others."""
    due_at = row.due_at
    if due_at is None:
        return None
    waits = row.status is Status.QUEUED and layout.calls(row.stage) and row.not_before is None
    if not waits or row.look_at is None or row.look_at <= row.entered_at:
        return due_shard(row.stage, row.key), due_at
    if row.overdue_at is not None:
        return due_shard(f"{MARKED_SHARD}#{row.stage}", row.key), row.overdue_at
    return due_shard(f"{QUEUED_SHARD}#{row.stage}", row.key), due_at


def attributes(row: Row, layout: Layout) -> Image:
    """The row's state without its key and its waiting outcomes. Default values are left out."""
    place = index_place(row, layout)
    due_at = None if place is None else place[1]
    found: Image = {
        "queue": {"S": row.stage},
        "status": {"S": row.status.value},
        "version": {"N": str(row.version)},
        "head": {"B": row.head},
        "createdAt": {"S": iso(row.created_at)},
        "lastUpdatedAt": {"S": iso(row.updated_at)},
        "inputDigest": {"B": row.input_digest},
    }
    if row.correlation_id != row.key:
        found["correlationId"] = {"S": row.correlation_id}
    if row.entered_at != row.updated_at:
        found["enteredAt"] = {"S": iso(row.entered_at)}
    if place is not None:
        found["dueShard"] = {"S": place[0]}
        found["dueAt"] = {"S": iso(place[1])}
    elif row.status in FAILED:
        found["dueShard"] = {"S": due_shard(FAILED_SHARD, row.key)}
        found["dueAt"] = {"S": iso(row.entered_at)}
    if row.look_at is not None and row.look_at != due_at:
        found["lookAt"] = {"S": iso(row.look_at)}
    for name, (field, usual, write, _) in _OPTIONAL.items():
        value = getattr(row, field)
        if value != usual:
            found[name] = write(value)
    if row.error is not None:
        found["lastError"] = {"S": _error_text(row.error)}
    _for_people(row, found)
    return with_columns(found, layout) if layout.columns else found


def _error_text(error: Failure) -> str:
    """The last error, without long details: the history line has them all."""
    text = _encode(error)
    if len(text) > LARGEST:
        text = _encode(replace(error, details={"cut": f"{len(text):,} bytes; see the history"}))
    return text.decode()


def _for_people(row: Row, found: Image) -> None:
    """Add derived attributes for people who read the table; the code never reads them."""
    if row.look_at is not None and row.status is Status.RETRY_SCHEDULED:
        found["nextRetryAt"] = {"S": iso(row.look_at)}
    if row.look_at is not None and row.lease is not None:
        found["leaseUntil"] = {"S": iso(row.look_at)}
    if row.status is Status.MAX_RETRIES_EXCEEDED:
        found["maxRetriesExceeded"] = {"BOOL": True}
        found["maxRetriesExceededAt"] = {"S": iso(row.entered_at)}


def row_of(image: Image, layout: Layout, values: Values) -> Row:
    """The row in an image. Raises KeyError, TypeError or ValueError if it is not a row of
    Milepost."""
    key, status = layout.key_of(image), Status(image["status"]["S"])
    stage = image["queue"]["S"]
    look_at = None
    if status not in TERMINAL:
        due = image.get("lookAt") or image.get("dueAt")
        look_at = None if due is None else ms(due["S"])
    optional = {}
    for name in _OPTIONAL.keys() & image.keys():
        field, _, _, read = _OPTIONAL[name]
        optional[field] = read(image[name])
    return Row(
        layout.route,
        key,
        stage,
        status,
        int(image["version"]["N"]),
        image["head"]["B"],
        ms(image["createdAt"]["S"]),
        ms(image["lastUpdatedAt"]["S"]),
        entered_at(image),
        correlation_of(image, key),
        image["inputDigest"]["B"],
        look_at=look_at,
        error=_decode_failure(image["lastError"]["S"]) if "lastError" in image else None,
        kept=kept_of(image, layout, values),
        undecided=values.decode(image["undecided"]) if "undecided" in image else None,
        handle=Handle(
            image.get(layout.prefix + stage),
            tuple(image["retryHistory"]["L"]) if "retryHistory" in image else (),
            frozenset(_through(image)),
            tuple(image["trail"]["L"]) if "trail" in image else (),
        ),
        **optional,
    )


def life_of(image: Image) -> int:
    """The number of the key's life (how often it was taken in) that a row or seal belongs to."""
    return _number(image, "life", 0)


def correlation_of(image: Image, key: str) -> str:
    """The correlation id that the row came with, else its key."""
    return image["correlationId"]["S"] if "correlationId" in image else key


def entered_at(image: Image) -> int:
    """When the row entered its stage or terminal status; the attribute is left out where that was
    the last change."""
    return ms(image["enteredAt" if "enteredAt" in image else "lastUpdatedAt"]["S"])


def kept_of(image: Image, layout: Layout, values: Values) -> dict[str, Any]:
    """Outcomes waiting for the item, by stage: every valid confirmation on the row that is not
    applied yet."""
    kept = values.decode(image["kept"]) if "kept" in image else {}
    through = _through(image)
    for name, attribute in image.items():
        stage = name.removeprefix(layout.prefix)
        if name.startswith(layout.prefix) and stage not in through:
            value = values.decode(attribute)
            payload = _payload(image, layout, values, stage) if layout.has_own_rule(stage) else None
            if layout.valid(stage, value, payload):
                outcome = outcome_to_builtins(_confirmation(image, layout, stage, value, values))
                kept.setdefault(stage, {**outcome, "by": _confirmed_by(image, name, stage)})
    return kept or _NONE_KEPT


def _confirmed_by(image: Image, attribute: str, stage: str) -> str:
    """Who set the attribute that confirms a stage, as far as the row says."""
    return image.get(CONFIRMED_BY + stage, {}).get("S") or f"{BY_ATTRIBUTE}{attribute}"


def _payload(image: Image, layout: Layout, values: Values, stage: str) -> Any:
    """The payload of a stage; None where the item has not reached it or a confirmer has overwritten
    it."""
    content = content_of(image, layout, values)
    if stage in content.payloads or image["queue"]["S"] != stage:
        return content.payloads.get(stage)
    return content.input if digest_of(content.input) == current_digest(image) else None


def _confirmation(image: Image, layout: Layout, stage: str, value: Any, values: Values) -> Done:
    """A confirmation as an outcome. If the confirmer rewrote `input` too, that is the next stage's
    payload."""
    if image["queue"]["S"] != stage or "input" not in image:
        return Done(value)
    content = content_value(image["input"], image, layout, values)
    return (
        Done(value) if digest_of(content) == current_digest(image) else Done(value, payload=content)
    )


def current_digest(image: Image) -> bytes:
    """Digest of the item's present input as stored: the first one, unless an operator has replaced
    it."""
    digest: bytes = image["contentDigest" if "contentDigest" in image else "inputDigest"]["B"]
    return digest


def content_of(image: Image, layout: Layout, values: Values) -> Content:
    """The item's input, payloads and results."""
    results = {
        stage: values.decode(image[layout.prefix + stage])
        for stage in sorted(_through(image))
        if layout.prefix + stage in image
    }
    payloads = {}
    for name, attribute in image.items():
        if name.startswith("payload_"):
            reference = attribute.get("M", {}).get("of")
            payload = (
                results.get(reference["S"])
                if reference
                else content_value(attribute, image, layout, values)
            )
            payloads[name.removeprefix("payload_")] = payload
    return Content(
        content_value(image["input"], image, layout, values) if "input" in image else None,
        payloads,
        results,
    )


def input_of(content: Any, key: str, layout: Layout, values: Values, place: str) -> dict[str, Any]:
    """The attribute for an item's input. Leading fields that repeat the key attributes are left
    out, since DynamoDB charges the whole row on every write; `content_value` puts them back in
    front, so that the input is byte for byte the same."""
    names = layout.key
    if isinstance(content, dict) and tuple(islice(content, len(names))) == names:
        stored = layout.key_image(key)
        if all(content[name] == stored[name]["S"] for name in names):
            rest = _encode({name: value for name, value in content.items() if name not in names})
            if len(rest) <= LARGEST:
                return {"M": {WITH_KEY: {"S": rest.decode()}}}
    return values.encode(content, place)


def content_value(attribute: dict[str, Any], image: Image, layout: Layout, values: Values) -> Any:
    """The input or payload stored in an attribute of this row."""
    rest = attribute.get("M", {}).get(WITH_KEY)
    if rest is None:
        return values.decode(attribute)
    return {**{name: image[name]["S"] for name in layout.key}, **msgspec.json.decode(rest["S"])}


def item_of(image: Image, layout: Layout, values: Values, ticket: SqsMessage | None = None) -> Item:
    return Item(row_of(image, layout, values), content_of(image, layout, values), ticket)


def links_of(image: Image, values: Values) -> list[Link]:
    """The history lines on the row, oldest first."""
    links = []
    for entry in image.get("trail", {}).get("L", ()):
        if is_pack(entry):
            for line in values.text(entry).split(b"\n"):
                before, _, body = line.partition(b" ")
                links.append(Link(_version(body), bytes.fromhex(before.decode()), body))
        else:
            previous, body = values.decode_line(entry)
            links.append(Link(_version(body), previous, body))
    return links


def offered_by(
    links: Sequence[Link], image: Image, layout: Layout, values: Values
) -> dict[int, Any]:
    """The payloads that these lines offered to an external stage, by version. The row's last line
    belongs to the row's present stage, even if that was renamed."""
    offering = [(link, decode_line(link.body)) for link in links if b'"offered":' in link.body]
    if not offering:
        return {}
    content, newest = content_of(image, layout, values), _number(image, "version", 0)
    return {
        link.version: content.payloads.get(
            image["queue"]["S"] if link.version == newest else line.after_stage, content.input
        )
        for link, line in offering
        if line.offered is not None
    }


def is_pack(entry: dict[str, Any]) -> bool:
    """Whether a trail entry is a reference to a blob of many lines."""
    return "lines" in entry.get("M", {})


def packed_trail(
    trail: Sequence[dict[str, Any]], values: Values, place: str
) -> list[dict[str, Any]]:
    """The trail with its single lines moved into one blob, so that the row stays small while its
    lines wait to be copied."""
    packs = [entry for entry in trail if is_pack(entry)]
    lines = [values.decode_line(entry) for entry in trail if not is_pack(entry)]
    return [
        *packs,
        values.pack([previous.hex().encode() + b" " + body for previous, body in lines], place),
    ]


def copied_of(image: Image) -> int:
    """The version up to which the lines are in the journal."""
    return _number(image, "copied", 0)


class _Version(Struct):
    version: int


_decode_version = msgspec.json.Decoder(_Version).decode


def _version(body: bytes) -> int:
    return _decode_version(body).version


def _through(image: Image) -> set[str]:
    return set(image["through"]["SS"]) if "through" in image else set()


def _number(image: Image, name: str, usual: int) -> int:
    return int(image[name]["N"]) if name in image else usual


# Columns: attributes that a row has for people and other programs that read the table; the code nev
def with_columns(image: Image, layout: Layout) -> Image:
    """The row's attributes, with those columns of the route that have their usual value."""
    for name in layout.columns:
        if name in USUAL:
            image.setdefault(name, USUAL[name])
    return image


def column_values(content: Any, layout: Layout) -> Image:
    """The columns of a new row that come from its input, and an empty retryHistory if the route
    asks for it."""
    found: Image = {}
    for name in layout.columns:
        if name == "retryHistory":
            found[name] = {"L": []}
        elif name not in OWN and isinstance(content, Mapping) and content.get(name) is not None:
            value = content[name]
            text = value if isinstance(value, str) else _encode(value).decode()
            found[name] = {"S": text[:LONGEST_COLUMN]}
    return found


def retry_entry(attempt: Mapping[str, Any]) -> dict[str, Any]:
    """A failed attempt as an entry of retryHistory, in the names of the design document."""
    if len(_encode(attempt)) > RETRY_ENTRY:
        message = str(attempt["error_details"].get("message", ""))[:SHORT_DETAILS]
        attempt = {**attempt, "error_details": {"message": message, "cut": "see the history"}}
    return {"M": {_camel(name): _typed(value) for name, value in attempt.items()}}


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _typed(value: Any) -> dict[str, Any]:
    """A JSON value as a typed attribute."""
    if value is None:
        return {"NULL": True}
    if isinstance(value, bool):
        return {"BOOL": value}
    if isinstance(value, (int, float)):
        return {"N": _encode(value).decode()}
    if isinstance(value, Mapping):
        return {"M": {str(name): _typed(inner) for name, inner in value.items()}}
    if isinstance(value, (list, tuple)):
        return {"L": [_typed(inner) for inner in value]}
    return {"S": str(value)}
