"""Follow-up items: when an item of one route completes, an item of another route is made from it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from milepost.core.item import Item

if TYPE_CHECKING:
    from milepost.core.route import Route

MakeInput = Callable[[Item, datetime], Any]
"""What is handed over to the other route for this item, which completed at that time (UTC); None: nothing."""


class FollowUp(Struct, frozen=True):
    """Which route the follow-up items are for, and what they carry."""

    route: Any  # a Route, which msgspec does not know
    make_input: MakeInput

    @property
    def target(self) -> Route:
        found: Route = self.route
        return found
