"""Pages of items in the order of acceptance, and their tokens: the place where a page ended, as
text that only continues the same search."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from milepost.core.errors import UsageError
from milepost.core.item import Item
from milepost.engine.context import Context
from milepost.ports.items import Query, Refused

RELATIVE = ("entered_before", "created_from", "created_before")
"""Conditions whose times may be relative to the time of the first page; the later pages keep
that."""
WRONG_TOKEN = "the token of the next page is invalid, or belongs to another search; repeat the search without it"


class PageToken(Struct, frozen=True):
    """The place where a page ended. `check` binds it to its search. `pinned`: times of the search
    that were relative to the first page's."""

    check: str
    place: Any
    pinned: dict[str, int] = {}


def make_token(search: Any, place: Any, pinned: Mapping[str, int] | None = None) -> str:
    """A place in the answer to this search (any JSON value) as text."""
    fixed = dict(pinned or {})
    token = PageToken(_check(search, place, fixed), place, fixed)
    return base64.urlsafe_b64encode(msgspec.json.encode(token)).decode().rstrip("=")


def read_token(search: Any, text: str) -> PageToken | None:
    """The place; None if the text was changed, or belongs to another search."""
    try:
        token = msgspec.json.decode(
            base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=PageToken
        )
    except (ValueError, RecursionError):
        return None
    return (
        token
        if token.check == _check(search, token.place, token.pinned)
        and token.pinned.keys() <= set(RELATIVE)
        else None
    )


def _check(search: Any, place: Any, pinned: Mapping[str, int]) -> str:
    return sha256(msgspec.json.encode((search, place, pinned), order="sorted")).hexdigest()[:16]


class FoundPage(Struct, frozen=True):
    """A page of a search. `next` continues it; None: this was the last page. `ordered` is that of
    `QueryPage`."""

    items: list[Item]
    refused: list[Refused]
    next: str | None
    ordered: bool


def find_page(
    ctx: Context,
    query: Query,
    search: Any,
    *,
    oldest_first: bool = False,
    after: str | None = None,
    limit: int = 100,
    reads: int | None = None,
) -> FoundPage:
    """A page of the items that match, the one that was accepted last first, or with `oldest_first`
    the first. `after` is the `next` of the page before; UsageError if it belongs to another
    `search`. After `reads` queries the page ends, even if it is short."""
    # A place of another kind of ledger, such as the one before a move, means nothing here.
    bound = (search, oldest_first, type(ctx.ledger).__name__)
    begun = PageToken("", None) if after is None else read_token(bound, after)
    if begun is None:
        raise UsageError(WRONG_TOKEN)
    query = replace(
        query, after=begun.place, order="oldest" if oldest_first else "newest", **begun.pinned
    )
    items: list[Item] = []
    refused: list[Refused] = []
    while True:
        page = ctx.ledger.find(replace(query, limit=limit - len(items)))
        items += page.items
        refused += page.refused
        query = replace(query, after=page.next)
        reads = None if reads is None else reads - 1
        if page.next is None or len(items) == limit or reads == 0:
            break
    pinned = {name: at for name in RELATIVE if (at := getattr(query, name)) is not None}
    return FoundPage(
        items,
        refused,
        None if page.next is None else make_token(bound, page.next, pinned),
        page.ordered,
    )
