"""Operations on the items of an open ledger, for programs and applications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from milepost.core.admission.controls import scope
from milepost.core.errors import ActRefused, CostlyQuery, UsageError
from milepost.core.item import Item, Row
from milepost.core.outcome import Done, Outcome
from milepost.core.values.durations import Moment, Span, moment_ms, span_ms
from milepost.core.values.refusal import SAID_BEFORE, Refusal
from milepost.engine.act_log import ActReport, record, select, signed
from milepost.engine.acts.bulk import act, note, take_confirmations
from milepost.engine.acts.controls import close_breakers, drain, pause, resume
from milepost.engine.acts.redate import redate_rows
from milepost.engine.acts.verbs import (
    ConfirmVerb,
    ReplaceVerb,
    RerunVerb,
    RescheduleVerb,
    Verb,
    verb_of,
)
from milepost.engine.alerts.watch import alert_views
from milepost.engine.context import Context
from milepost.engine.forget import ForgetReport, forget
from milepost.engine.health.doctor import unready
from milepost.engine.intake import Receipt, submit
from milepost.engine.known_keys import known_key
from milepost.engine.lists.reconcile import ListReport, submit_list
from milepost.engine.lists.source import Bytes
from milepost.engine.retention import PruneReport, prune
from milepost.engine.views.blocks import BlockedLanes
from milepost.engine.views.forecast import forecast_view, route_forecast, scope_of, sentence_views
from milepost.engine.views.item_filter import ItemFilter, filter_as_given, unchecked_query
from milepost.engine.views.items import check_route, each, groups, row_view, show, status
from milepost.engine.views.lanes import (
    LaneView,
    PauseView,
    count_waiting,
    lane_views,
    pause_view,
    pauses,
)
from milepost.engine.views.page_tokens import find_page
from milepost.engine.views.queries import (
    WARN_ROWS,
    cost_text,
    statuses_of,
)
from milepost.ports.feed import HistoryEntry
from milepost.ports.items import Query
from milepost.ports.upkeep import BackupReport


class FoundItems(Struct, frozen=True):
    """A page of items, each as `milepost list --json` shows it."""

    items: list[dict[str, Any]]
    next: str | None
    """Give it as `after` to get the next page; None: this was the last one."""
    ordered: bool = True
    """False: more items match than the ledger can put in order of time; they come in its own
    order."""


class Operations:
    """Operations on the items of an open ledger: submit, read, confirm and correct them."""

    def __init__(self, context: Context) -> None:
        self._context = context

    @property
    def context(self) -> Context:
        """The ledger with its routes, for Milepost's own parts; it is not part of the public
        surface."""
        return self._context

    def now(self) -> datetime:
        """The time by the ledger's clock, in UTC; a test may have set that clock."""
        return datetime.fromtimestamp(self.context.clock.now() / 1000, UTC)

    def time(self) -> float:
        """`now` as seconds since 1970."""
        return self.context.clock.now() / 1000

    def submit(
        self,
        route: str,
        *inputs: Any,
        correlation_id: str | None = None,
        not_before: str | datetime | timedelta | None = None,
        by: str | None = None,
        failed_again: str | None = None,
    ) -> list[Receipt]:
        """Submit items; the answer for each is new, known, changed (same key, other content) or
        malformed. A new item is on disk when this returns. With `not_before` (a time, or a span
        from now) it does not start earlier. With `failed_again`, a reason signed by `by`, keys that
        have failed or were cancelled, and whose rows were pruned, are accepted again."""
        return submit(
            self.context, route, inputs, correlation_id=correlation_id, not_before=not_before, by=by, failed_again=failed_again
        )  # fmt: skip

    def prune(
        self,
        route: str,
        older_than: Span,
        *,
        by: str,
        reason: str,
        statuses: Iterable[str] = (),
        dry_run: bool = False,
    ) -> PruneReport:
        """Remove rows that ended longer ago than this: of COMPLETED items, or of those with one of
        these `statuses` ("failed" means both failed ones). Their seals stay. With `dry_run` nothing
        is changed, and the report counts the rows by status."""
        span = span_ms(older_than, "older_than")
        return prune(
            self.context,
            route,
            span,
            by=by,
            reason=reason,
            statuses=statuses_of(statuses),
            dry_run=dry_run,
        )

    def forget(
        self, route: str, key: str, *, by: str, reason: str, dry_run: bool = False
    ) -> ForgetReport:
        """Remove the content of an item that has ended: input, outputs, error texts, blobs and kept
        evidence, whatever subscriber is absent. Its key stays known by a keyed digest. The report's
        `stays` names what remains elsewhere. Raises ActRefused if it has not ended."""
        return forget(self.context, route, key, by=by, reason=reason, dry_run=dry_run)

    def submit_list(
        self,
        route: str,
        path: str | Bytes,
        *,
        name: str | None = None,
        full: bool = False,
        no_header: bool = False,
        dry_run: bool = False,
        by: str | None = None,
        not_before: str | datetime | timedelta | None = None,
        replace_changed: bool = False,
        rerun: bool = False,
        reason: str = "",
    ) -> ListReport:
        """Submit a file of items (txt, csv or jsonl): reconcile it with the ledger, and record it,
        as `milepost submit` does. `path` may be an open binary stream instead, with its `name`.
        `full` says that it is the whole master list, `no_header` that the first line of a CSV is an
        item; with `dry_run` nothing is written. The answer has the `counts`, the first malformed
        lines with their numbers, and the first vanished keys. `not_before`: new items do not start
        earlier. `replace_changed`: items that are known with other content are given that of the
        list, signed by `by` with a `reason`; with `rerun` also COMPLETED ones, which then run
        again."""
        return submit_list(
            self.context, route, path, name=name, full=full, no_header=no_header, dry_run=dry_run, by=by, not_before=not_before,
            replace_changed=replace_changed, rerun=rerun, reason=reason,
        )  # fmt: skip

    def confirm(
        self,
        route: str,
        key: str,
        stage: str,
        value: Any = True,
        *,
        by: str,
        outcome: Outcome | None = None,
        force: bool = False,
        reason: str = "",
        awaited: bool = False,
    ) -> Row:
        """Confirm a stage on behalf of a partner, or report another outcome of it; returns the row
        as it then is. A repeat changes nothing. Raises ActRefused if it cannot be accepted: no such
        item or stage, a value that confirms nothing, … With `force` an operator confirms the stage
        although the value would be refused, and must give the `reason`. With `awaited` a failure
        counts only while the stage awaits an answer (it was handed over, or a worker has it);
        otherwise it is only noted, so that a failure that is reported twice counts once."""
        key, said = known_key(self.context, route, key), outcome or Done(value)
        if force:
            selection = select(self.context, route, keys=[key])
            verb = ConfirmVerb(stage, said, force=True)
            report = act(self.context, selection, verb, by=by, reason=reason)
            for _, why in report.refused:
                raise ActRefused(f"{route}/{key}: {why}")
            [item] = self.context.ledger.get([(route, key)])
            if not isinstance(item, Item):
                raise ActRefused(f"{route}/{key}: it was confirmed, and its row has left", "gone")
            return item.row
        answer = self.confirm_all(route, stage, {key: said}, by=by, awaited=awaited)[key]
        if isinstance(answer, ActRefused):
            raise answer
        return answer

    def confirm_all(
        self,
        route: str,
        stage: str,
        outcomes: Mapping[str, Outcome],
        *,
        by: str,
        awaited: bool = False,
    ) -> dict[str, Row | ActRefused]:
        """Report the outcomes of a stage, by key, as `confirm` does with each: the rows are read
        together, and written as one batch. The answer has for each key the row as it then is, or
        why it cannot be accepted."""
        taken = {
            key: answer
            for key, (answer, _) in take_confirmations(
                self.context, route, stage, outcomes, by, awaited=awaited
            ).items()
        }
        repeated = [
            key
            for key, answer in taken.items()
            if isinstance(answer, Refusal) and answer.kind in SAID_BEFORE
        ]
        for key, item in zip(
            repeated,
            self.context.ledger.get([(route, key) for key in repeated]) if repeated else (),
            strict=True,
        ):
            if isinstance(item, Item):
                taken[key] = item.row
        return {
            key: ActRefused(f"{route}/{key}: {answer}", answer.kind)
            if isinstance(answer, Refusal)
            else answer
            for key, answer in taken.items()
        }

    def note(
        self,
        route: str,
        key: str,
        text: str,
        *,
        by: str,
        data: Any = None,
        reason: str = "",
        version: int | None = None,
    ) -> Row:
        """Add a line to the item's history, signed by `by`, that changes nothing else; returns the
        new row. `data` is a JSON value that is kept with the text, for programs. `version`: add it
        only if the item still has this version, as `show` gives it. Raises ActRefused if it cannot
        be done, with the kind "changed-since" if it has another version."""
        answer = note(
            self.context, route, key, text, by=by, data=data, reason=reason, version=version
        )
        if isinstance(answer, Refusal):
            raise ActRefused(f"{route}/{key}: {answer}", answer.kind)
        return answer

    def rerun(
        self,
        route: str,
        key: str,
        *,
        by: str,
        reason: str,
        stage: str | None = None,
        as_new: bool = False,
    ) -> Row:
        """Run a COMPLETED item again from a stage, the first if none is given; returns the new row.
        `as_new`: with a new work_id also at the last stage. Raises ActRefused if it cannot be
        done."""
        return self._act(RerunVerb(stage, as_new), route, key, by, reason)

    def replace(
        self,
        route: str,
        content: Any,
        *,
        by: str,
        reason: str,
        here: bool = False,
        rerun: bool = False,
    ) -> Row:
        """Replace the content of the item with the content's key; returns the new row. It starts
        again at the first stage, or, with `here`, at its present one; with `rerun` also if it is
        COMPLETED. Raises ActRefused if it cannot be done."""
        key = self.context.plan(route).route.key_of(content)
        return self._act(ReplaceVerb(content, here, rerun), route, key, by, reason)

    def reschedule(
        self, route: str, key: str, not_before: str | datetime | timedelta, *, by: str, reason: str
    ) -> Row:
        """Set another start time (or a span from now) for an item that has not started; returns the
        new row. Raises ActRefused if it cannot be done."""
        return self._act(RescheduleVerb(not_before), route, key, by, reason)

    def redate(
        self, route: str, *, by: str, reason: str, dry_run: bool = False, act_id: str | None = None
    ) -> ActReport:
        """Date the items of a route that are dated in the future, by a clock that was ahead, as of
        now. With `dry_run` nothing is changed. `act_id`: as for `act`."""
        return redate_rows(
            self.context, route, by=by, reason=reason, dry_run=dry_run, act_id=act_id
        )

    def _act(self, verb: Verb, route: str, key: str, by: str, reason: str) -> Row:
        key = known_key(self.context, route, key)
        selection = select(self.context, route, keys=[key])
        report = act(self.context, selection, verb, by=by, reason=reason)
        [item] = self.context.ledger.get([(route, key)])
        for _, why in report.refused:
            raise ActRefused(f"{route}/{key}: {why}")
        if not isinstance(item, Item):
            raise ActRefused(f"{route}/{key}: its row has left")
        return item.row

    def items(
        self,
        route: str,
        *,
        statuses: Iterable[str] = (),
        stages: Iterable[str] = (),
        lane: str | None = None,
        prefix: str | None = None,
        parts: Iterable[str] = (),
        group: str | None = None,
        created_from: Moment | None = None,
        created_before: Moment | None = None,
        zone: tzinfo = UTC,
        limit: int = 100,
        scan: bool = True,
    ) -> list[dict[str, Any]]:
        """The first items of a route that match, without their content, as `milepost list --json`
        shows them. `statuses` may be "failed" and "live" too; `prefix` is how the key begins;
        `parts` are parts of a key of several fields, such as "batchId=B-7"; `group` is a group of
        failures. `created_from` and `created_before` compare the time of acceptance (a time, in
        `zone` if it names none, or a span ago); no index serves them. Without `scan`, a search that
        would read more than 1,000 rows because no index serves it, as most do on AWS, raises
        CostlyQuery."""
        item_filter = _item_filter(statuses, stages, lane, prefix, parts, group)
        query = self._query(route, item_filter, scan)
        times = _created(self.context.clock.now(), created_from, created_before, zone)
        lanes = BlockedLanes(self.context, route)
        return [
            row_view(item, lanes.of(item.row))
            for item in each(self.context, replace(query, **times), limit)
        ]

    def item_page(
        self,
        route: str,
        *,
        statuses: Iterable[str] = (),
        stages: Iterable[str] = (),
        lane: str | None = None,
        prefix: str | None = None,
        parts: Iterable[str] = (),
        group: str | None = None,
        created_from: Moment | None = None,
        created_before: Moment | None = None,
        zone: tzinfo = UTC,
        oldest_first: bool = False,
        after: str | None = None,
        limit: int = 100,
        scan: bool = True,
    ) -> FoundItems:
        """A page of the items that match, as `items` finds them: those that were accepted last
        first, or with `oldest_first` the first. `after` is the `next` of the page before, of the
        same search; another text raises UsageError."""
        item_filter = _item_filter(statuses, stages, lane, prefix, parts, group)
        query = self._query(route, item_filter, scan)
        search = (query, str(created_from), str(created_before))
        query = replace(
            query, **_created(self.context.clock.now(), created_from, created_before, zone)
        )
        found = find_page(
            self.context, query, search, oldest_first=oldest_first, after=after, limit=limit
        )
        lanes = BlockedLanes(self.context, route)
        return FoundItems(
            [row_view(item, lanes.of(item.row)) for item in found.items], found.next, found.ordered
        )

    def _query(self, route: str, item_filter: ItemFilter, scan: bool) -> Query:
        """The query of this filter; CostlyQuery if it must not scan, and no index serves it."""
        check_route(self.context, route)
        query = unchecked_query(self.context, route, item_filter)
        cost = None if scan or query == Query(route=route) else self.context.ledger.cost_of(query)
        if cost is not None and cost.rows > WARN_ROWS:
            raise CostlyQuery(cost_text(route, cost))
        return query

    def act(
        self,
        verb: str,
        route: str,
        *,
        by: str,
        reason: str,
        keys: Sequence[str] | None = None,
        statuses: Iterable[str] = (),
        stages: Iterable[str] = (),
        lane: str | None = None,
        prefix: str | None = None,
        parts: Iterable[str] = (),
        group: str | None = None,
        stage: str | None = None,
        as_new: bool = False,
        dry_run: bool = False,
        act_id: str | None = None,
    ) -> ActReport:
        """Retry, skip, cancel, resend or rerun (`verb`) the items with these `keys`, or, without
        keys, all that match, as the command of that name does. The report has the number of items
        done, and the refused ones with the reason. `stage`: where retry and rerun start. `as_new`:
        retry and rerun give the work a new work_id, and run no verify probe first. With `dry_run`
        nothing is changed. `act_id`: a name of your own for the act. A repeat with it continues an
        act that was cut off, or gets the report of one that has finished; with other items or
        options it raises UsageError."""
        _check_lists(keys=keys, statuses=statuses, stages=stages, parts=parts)
        if keys is not None:
            selection = select(self.context, route, keys=keys)
        else:
            item_filter = _item_filter(statuses, stages, lane, prefix, parts, group)
            query = self._query(route, item_filter, scan=True)
            asked = filter_as_given(self.context, route, item_filter)
            selection = select(self.context, route, query=query, asked=asked)
        return act(
            self.context,
            selection,
            verb_of(verb, stage=stage, as_new=as_new),
            by=by,
            reason=reason,
            dry_run=dry_run,
            act_id=act_id,
        )

    def pause(
        self,
        route: str,
        stage: str | None = None,
        lane: str | None = None,
        *,
        by: str,
        reason: str,
        until: Moment | None = None,
        drain: str | float | None = None,
        own: bool = False,
        endless_stays: bool = False,
    ) -> PauseView:
        """Pause a route, a stage, or a lane of a stage: none of its items is started until it is
        resumed, or until the time `until` (or a span from now). No attempt is counted. `drain` is
        the rate, such as "10/s", for the items that have waited. A pause that is in force stays,
        unless `until` or `drain` is given, or it would end by itself. `own`, for a program that
        pauses by itself: a pause by another than `by` stays in any case. `endless_stays`: a pause
        without an end stays in any case. Returns the pause that is in force now, with the number of
        items that wait there, and for a lane without any the lanes with similar names (`near`)."""
        options: dict[str, Any] = {
            "until": until,
            "drain": drain,
            "own": own,
            "endless_stays": endless_stays,
        }
        hold = pause(self.context, route, stage, lane, by=by, reason=reason, **options)
        # A program that pauses by itself has met an item there.
        waiting = None if own else count_waiting(self.context, route, stage, lane)
        return pause_view(scope(route, stage, lane), hold, waiting)

    def resume(
        self,
        route: str,
        stage: str | None = None,
        lane: str | None = None,
        *,
        by: str,
        reason: str,
        drain: str | float | None = None,
        own: bool = False,
    ) -> bool:
        """End a pause; False: there was none. `drain`: the rate for the items that have waited, if
        not the one that the pause has. `own`: only if it is one by `by`."""
        return resume(self.context, route, stage, lane, by=by, reason=reason, drain=drain, own=own)

    def record_act(
        self,
        verb: str,
        route: str,
        stage: str | None = None,
        lane: str | None = None,
        *,
        by: str,
        reason: str,
    ) -> None:
        """Put an act of an operator on record, as `milepost acts` shows it: one of an application's
        own that changes no item and has been done, such as `verb="add-destination"`. Pauses, limits
        and acts on items are recorded without this."""
        signed(by, reason)
        self.context.plan(route)
        record(self.context, verb, route, by, reason, {"scope": scope(route, stage, lane)})

    def pauses(self, route: str) -> list[PauseView]:
        """The pauses of a route, of its stages and of their lanes: where (`scope`, such as
        "parcels/weigh"), by whom, why, since when and until when. One whose time has come is listed
        until the resender has ended it."""
        self.context.plan(route)
        return pauses(self.context, route)

    def claim_left(self, item: Item, *, trust: Span = 0) -> float:
        """Seconds for which the claim under which a handler got this item still holds, by the
        ledger; 0: the claim is lost, and another worker may have done the work. Ask it before a
        step that must not be done twice: a process that was stopped for a while does not notice it.
        A claim younger than `trust`, by the clock, is believed without a read."""
        row, now = item.row, self.context.clock.now()
        if row.lease is None:
            return 0.0
        if row.claimed_at is None or not 0 <= now - row.claimed_at < span_ms(trust, "trust"):
            [found] = self.context.ledger.get([(row.route, row.key)])
            if not isinstance(found, Item) or found.row.lease != row.lease:
                return 0.0
            row = found.row
        return max(0.0, ((row.look_at or now) - now) / 1000)

    def drain(
        self, route: str, stage: str, lane: str | None, rate: str | float, *, by: str, reason: str
    ) -> None:
        """Start the items that wait in a stage or lane now, or enter it within a second, at most at
        this rate; when they have been started, the usual limits apply again."""
        drain(self.context, route, stage, lane, rate, by=by, reason=reason)

    def unready(self) -> list[tuple[str, str]]:
        """Reasons why this process is not ready, as (part, why): the ledger cannot be written to,
        no worker runs, … Empty: it is ready. The texts name no item, file or host."""
        return [(one.part, one.why) for one in unready(self.context)]

    def close_breakers(
        self, route: str, stage: str, lane: str | None = None, *, by: str, reason: str
    ) -> list[str]:
        """Close the open breaker of a lane, or those of all lanes of a stage, so that their items
        are started at once; returns the scopes of the closed breakers."""
        return close_breakers(self.context, route, stage, lane, by=by, reason=reason)

    def lanes(self, route: str, stage: str, names: Iterable[str] = ()) -> list[LaneView]:
        """The state of lanes of a stage: pause, breaker, limits, how many items wait and since
        when. Those that are named, those that the route declares, and all that have a pause, a
        limit or an open breaker."""
        self.context.stage(route, stage)
        return lane_views(self.context, self.context.plan(route), stage, names)

    def forecast(
        self, route: str, *, stage: str | None = None, lane: str | None = None
    ) -> dict[str, Any] | None:
        """When the items that move are completed, or through the `stage`, and which wait for
        something else, as `milepost forecast --json` shows it; `text` says it in words. None: this
        ledger does not count items by lane."""
        found = route_forecast(
            self.context, route, scope_of(self.context, route, stage=stage, lane=lane)
        )
        return (
            None
            if found is None
            else {
                **forecast_view(route, found, self.context.clock.now()),
                "sentences": sentence_views(found),
            }
        )

    def groups(self, route: str) -> list[dict[str, Any]]:
        """The groups of similar failures, the most frequent at present first, as `milepost groups
        --json` shows them."""
        return groups(self.context, route)

    def alerts(self, rule: str | None = None) -> list[dict[str, Any]]:
        """The alerts that are raised now, of one `AlertRule` or of all: the cause, where, since
        when, how many items have failed because of it, and the receivers that have not received the
        notice yet."""
        return [to_builtins(one) for one in alert_views(self.context, rule)]

    def feed(self, after: int = 0, limit: int = 500) -> list[HistoryEntry]:
        """History lines of all items in the order in which they were written, after the place
        `after`. `entry.public()` gives a line the fields that `show` gives it, with its place
        `seq`, `route`, `key` and `correlation_id`. Lines of forgotten items are left out."""
        while lines := self.context.ledger.feed(after, limit):
            if present := [line for line in lines if not line.removed]:
                return present
            after = lines[-1].seq
        return []

    def show(self, route: str, key: str) -> dict[str, Any] | None:
        """Everything about one item, with its history; None if the key was never seen."""
        return show(self.context, route, key)

    def status(self) -> dict[str, Any]:
        """Number of items by route, stage and status."""
        return status(self.context, afresh=True)

    def backup(self, file: str | Path, *, overwrite: bool = False) -> BackupReport:
        """Copy the ledger as it is now, with its blobs, to a file that is a ledger itself; work may
        continue meanwhile. Raises UsageError if the file exists, LedgerError if the ledger cannot
        be copied (in memory, on AWS)."""
        return self.context.ledger.backup(Path(file), overwrite, lambda done, whole: None)


def _item_filter(
    statuses: Iterable[str],
    stages: Iterable[str],
    lane: str | None,
    prefix: str | None,
    parts: Iterable[str],
    group: str | None,
) -> ItemFilter:
    _check_lists(statuses=statuses, stages=stages, parts=parts)
    return ItemFilter(
        statuses=tuple(statuses),
        stages=tuple(stages),
        lane=lane,
        prefix=prefix,
        parts=tuple(parts),
        group=group,
    )


def _check_lists(**given: object) -> None:
    for name, value in given.items():
        if isinstance(value, str):
            raise UsageError(f"{name} is {value!r}; give a list, such as [{value!r}]")


def _created(now: int, begin: Moment | None, end: Moment | None, zone: tzinfo) -> dict[str, int]:
    """The conditions of a search on the time of acceptance, in milliseconds."""
    given = {"created_from": begin, "created_before": end}
    return {
        name: moment_ms(value, now, name.removeprefix("created_"), zone, past=True)
        for name, value in given.items()
        if value is not None
    }
