"""List intake: a file put under `lists/ROUTE/` in the deployment's bucket is submitted as by
`milepost submit`, with a report under `reports/`. Under `lists/ROUTE/full/` it is the whole master
list, and vanished keys are reported too. Under `lists/ROUTE/no-header/` (or `full/no-header/`) it
is a CSV file without a header."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import unquote_plus

import msgspec
from msgspec import Struct

from milepost.core.errors import LedgerError, LedgerMissing, MilepostError, UsageError
from milepost.engine.lists.reconcile import ListReport, take_in_list
from milepost.engine.lists.source import Source
from milepost_aws.lambdas.start import LambdaContext, Opened, Trace, called, log, opened
from milepost_aws.ledger.requests.client import AwsRefused, Requests

LISTS, REPORTS, FULL, NO_HEADER = "lists/", "reports/", "full", "no-header"
PART = 4 << 20
"""Bytes of an object that are read at a time, so that no connection has to stay open while they are
processed."""
RESERVE_MS = 60_000
"""Time reserved for reconciling; in a short run, a quarter."""


class ListObject(Struct, frozen=True):
    """Route and options from an object's key."""

    route: str
    title: str
    full: bool
    no_header: bool = False


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, str]:
    """Handle an event of S3: objects put under `lists/`. Returns the result by key.

    A list that can never be taken in goes into quarantine with the reason. A temporary error is
    raised: Lambda calls again, twice, and the items taken in so far are known keys by then."""
    with called(context) as trace:
        ready = opened()
        done = {
            unquote_plus(record["s3"]["object"]["key"]): _take_in(
                ready, context, trace, record["s3"]
            )
            for record in event.get("Records", ())
        }
        trace.note(done=done)
        return done


def place_of(key: str) -> ListObject:
    """Route and options from an object's key; UsageError for a key that names no route."""
    parts = key.removeprefix(LISTS).split("/")
    route, rest = parts[0], parts[1:]
    if not key.startswith(LISTS) or not route or not rest or not rest[-1]:
        raise UsageError(
            f"{key!r} names no route; put lists under lists/ROUTE/, such as lists/parcels/monday.csv"
        )
    full = len(rest) > 1 and rest[0] == FULL
    rest = rest[full:]
    no_header = len(rest) > 1 and rest[0] == NO_HEADER
    return ListObject(route, "/".join(rest[no_header:]), full, no_header)


def _take_in(ready: Opened, call: LambdaContext, trace: Trace, entry: Mapping[str, Any]) -> str:
    requests, bucket, key = (
        ready.store.requests,
        entry["bucket"]["name"],
        unquote_plus(entry["object"]["key"]),
    )
    if key.endswith("/"):
        return "a folder"
    event = {"bucket": bucket, "key": key, "sequencer": entry["object"].get("sequencer", "")}
    report = f"{REPORTS}{key.removeprefix(LISTS)}.json"
    try:
        place = place_of(key)
        if place.route in ready.ctx.plans:
            trace.annotate(route=place.route)
        before = read_json(requests, bucket, report)
        if before is not None and before.get("event") == event:
            return "taken in before"  # S3 may deliver an event twice
        taken = _submit(ready, call, place, Object(requests, bucket, key))
    except ObjectGone as error:
        # It was removed or replaced on purpose; a new object has its own event.
        log.warning("%s", error)
        return str(error)
    except UsageError as error:
        log.error("quarantined the list %s: %s", key, error)
        ready.store.queues.set_aside("list", event, str(error))
        with suppress(LedgerError):
            write_json(requests, bucket, report, {"event": event, "error": str(error)})
        return str(error)
    log.info(
        "list taken in", extra={"list": key, "id": taken.id, "lines": taken.lines, **taken.counts}
    )
    write_json(requests, bucket, report, {"event": event, **msgspec.to_builtins(taken)})
    return taken.id


def _submit(ready: Opened, call: LambdaContext, place: ListObject, body: Object) -> ListReport:
    reserve = min(RESERVE_MS, call.get_remaining_time_in_millis() // 4)

    def in_time(lines: int, done: int, size: int | None) -> None:
        if call.get_remaining_time_in_millis() < reserve:
            raise MilepostError(
                f"{body.name} is too long for one call (lines taken in so far: {lines:,}); the next call continues, and "
                f"'milepost submit {place.route} FILE' takes lists of any length"
            )

    return take_in_list(
        ready.ctx,
        place.route,
        Source(body, body.name, body.size),
        place.title,
        full=place.full,
        no_header=place.no_header,
        by=call.function_name,
        on_progress=in_time,
    )


# Objects of S3 ------------------------------------------------------------------------------------
class ObjectGone(MilepostError):
    """The object was removed or replaced."""


def read_json(requests: Requests, bucket: str, key: str) -> dict[str, Any] | None:
    try:
        answer = requests.call("s3", "get_object", Bucket=bucket, Key=key)
    except (LedgerMissing, AwsRefused) as error:
        if isinstance(error, AwsRefused) and error.code not in ("NoSuchKey", "404"):
            raise
        return None
    found: dict[str, Any] = msgspec.json.decode(answer["Body"].read())
    return found


def write_json(requests: Requests, bucket: str, key: str, value: Mapping[str, Any]) -> None:
    body = msgspec.json.format(msgspec.json.encode(value), indent=2)
    requests.call(
        "s3", "put_object", Bucket=bucket, Key=key, Body=body, ContentType="application/json"
    )


class Object:
    """One object while it is read, from its beginning: the same version to its end, even if it is
    replaced in the meantime. ObjectGone if there is none."""

    def __init__(self, requests: Requests, bucket: str, key: str) -> None:
        self._requests, self._place = requests, {"Bucket": bucket, "Key": key}
        self.name = f"s3://{bucket}/{key}"
        self._etag: str | None = None
        self._held = b""
        self._next = 0
        self.size = 0
        self._fetch()

    def read(self, size: int, /) -> bytes:
        if not self._held and self._next < self.size:
            self._fetch()
        chunk, self._held = self._held[:size], self._held[size:]
        return chunk

    def _fetch(self) -> None:
        from botocore.exceptions import BotoCoreError

        same = {} if self._etag is None else {"IfMatch": self._etag}
        wanted = f"bytes={self._next}-{self._next + PART - 1}"
        try:
            answer = self._requests.call("s3", "get_object", **self._place, Range=wanted, **same)
            self._held = answer["Body"].read()
        except AwsRefused as error:
            if error.code == "InvalidRange" and self._next == 0:
                return  # empty object
            if error.code in ("NoSuchKey", "404", "PreconditionFailed", "412"):
                raise ObjectGone(
                    f"{self.name} was removed or replaced before it was taken in"
                ) from error
            raise OSError(f"{self.name} cannot be read: {error}") from error
        except LedgerMissing as error:
            raise ObjectGone(f"{self.name} was removed before it was taken in") from error
        except (LedgerError, BotoCoreError) as error:
            raise OSError(f"{self.name} cannot be read: {error}") from error
        self._etag = answer["ETag"]
        self._next += len(self._held)
        self.size = (
            int(answer["ContentRange"].rpartition("/")[2])
            if "ContentRange" in answer
            else len(self._held)
        )
