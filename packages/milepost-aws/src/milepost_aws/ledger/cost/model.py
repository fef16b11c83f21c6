"""Cost model of an item on AWS: adds up every request of its route. Pure: no ledger and no network
needed.

`steps.STEPS` has the cost of each step and `meter` adds it up. Tests compare the result with what
was counted (see `bench.meter`).
"""

from __future__ import annotations

from math import ceil

from milepost.core.routes.backoff import Checks
from milepost.core.routes.parsed_input import key_fields
from milepost.core.routes.plan import EXTERNAL_RESEND
from milepost.core.routes.route import Route, Stage
from milepost.core.status import FAILED, Status
from milepost_aws.ledger.cost import steps
from milepost_aws.ledger.cost.meter import Meter, Need, Usage
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.tables.keys import key_attributes
from milepost_aws.ledger.tables.values import LARGEST

__all__ = ["Need", "Usage", "predicted"]


def predicted(route: Route, usage: Usage | None = None, names: ResourceNames | None = None) -> Need:
    """Needs of one item of the route. With `names` the tables have the names of that deployment,
    for comparison with its counts."""
    return _RouteCost(route, usage or Usage(), names or ResourceNames("milepost")).need()


class _RouteCost:
    """The steps of one item through its route."""

    def __init__(self, route: Route, usage: Usage, names: ResourceNames) -> None:
        self._route, self._usage = route, usage
        self._meter = Meter(route.name, usage, names)
        self._held = steps.REFERENCE if self._meter.blob else self._stored()
        self._failed: dict[str, int] | None = None
        """The row of an item that has failed for good."""

    def need(self) -> Need:
        stages = self._route.stages
        self._intake(stages[0])
        reach, offered = 1.0, self._usage.adopted and stages[0].external
        for number, stage in enumerate(stages):
            following = stages[number + 1] if number + 1 < len(stages) else None
            if not offered:
                self._offer(stage, reach)
            reach *= (
                self._external_stage(stage, following, reach)
                if stage.external
                else self._handler_stage(stage, following, reach)
            )
            # The relay offers an item at an external stage in the write that brings it there.
            offered = stage.external and following is not None and following.external
        self._meter.step("marked", reach, row={"trail": 0})
        self._meter.row = self._failed or self._meter.row
        self._meter.step("marked failed", 1 - reach)
        leaving = reach * (Status.COMPLETED in self._route.keep) + (1 - reach) * bool(
            FAILED & self._route.keep.keys()
        )
        if leaving:
            self._meter.step("gone", leaving, stage=stages[-1])
        self._meter.share()
        if self._route.evidence:
            external = sum(stage.external for stage in stages)
            self._meter.evidence(external * self._usage.result)
        return self._meter.need

    def _stored(self) -> int:
        """Bytes of the input on the row: key fields repeated in a submitted input are stored
        once."""
        fields = key_attributes(self._route)
        if (
            self._usage.adopted
            or self._route.carries is not None
            or tuple(key_fields(self._route.key)) != fields
        ):
            return self._usage.payload
        return (
            max(2, self._usage.payload - self._usage.key - steps.KEY_FIELD * len(fields))
            + steps.WITH_KEY
        )

    def _columns(self) -> int:
        """Bytes of the attributes that the route's rows have for people: fields of the key are
        there once more."""
        fields = key_fields(self._route.key)
        columns = [name for name in self._route.columns if name not in key_attributes(self._route)]
        repeated = self._usage.key if any(name in fields for name in columns) else 0
        return repeated + sum(
            len(name) + (0 if name in fields else steps.COLUMN) for name in columns
        )

    # The steps ------------------------------------------------------------------------------------
    def _intake(self, first: Stage) -> None:
        usage, need = self._usage, self._meter.need
        many = min(steps.KEYS, max(1, usage.batch))
        self._meter.row = {"key": usage.key, "input": 5 + self._held, "columns": self._columns()}
        self._meter.row["lane"] = steps.LANE * (first.lane is not None)
        ours = {
            "fixed": steps.FIXED + 2 * len(first.name),
            "trail": steps.ACCEPTED,
            "token": steps.LONG_ID if usage.adopted else steps.TOKEN,
        }
        if not usage.adopted:
            # Row and seal are read before the put.
            self._meter.reads(self._meter.rows, 1, many)
            self._meter.reads(self._meter.names.seen, 1, many)
            self._meter.step("put", row=ours)
            if usage.endpoint:
                self._meter.endpoint(usage.payload)
        else:
            self._meter.step("put by others")
            self._meter.reads(self._meter.names.seen, 1, 1)
            need.calls["dynamodb", "query"] += 1
            need.units[self._meter.names.history, "read"] += 1
            self._meter.step(
                "adopted",
                offers=first.external,
                row={**ours, "queued": steps.QUEUED if first.external else 0},
            )
            if first.external:
                self._meter.message(steps.OFFER_BODY + usage.payload)
        if self._meter.blob:
            need.calls["s3", "put_object"] += 1
            need.blob_bytes += usage.payload

    def _offer(self, stage: Stage, weight: float) -> None:
        row = {"trail": steps.LINE_ON_ROW if stage.external else 0, "queued": steps.QUEUED}
        self._meter.step(
            "offered" if stage.external else "called", weight, stage, offers=stage.external, row=row
        )
        self._meter.message(
            steps.OFFER_BODY + self._usage.payload if stage.external else steps.CALL_BODY, weight
        )

    def _external_stage(self, stage: Stage, following: Stage | None, weight: float) -> float:
        """An external stage: the partner looks and confirms, the relay advances the item."""
        usage = self._usage
        self._meter.receive(steps.OFFER_BODY + usage.payload, weight * max(1, usage.checks))
        for _ in range(usage.wait_ms // (stage.resend_after_ms or EXTERNAL_RESEND)):
            self._meter.reads(self._meter.rows, 2 * weight, min(steps.KEYS, usage.batch))
            self._meter.step("resent", weight, stage, offers=True, row={"trail": steps.LINE_ON_ROW})
            self._meter.message(steps.OFFER_BODY + usage.payload, weight)
            self._meter.receive(steps.OFFER_BODY + usage.payload, weight)
        result = 10 + len(stage.name) + min(usage.result, LARGEST)
        self._meter.step("confirmed", weight, row={f"result {stage.name}": result})
        at_once = following is not None and following.external
        line = steps.LINE_ON_ROW + steps.CONFIRMER + steps.MOVED_ON * at_once
        self._move(following, weight, stage, {"trail": line}, offers=at_once)
        if at_once:
            self._meter.message(steps.OFFER_BODY + usage.result, weight)
        return 1.0

    def _handler_stage(self, stage: Stage, following: Stage | None, weight: float) -> float:
        """A handler stage with its attempts and looks; returns the share of items that complete
        it."""
        usage, fails = self._usage, self._usage.retries
        waits = stage.checks != Checks()
        for look in range(usage.checks - 1 if waits else 0):
            self._claim(stage, weight)
            first = look == 0
            row = {
                "trail": self._meter.row["trail"] + steps.LINE_ON_ROW * first,
                "lease": steps.LAST_LEASE,
            }
            self._meter.step("not yet", weight, stage, lines=float(first), row=row)
            self._again(stage, weight, stage.checks.after_ms(look))
        through = dict(self._meter.row)
        attempts, passed, rejects = stage.retry.attempts, 0.0, usage.rejects
        details = min(usage.output, LARGEST)
        output = {f"result {stage.name}": 10 + len(stage.name) + details} if details else {}
        for number in range(attempts):
            tried = weight * fails**number
            if tried < 1e-9:
                break
            self._claim(stage, tried)
            claimed = dict(self._meter.row)
            settled = {"trail": claimed["trail"] + steps.LINE_ON_ROW, "lease": steps.LAST_LEASE}
            passed += tried * (1 - fails - rejects)
            self._move(following, tried * (1 - fails - rejects), stage, {**settled, **output})
            through = dict(self._meter.row) if number == 0 else through
            self._meter.row = claimed
            # The details of an error are in retryHistory, in lastError and, until it is copied, in
            # the history line.
            after = {
                **settled,
                "trail": claimed["trail"] + steps.FAILED_LINE,
                "tries": claimed.get("tries", 0) + steps.TRIED + details,
                "error": details,
            }
            last = number + 1 == attempts
            self._meter.step("ended", tried * (rejects + fails * last), stage, row=after)
            if rejects or fails:
                self._failed = {**claimed, **after, "trail": 0}
            if not last:
                self._meter.row = claimed
                self._meter.step("failed", tried * fails, stage, row=after)
                self._again(stage, tried * fails, stage.retry.exponential_ms(number))
        self._meter.row = through
        return passed / weight if weight else 0.0

    def _claim(self, stage: Stage, weight: float) -> None:
        self._meter.receive(steps.CALL_BODY, weight)
        self._meter.step("claimed", weight, stage, row={"lease": steps.LEASED})
        self._meter.need.calls["s3", "get_object"] += weight * self._meter.blob
        self._meter.need.bytes_out += weight * self._usage.sends
        if stage.rate is not None:
            self._meter.tokens(2 * weight / self._meter.full)
        if self._usage.lambdas:
            ms = steps.WORKER_MS + self._usage.takes_ms * ceil(
                self._meter.full / stage.concurrency / stage.batch
            )
            self._meter.invoke(weight / self._meter.full, ms)

    def _again(self, stage: Stage, weight: float, delay_ms: float) -> None:
        """The next attempt: by a delayed message, or by the resender where the delay is too long
        for SQS."""
        if delay_ms > steps.LONGEST_DELAY_MS:
            self._meter.reads(self._meter.rows, weight, min(steps.KEYS, self._usage.batch))
            self._meter.step("called again", weight, stage)
        self._meter.message(steps.CALL_BODY, weight)

    def _move(
        self,
        following: Stage | None,
        weight: float,
        stage: Stage,
        row: dict[str, int],
        *,
        offers: bool = False,
    ) -> None:
        row = {
            **row,
            "through": self._meter.row.get("through", 0) + steps.THROUGH + len(stage.name),
        }
        if following is None:
            self._meter.step("ended", weight, stage, row=row)
        else:
            row |= {
                "next": 20 + len(following.name),
                "token": steps.LONG_ID if self._usage.adopted else 0,
            }
            self._meter.step("advanced", weight, following, offers=offers, row=row)
