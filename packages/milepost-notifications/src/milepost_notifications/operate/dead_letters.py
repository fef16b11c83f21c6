"""Dead letters: messages that ended without being delivered, grouped by destination and error, and
replayed in bulk.

Faults of the pipeline (a lost worker, a defect in the handler) are kept apart from what partners
refuse: the first are the operator's to mend, the second the partner's or the sender's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from shlex import quote
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

import milepost as mp
import milepost.application as mpa
from milepost_notifications.destinations import STAGE
from milepost_notifications.operate.messages import MessageFilter, find_messages
from milepost_notifications.operate.record import FAILED
from milepost_notifications.operate.senders import seen_sender
from milepost_notifications.settings import App

PIPELINE = frozenset(
    {
        "EXCEPTION",
        "ERROR",
        "WRONG_ANSWER",
        "WORKER_LOST",
        "NO_ANSWER",
        "CANNOT_BE_STORED",
        "CANNOT_BE_READ",
        "INVALID_MESSAGE",
    }
)
"""Categories of failures that no partner caused."""
MOST = 100_000
"""Messages that one bulk replay takes; repeat it for the rest."""
CHUNK = 1_000
MOST_READ = 10_000
"""Up to so many dead letters are read to group them by destination too. Of more, the ledger's
counters give the groups by error alone."""
SAMPLES = 5


class Cause(Struct, frozen=True):
    """Dead letters of one destination with the same error."""

    cause: str
    """Names the error in filters."""
    destination: str | None
    """None: there are so many dead letters that those of all destinations are counted together."""
    fault: str
    """The side that must correct it: `partner` (or the sender of the message), or `pipeline`."""
    category: str
    sample: str
    """The error of one of them."""
    messages: int
    first_at: str | None
    last_at: str | None

    @property
    def command(self) -> str:
        """The command that sends them again, but for the name and the reason."""
        one = "" if self.destination is None else f" --destination {quote(self.destination)}"
        return f"milepost notifications replay{one} --cause {quote(self.cause)}"


class DeadLetters(Struct, frozen=True):
    """The dead letters by destination and error, the largest group first."""

    total: int
    partner: list[Cause]
    pipeline: list[Cause]
    exact: bool = True
    """False: there are so many that the groups are by error alone, and also count messages that
    have failed with it and are tried again."""


class ReplayReport(Struct, frozen=True):
    """Result of a bulk replay; with `dry_run`, the result it would have."""

    dry_run: bool
    matched: int
    replayed: int
    refused: int
    senders: dict[str, int]
    destinations: dict[str, int]
    samples: list[str]
    """Keys of some of them."""
    more: bool
    """More match than one replay takes; repeat it."""


def dead_letters(app: App, caller: mpa.Caller | None = None) -> DeadLetters:
    """All dead letters by destination and error. A caller who may see one sender's messages alone
    gets no error of another's as a sample."""
    samples, total = caller is None or seen_sender(caller) is None, _total(app)
    if total <= MOST_READ:
        found = _causes_of(
            find_messages(app, MessageFilter(status=FAILED), MOST_READ), samples=samples
        )
    else:
        found = [
            _cause(
                one["group"],
                None,
                one["category"],
                one["sample"] if samples else "",
                one["now"],
                one["first_at"],
                one["last_at"],
            )
            for one in _groups(app)
        ]
    partner, pipeline = (
        [one for one in found if one.fault == fault] for fault in ("partner", "pipeline")
    )
    return DeadLetters(total, partner, pipeline, exact=total <= MOST_READ)


def dead_letter_numbers(app: App) -> tuple[int, int]:
    """How many dead letters there are, and how many of them a fault of the pipeline caused; from
    the ledger's counters, if these count no message that is tried again."""
    total, groups = _total(app), _groups(app)
    if sum(one["now"] for one in groups) == total:
        return total, sum(one["now"] for one in groups if one["category"] in PIPELINE)
    return total, sum(one.messages for one in dead_letters(app).pipeline)


def _total(app: App) -> int:
    status = app.status()["routes"].get(app.settings.route, {}).get("statuses", {})
    return sum(status.get(name, 0) for name in FAILED)


def _groups(app: App) -> list[dict[str, Any]]:
    return [one for one in app.groups(app.settings.route) if one["now"] > 0]


def _cause(
    group: str,
    lane: str | None,
    category: str,
    sample: str,
    messages: int,
    first_at: str | None,
    last_at: str | None,
) -> Cause:
    return Cause(
        group,
        lane,
        "pipeline" if category in PIPELINE else "partner",
        category,
        sample,
        messages,
        first_at,
        last_at,
    )


def _causes_of(messages: Iterable[Mapping[str, Any]], *, samples: bool = True) -> list[Cause]:
    """The causes of these dead letters, counted one by one. Pure."""
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for one in messages:
        if one["error"] is not None:
            found.setdefault((one["destination"], one["error"]["group"]), []).append(one["error"])
    counted = []
    for (lane, group), errors in found.items():
        times, last = sorted(one["at"] for one in errors), errors[-1]
        sample = last["message"] if samples else ""
        counted.append(
            _cause(group, lane, last["category"], sample, len(errors), times[0], times[-1])
        )
    return sorted(counted, key=lambda one: (-one.messages, one.destination or "", one.cause))


def replay_all(
    app: App,
    wanted: MessageFilter,
    *,
    by: str,
    reason: str,
    dry_run: bool = False,
    pace: str | None = None,
) -> ReplayReport:
    """Send again all dead letters that match. Those that are being sent again already are not dead
    letters any more, so that a second replay does not double them. `pace` is the rate for each
    destination until they are sent, beside its own limits."""
    route = app.settings.route
    statuses = [status for status in wanted.status or FAILED if status in FAILED]
    if pace is not None:
        mpa.CallRate.of(pace, "pace")  # raises UsageError, also if nothing matches
    if not statuses:
        raise mp.UsageError(
            f"a bulk replay is for {' and '.join(FAILED)}; replay others one by one"
        )
    found = find_messages(app, replace(wanted, status=tuple(statuses)), MOST + 1)
    more, found = len(found) > MOST, found[:MOST]
    keys = [str(one["key"]) for one in found]
    lanes = _counted(one["destination"] for one in found)
    done = refused = 0
    if not dry_run and keys:
        for start in range(0, len(keys), CHUNK):
            if (
                pace is not None
            ):  # again for each chunk, so that it covers the messages of all of them
                for lane in lanes:
                    app.drain(route, STAGE, lane, pace, by=by, reason=reason)
            report = app.act("retry", route, keys=keys[start : start + CHUNK], by=by, reason=reason)
            done, refused = done + report.done, refused + len(report.refused)
    return ReplayReport(
        dry_run,
        len(keys),
        done,
        refused,
        _counted(one["senderId"] for one in found),
        lanes,
        keys[:SAMPLES],
        more,
    )


def _counted(names: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(names).items(), key=lambda pair: (-pair[1], pair[0])))


def causes(found: DeadLetters) -> Sequence[Cause]:
    """All causes, those of the pipeline first."""
    return [*found.pipeline, *found.partner]
