"""The internal route of the daily heads."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.core.errors import ConfigMistake
from milepost.core.routes.route import Route

ROUTE, STAGE = "heads", "publish"
OURS = "it holds the daily heads; 'milepost heads publish' creates one"


def heads_route() -> Route:
    """The route of the heads. Delivery of the event is its whole work, so the publisher confirms
    its only stage at once."""
    route = Route(ROUTE, key="day", skips=False)
    route.external(STAGE, resend_after="365d")
    route.closed = OURS
    return route


def heads_for(routes: Sequence[Route], no_blobs: str | None) -> list[Route]:
    """The heads route if one of these routes keeps evidence, else none. `no_blobs`: what to
    configure if there is no blob store."""
    keeping = [route.name for route in routes if route.evidence]
    if not keeping:
        return []
    if no_blobs is not None:
        raise ConfigMistake(f"{', '.join(keeping)}: evidence needs a blob store: {no_blobs}")
    if any(route.name == ROUTE for route in routes):
        raise ConfigMistake(
            f"the route name {ROUTE!r} is reserved for the daily heads; choose another"
        )
    return [heads_route()]
