"""Removal of destinations: what becomes of the messages that wait for one that is gone.

Its messages never go out by the defaults unasked, which have neither its credentials nor its signature. A removal by API or command is
refused while messages wait, unless it is forced. If the destination is missing otherwise, such as a table that was taken out of the
configuration, the first message that is due pauses its lane, and all of them wait until the destination is back or an operator resumes it.
"""

from __future__ import annotations

import logging

import milepost as mp
from milepost import net
from milepost.applications.notifications.destinations import PAUSED_BY, pauses_removed
from milepost.applications.notifications.operate.figures import parties_of
from milepost.applications.notifications.operate.registry import PREFIX, RELEASED, destination_views, keep_fresh, refresh, release
from milepost.applications.notifications.route import STAGE
from milepost.applications.notifications.settings import NotificationsSettings

App = mp.AppContext[NotificationsSettings]

log = logging.getLogger(__name__)


def remove_destination(app: App, name: str, *, force: bool = False) -> None:
    """Remove a destination that was added. Raises mp.ActRefused while messages wait for it; with `force` they go to the destination that
    their URLs then belong to, or out by the defaults."""
    if name in app.settings.destinations and app.documents.get(PREFIX + name) is None:
        raise mp.UsageError(f"destination {name!r} is in the configuration; remove its table [notifications.destinations.{name}] there")
    if app.documents.get(PREFIX + name) is None:
        raise mp.NotFound(f"there is no destination {name!r}")
    if name not in app.settings.destinations:  # otherwise that one holds again
        [view] = destination_views(app, [name])
        waiting = view["waiting"] + view["in_progress"]
        if waiting and not force:
            more = "more than " if view["waiting_more"] else ""
            raise mp.ActRefused(
                f"{more}{waiting:,} {'message has' if waiting == 1 else 'messages have'} not ended that {'is' if waiting == 1 else 'are'} for {name!r}:"
                " wait until they have, or cancel them; with 'force' they go to the destination that their URLs then belong to,"
                " or out by the defaults"
            )
        if waiting:
            release(app, name)
    app.documents.remove(PREFIX + name)
    refresh(app)


def resume_returned(app: App) -> None:
    """Resume destinations that are there again, if need be under another name, and forget that their messages were released. A worker may
    have paused one at the moment at which an operator released its messages: it is resumed too."""
    keep_fresh(app)
    registry, route = app.state.destinations, app.settings.route
    for pause in app.pauses(route):
        lane = pause.scope.removeprefix(f"{route}/{STAGE}/")
        if not pauses_removed(pause, lane):
            continue
        if lane in registry.released:
            app.resume(route, STAGE, lane, by=PAUSED_BY, reason="an operator has released its messages", own=True)
        elif lane in registry.all or _taken_over(app, lane):
            log.warning("there is a destination again for messages to %s; they are sent", lane)
            app.resume(route, STAGE, lane, by=PAUSED_BY, reason="it is a destination again", own=True)
    for name in registry.released & registry.all.keys():
        app.documents.remove(RELEASED + name)


def _taken_over(app: App, lane: str) -> bool:
    """Does the target of a message that waits in this lane belong to another destination now? Not looked for where that would read the whole
    table: an operator resumes it then."""
    try:
        waiting = app.items(app.settings.route, statuses=["live"], stages=[STAGE], lane=lane, limit=1, scan=False)
        found = [app.state.destinations.of(parties_of(one["key"])[1]) for one in waiting]
    except (mp.CostlyQuery, net.InvalidRequest):
        return False
    return any(one is not None and one.registered for one in found)
