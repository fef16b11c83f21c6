"""The route of the daily heads: which routes need one, and what its items are."""

from __future__ import annotations

from collections.abc import Sequence

from milepost.core.errors import ConfigMistake
from milepost.core.routes.route import Route

ROUTE, STAGE = "heads", "publish"
OURS = "the daily heads are Milepost's own; 'milepost heads publish' makes one"


def heads_route() -> Route:
    """The route of the heads. That they were told is all there is to do, so nobody is called for that: whoever makes one confirms it."""
    route = Route(ROUTE, key="day", skips=False)
    route.external(STAGE, resend_after="365d")
    route.closed = OURS
    return route


def heads_for(routes: Sequence[Route], no_blobs: str | None) -> list[Route]:
    """The route of the heads, if any of these keeps evidence. `no_blobs` says what to set where there is no place for blobs."""
    keeping = [route.name for route in routes if route.evidence]
    if not keeping:
        return []
    if no_blobs is not None:
        raise ConfigMistake(f"{', '.join(keeping)}: evidence is to be kept, and there is no place for it: {no_blobs}")
    if any(route.name == ROUTE for route in routes):
        raise ConfigMistake(f"a route is called {ROUTE!r}, as that of the daily heads is; call it otherwise")
    return [heads_route()]
