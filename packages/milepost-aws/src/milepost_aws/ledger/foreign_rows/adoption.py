"""Adoption of rows that other programs put: new ones are taken in, overwritten ones restored,
faulty ones quarantined; and operators list them, and adopt each at its present stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from msgspec import Struct

from milepost.core.change import Change, also, change
from milepost.core.decide import accept
from milepost.core.errors import MalformedInput
from milepost.core.history import Line
from milepost.core.item import Item, digest_of
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Stage
from milepost.core.status import TERMINAL, Reason, Status
from milepost.ports.foreign_rows import Adopted, ForeignRow, ForeignRowPage
from milepost_aws.ledger.foreign_rows.confirmations import OUTSIDE
from milepost_aws.ledger.names import iso
from milepost_aws.ledger.offers import message_for
from milepost_aws.ledger.refused_rows import UNREADABLE, quarantine_copy, why_unreadable
from milepost_aws.ledger.requests.client import expressions
from milepost_aws.ledger.requests.queues import Outgoing
from milepost_aws.ledger.store import AwsStore
from milepost_aws.ledger.tables.conditional_write import Update, place_of, put_of
from milepost_aws.ledger.tables.item_rows import (
    attributes,
    content_of,
    correlation_of,
    is_ours,
    row_of,
)
from milepost_aws.ledger.tables.keys import PREFIXES, Image, Layout

PAGE = 500
TODAY = PREFIXES["today"]


class Adoption(Struct, frozen=True):
    """A row about to be adopted: the message for its stage, if any, and the write that follows the
    send."""

    layout: Layout
    image: Image
    call: Outgoing | None
    update: Update


def adopt(
    store: AwsStore, layout: Layout, plan: Plan, key: str, image: Image, old: Image | None, now: int
) -> Adoption | str:
    """Handle a row without a version. Returns "restored", "known" or "set aside", or its adoption,
    for `carry_out` to do many at once."""
    if old is not None and is_ours(old):
        return _restore(store, layout, key, image, old, now)
    fault = plan.route.closed or _fault_of(layout, image) or _known_in_form(store, plan, key)
    if fault is not None:
        return _set_aside(store, layout, image, fault, now)
    content = store.values.decode(image["input"]) if "input" in image else None
    seal = store.seals(layout.route, [key]).get(key)
    if seal is not None:
        if seal.forgotten:
            fault = "it ended before, and its content was removed by 'milepost forget'; Milepost does not process a finished item again"
            return _set_aside(store, layout, image, fault, now)
        if seal.current_digest != digest_of(content):
            fault = f"it ended before ({seal.status}) with other content; Milepost does not process a finished item again"
            return _set_aside(store, layout, image, fault, now)
        return _remove(store, layout, key, image)
    written = store.journal.history(layout.route, key)
    if written and not _forgotten(plan, written[-1].line, now):
        return _set_aside(
            store,
            layout,
            image,
            f"it has {len(written)} history lines but had no row: another program removed it",
            now,
        )
    return _adoption(store, layout, plan, key, image, content, now)


def _known_in_form(store: AwsStore, plan: Plan, key: str) -> str | None:
    """Why the row is of an item that the ledger has already, with its key in the route's form (see
    `Route.key_forms`)."""
    formed = plan.route.formed(key)
    if formed == key or not (store.images(plan.name, [formed]) or store.seals(plan.name, [formed])):
        return None
    return f"the item was accepted before, as {formed}; Milepost does not process it again"


def _forgotten(plan: Plan, last: Line, now: int) -> bool:
    """Whether this is the last line of an item that ended so long ago that the route has forgotten
    its key."""
    remembered = plan.route.remember_ms
    return remembered is not None and last.status in TERMINAL and last.at < now - remembered


def carry_out(store: AwsStore, adoptions: Sequence[Adoption], now: int) -> list[str]:
    """Send all messages, then write the rows. Returns for each "adopted", "known" (another process
    adopted it), or "set aside": a row whose message SQS will never accept goes into quarantine."""
    calls = {
        place: adoption.call
        for place, adoption in enumerate(adoptions)
        if adoption.call is not None
    }
    refusals = dict(zip(calls, store.queues.send(list(calls.values())), strict=True))

    def carried_out(adoption: Adoption, refusal: str | None) -> str:
        if refusal is not None:
            return _set_aside(
                store,
                adoption.layout,
                adoption.image,
                f"its message cannot be sent: {refusal}",
                now,
            )
        return "adopted" if adoption.update.written(store.requests) else "known"

    return store.requests.each(
        [
            partial(carried_out, adoption, refusals.get(place))
            for place, adoption in enumerate(adoptions)
        ]
    )


def _fault_of(layout: Layout, image: Image) -> str | None:
    """Why a row of another program cannot be adopted automatically."""
    fault = layout.foreign_key_fault(image)
    if fault is not None:
        return fault
    if "input" not in image:
        return "it has no input; an update of a removed row creates such a row"
    confirmations = sorted(name for name in image if name.startswith(layout.prefix))
    if confirmations:
        return f"it was created with {confirmations[0]}; an unknown item cannot be confirmed"
    at = image.get("queue", {}).get("S")
    if at is not None and at != next(iter(layout.stages), at):
        return f"it is already at stage {at!r}; 'milepost adopt' takes it in at that stage"
    return _value_fault(image)


def _value_fault(image: Image) -> str | None:
    """Why the values of a foreign row cannot be taken in."""
    if "input" in image and _has_binary(image["input"]):
        return "its input is binary, or has binary values; only text and JSON can be given to a stage, so write it decrypted and decoded"
    kind = next(iter(image.get("correlationId", {"S": ""})))
    if kind != "S":
        return f"its correlationId is of type {kind}; write it as text (S)"
    return None


def _has_binary(attribute: Mapping[str, Any]) -> bool:
    """Whether there is a binary value in this attribute."""
    [(kind, value)] = attribute.items()
    if kind in ("B", "BS"):
        return True
    inner = value.values() if kind == "M" else value if kind == "L" else ()
    return any(map(_has_binary, inner))


def _adoption(
    store: AwsStore, layout: Layout, plan: Plan, key: str, image: Image, content: Any, now: int
) -> Adoption:
    """Offer and record it in one write, after the send."""
    correlation = correlation_of(image, key)
    start = plan.route.start_of(content, now)
    first = accept(
        plan,
        key,
        content,
        now,
        correlation_id=correlation,
        digest=digest_of(content),
        by=OUTSIDE.by,
        not_before=start,
    )
    call = None
    if first.after.status is Status.QUEUED:
        call = message_for(
            store, Item(first.after, content_of(image, layout, store.values)), plan.first
        )
    return Adoption(layout, image, call, adoption_update(store, layout, first, content, image))


def adoption_update(
    store: AwsStore,
    layout: Layout,
    first: Change,
    content: Any,
    image: Image,
    omit: Sequence[str] = (),
) -> Update:
    """The write that adopts a row: sets only our own attributes, and only if they are still absent
    and its input is unchanged."""
    update = Update(layout, first.after.key)
    row = put_of(first, content, layout, store.values, token="")
    update.set_all(
        {
            name: value
            for name, value in row.items()
            if name not in (*layout.key, "input", "createToken", *omit)
        }
    )
    update.equal("version", None)
    update.unchanged(image, "input")
    return update


def _restore(store: AwsStore, layout: Layout, key: str, image: Image, old: Image, now: int) -> str:
    """Restore a row of ours that another program overwrote: all our attributes return, and a
    history line notes it."""
    row = row_of(old, layout, store.values)
    again = store.values.decode(image["input"]) if "input" in image else None
    note = {
        "put again": "with the same content"
        if digest_of(again) == row.current_digest
        else {"input": again}
    }
    noted = change(row, Reason.NOTED, now, row.status, {}, OUTSIDE, note=note)
    update = Update(layout, key)
    restored = _with_line(store, layout, noted, old)
    update.set_all({name: value for name, value in restored.items() if name not in layout.key})
    update.remove(
        *(name for name in image.keys() - restored.keys() if not name.startswith(layout.prefix))
    )
    update.equal("version", None)
    return "restored" if update.written(store.requests) else "known"


def _with_line(store: AwsStore, layout: Layout, noted: Change, old: Image) -> Image:
    """The old row with one more line."""
    place = place_of(noted.before.route, noted.before.key)
    trail = [
        *old.get("trail", {}).get("L", ()),
        store.values.encode_line(noted.before.head, noted.body, place),
    ]
    ours = {
        name: value
        for name, value in attributes(noted.after, layout).items()
        if name in ("version", "head", "lastUpdatedAt", "enteredAt")
    }
    return {**old, **ours, "trail": {"L": trail}}


def _remove(store: AwsStore, layout: Layout, key: str, image: Image) -> str:
    """Remove the row of a known key, if it is unchanged."""
    unchanged = expressions(
        {"input": image["input"]},
        ConditionExpression="attribute_not_exists(#version) AND #input = :input",
    )
    store.requests.write_if(
        "delete_item", TableName=layout.table, Key=layout.key_image(key), **unchanged
    )
    return "known"


def _set_aside(store: AwsStore, layout: Layout, image: Image, reason: str, now: int) -> str:
    """Put the row into quarantine, unless it was adopted in the meantime: a repeated record shows
    an older state."""
    key = layout.key_of(image)
    if is_ours(store.images(layout.route, [key]).get(key, {})):
        return "known"
    quarantine_copy(store, layout, image, reason, now)
    return "set aside"


# By operators -------------------------------------------------------------------------------------
class AwsForeignRows:
    """Access to the foreign rows of one deployment (see `ports.foreign_rows.ForeignRowStore`)."""

    def __init__(self, store: AwsStore) -> None:
        self._store = store

    def scan(self, plan: Plan, after: Any = None) -> ForeignRowPage:
        layout = self._store.load_route(plan)
        foreign = expressions(FilterExpression="attribute_not_exists(#version)")
        answer = self._store.requests.page(
            "scan", layout.table, after, Limit=PAGE, ConsistentRead=True, **foreign
        )
        found = [foreign_row_of(self._store, plan, image) for image in answer["Items"]]
        return ForeignRowPage(
            int(answer.get("ScannedCount", len(found))), found, answer.get("LastEvaluatedKey")
        )

    def get(self, plan: Plan, keys: Sequence[str]) -> list[ForeignRow | None]:
        self._store.load_route(plan)
        images = self._store.images(plan.name, keys)
        there = {
            key: foreign_row_of(self._store, plan, image)
            for key, image in images.items()
            if not is_ours(image)
        }
        return [there.get(key) for key in keys]

    def adopt(
        self, plan: Plan, keys: Sequence[str], now: int, *, by: str, why: str
    ) -> list[Adopted]:
        self._store.load_route(plan)
        images = self._store.images(plan.name, keys)

        def one(key: str) -> Adopted:
            image = images.get(key)
            if image is None:
                return Adopted(key, False, why="there is no row with this key")
            if is_ours(image):
                return Adopted(key, False, image["queue"]["S"], "it was already adopted")
            return adopt_at(self._store, plan, image, now, by=by, why=why)

        return self._store.requests.each([partial(one, key) for key in keys])


def foreign_row_of(store: AwsStore, plan: Plan, image: Image) -> ForeignRow:
    """The stage of a foreign row: the one in its `queue`, else the first; the stages before it that
    have a valid answer count as completed."""
    layout = store.load_route(plan)
    try:
        key = layout.key_of(image)
    except (KeyError, TypeError) as error:
        return ForeignRow(
            str({name: image.get(name) for name in layout.key}),
            wrong=f"its key cannot be read: {error}",
        )
    fault = layout.foreign_key_fault(image)
    if fault is not None:
        return ForeignRow(key, wrong=fault)
    named = image.get("queue", {}).get("S", "") if "queue" in image else plan.first.name
    if named not in plan.by_name:
        known = ", ".join(plan.by_name)
        return ForeignRow(
            key,
            named,
            wrong=f"its stage {named!r} is not in the route ({known}); correct its 'queue' attribute",
        )
    fault = _value_fault(image)
    if fault is not None:
        return ForeignRow(key, named, wrong=fault)
    before = [stage.name for stage in plan.stages[: plan.position[named]]]
    try:
        return ForeignRow(
            key, named, tuple(stage for stage in before if _answered(store, layout, stage, image))
        )
    except UNREADABLE as error:
        return ForeignRow(
            key, named, wrong=f"its answers cannot be read: {why_unreadable(error, image, layout)}"
        )


def adopt_at(store: AwsStore, plan: Plan, image: Image, now: int, *, by: str, why: str) -> Adopted:
    """Adopt it at its stage, and offer it, unless its earlier message is still in the same queue or
    the answer exists."""
    layout, foreign = store.load_route(plan), foreign_row_of(store, plan, image)
    wrong = foreign.wrong or _known_before(store, layout, foreign.key)
    if wrong is not None:
        return Adopted(foreign.key, False, foreign.stage, wrong)
    stage = store.plan_with_offers(plan).by_name[foreign.stage]
    try:
        content = store.values.decode(image["input"]) if "input" in image else None
        answered = _answered(store, layout, stage.name, image)
        first = _first(plan, stage, foreign, image, content, now, by, why)
    except MalformedInput as error:
        return Adopted(foreign.key, False, foreign.stage, str(error))
    except UNREADABLE as error:
        return Adopted(
            foreign.key,
            False,
            foreign.stage,
            f"it cannot be read: {why_unreadable(error, image, layout)}",
        )
    last = _moment(image, "lastQueued")
    # Not if it was offered, in the queue that the stage still has and that still keeps the message.
    again = not answered and (
        stage.queue is None or last is None or last + stage.offer_life_ms <= now
    )
    queued = first.after.status is Status.QUEUED
    if answered:
        first = also(first, look_at=now)
    elif queued and not again:
        first = also(first, look_at=(last or now) + stage.offer_life_ms)
    carried = _carried(plan, layout, foreign, image)
    update = adoption_update(
        store, layout, first, content, image, omit=("firstQueued", "lastQueued")
    )
    update.set_all(carried)
    update.unchanged(image, "queue", "lastQueued")
    if queued and again:
        update.set("lastQueued", {"S": iso(now)})
        if "firstQueued" not in image:
            update.set("firstQueued", {"S": iso(now)})
        item = Item(first.after, content_of({**image, **carried}, layout, store.values))
        [refusal] = store.queues.send([message_for(store, item, stage)])
        if refusal is not None:
            return Adopted(
                foreign.key, False, foreign.stage, f"its message cannot be sent: {refusal}"
            )
    if not update.written(store.requests):
        return Adopted(
            foreign.key, False, foreign.stage, "it was changed just now; look at it again"
        )
    return Adopted(foreign.key, True, foreign.stage)


def _first(
    plan: Plan,
    stage: Stage,
    foreign: ForeignRow,
    image: Image,
    content: Any,
    now: int,
    by: str,
    why: str,
) -> Change:
    """Its first history line, with everything it came with."""
    found = (
        {"queue": foreign.stage, "through": list(foreign.through)}
        if "queue" in image or foreign.through
        else None
    )
    note = None if found is None else {"found": found}
    correlation = correlation_of(image, foreign.key)
    # A row that was offered to its stage has started already.
    begun = bool(foreign.through) or stage.name != plan.first.name or "lastQueued" in image
    start = None if begun else plan.route.start_of(content, now)
    digest = digest_of(content)
    made = accept(
        plan,
        foreign.key,
        content,
        now,
        correlation_id=correlation,
        digest=digest,
        by=by,
        why=why,
        note=note,
        stage=stage,
        not_before=start,
    )
    since = min(now, _moment(image, "firstQueued") or now)
    overdue_at = made.after.overdue_at if stage.overdue_ms is None else since + stage.overdue_ms
    return also(made, created_at=since, entered_at=since, overdue_at=overdue_at)


def _carried(plan: Plan, layout: Layout, foreign: ForeignRow, image: Image) -> Image:
    """Completed stages and the stage's payload: in today's dialect, the answer of the stage
    before."""
    if not foreign.through:
        return {}
    carried: Image = {"through": {"SS": sorted(foreign.through)}}
    last = plan.stages[plan.position[foreign.stage] - 1].name
    if (
        last in foreign.through
        and layout.prefix == TODAY
        and image[layout.prefix + last] != {"BOOL": True}
    ):
        carried[f"payload_{foreign.stage}"] = {"M": {"of": {"S": last}}}
    return carried


def _known_before(store: AwsStore, layout: Layout, key: str) -> str | None:
    seal = store.seals(layout.route, [key]).get(key)
    if seal is not None:
        return f"it ended before ({seal.status}, {iso(seal.ended_at or 0)}); Milepost does not process a finished item again"
    written = store.journal.history(layout.route, key)
    return (
        f"it has {len(written)} history lines but had no row: another program removed it"
        if written
        else None
    )


def _answered(store: AwsStore, layout: Layout, stage: str, image: Image) -> bool:
    name = layout.prefix + stage
    return name in image and layout.valid(stage, store.values.decode(image[name]))


def _moment(image: Image, name: str) -> int | None:
    """A time written by another program: ISO-8601 with any fraction, in UTC if it names no zone."""
    try:
        found = datetime.fromisoformat(image[name]["S"])
        return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1000)
    except (KeyError, ValueError, OverflowError):
        return None
