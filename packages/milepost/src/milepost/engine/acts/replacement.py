"""Replacement of an item's content: the new content as its route reads it, and the copy of the old
content."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.core import operators
from milepost.core.change import Change
from milepost.core.errors import MalformedInput, UsageError
from milepost.core.item import Item
from milepost.core.routes.plan import Plan
from milepost.core.values.json import canonical_json
from milepost.core.values.redaction import redacted, restored
from milepost.core.values.refusal import Refusal, impossible
from milepost.engine.context import Context
from milepost.engine.intake import content_digest

COPY_LIMIT = 4_096
"""Old content up to this many bytes of JSON is copied into the history line; larger content goes to
a blob."""


class NewContent(Struct, frozen=True):
    """New content of an item, parsed by its route."""

    key: str
    content: Any
    digest: bytes


def read_content(plan: Plan, content: Any) -> NewContent:
    """Parse and check new content; UsageError if it could not be submitted."""
    try:
        parsed = plan.route.read(content)
        return NewContent(parsed.key, parsed.content, content_digest(parsed.content))
    except MalformedInput as error:
        raise UsageError(f"invalid new content: {error}") from None


def replaced(
    ctx: Context,
    item: Item,
    plan: Plan,
    new: NewContent,
    *,
    here: bool,
    rerun: bool,
    dry_run: bool = False,
    **author: Any,
) -> Change | Refusal:
    """The change that replaces the content, or why it is refused. The old content is stored before
    the change is written."""
    if item.key not in (new.key, plan.route.formed(new.key)):
        return impossible(
            f"the new content has the key {plan.route.formed(new.key)!r}; submit it as a new item"
        )
    # What was hidden from a person who has edited the old content stays as it is.
    content = restored(new.content, item.input)
    digest = new.digest if content == new.content else content_digest(content)
    old = {} if digest == item.row.current_digest else _old_content(ctx, item, plan, dry_run)
    return operators.replace(
        item,
        plan,
        ctx.clock.now(),
        content=content,
        digest=digest,
        old=old,
        here=here,
        rerun=rerun,
        **author,
    )


def _old_content(ctx: Context, item: Item, plan: Plan, dry_run: bool) -> dict[str, Any]:
    """The part of the history line about the old content: a copy, or the name of its blob. Lines go
    to subscribers and into evidence, and are never changed: content with an apparent secret is
    always kept apart."""
    text = canonical_json(item.input)
    if (
        len(text) <= COPY_LIMIT
        and redacted(item.input) == item.input
        and plan.route.with_forms(item.input) == item.input
    ):
        return {"content": item.input}
    digest = item.row.current_digest.hex()
    name = f"replaced/{digest[:2]}/{digest}"
    if not dry_run:
        try:
            ctx.blobs.write(name, [text])
        except OSError as error:
            raise UsageError(
                f"the old content of {item.route}/{item.key} cannot be stored, so it is not replaced: {error}"
            ) from error
    return {"blob": name, "size": len(text)}
