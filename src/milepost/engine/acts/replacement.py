"""Other content for an item: read and checked like any submit, with the old content kept where it can be read later."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from milepost.core.change import Change
from milepost.core.errors import MalformedInput, UsageError
from milepost.core.item import Item, canonical_json
from milepost.core.operators import replace
from milepost.core.routes.plan import Plan
from milepost.core.values.refusal import Refusal, impossible
from milepost.engine.context import Context
from milepost.engine.intake import content_digest

COPY_LIMIT = 4_096
"""Old content up to this size, in bytes of JSON, is copied into its history line; larger content goes into a blob."""


class NewContent(Struct, frozen=True):
    """Content that an item is to have instead of what it has, read as its route reads it."""

    key: str
    content: Any
    digest: bytes


def read_content(plan: Plan, given: Any) -> NewContent:
    """Content as it would be submitted; UsageError if it could not be."""
    try:
        handed = plan.route.read(given)
        return NewContent(handed.key, handed.content, content_digest(handed.content))
    except MalformedInput as error:
        raise UsageError(f"the new content cannot be taken: {error}") from None


def replaced(
    ctx: Context, item: Item, plan: Plan, new: NewContent, *, here: bool, rerun: bool, dry_run: bool = False, **author: Any
) -> Change | Refusal:
    """The change that gives the item this content, or why there is none. The old content is kept before that is written."""
    if new.key != item.key:
        return impossible(f"the new content has the key {new.key!r}; submit it as an item of its own")
    if new.digest == item.row.current_digest:
        old: dict[str, Any] = {}
    else:
        old = _kept(ctx, item, dry_run)
    return replace(item, plan, ctx.clock.now(), content=new.content, digest=new.digest, old=old, here=here, rerun=rerun, **author)


def _kept(ctx: Context, item: Item, dry_run: bool) -> dict[str, Any]:
    """What the history line says of the old content: a copy, or the name of the blob that has it."""
    text = canonical_json(item.input)
    if len(text) <= COPY_LIMIT:
        return {"content": item.input}
    digest = item.row.current_digest.hex()
    name = f"replaced/{digest[:2]}/{digest}"
    if not dry_run:
        try:
            ctx.blobs.write(name, [text])
        except OSError as error:
            raise UsageError(f"the old content of {item.route}/{item.key} cannot be kept, so it is not replaced: {error}") from error
    return {"blob": name, "size": len(text)}
