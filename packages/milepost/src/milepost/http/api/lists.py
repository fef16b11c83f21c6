"""Lists over HTTP: submit a list as a stream, and the records of lists."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import CancelledError, Future
from typing import Annotated, Any

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import asdict, replace
from starlette.requests import ClientDisconnect

from milepost.core.errors import MilepostError
from milepost.core.values.durations import iso
from milepost.engine.lists.reconcile import ListReport, take_in_list
from milepost.engine.lists.source import Source
from milepost.engine.views.items import list_view, lists
from milepost.http.auth.authenticator import LOCAL
from milepost.http.auth.author import check_may_operate, check_reason
from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import ProblemError, problem_error
from milepost.http.state.list_slots import NoSlot
from milepost.http.state.state import ServerState
from milepost.ports.documents import ListRecord

FORMS = {"application/x-ndjson": "jsonl", "text/csv": "csv", "text/plain": "txt"}
SILENT_S = 30.0
"""A client that sends nothing of its list for this long is disconnected."""
UNHURRIED_S, SLOWEST_RATE = 30.0, 1024
"""After the server has waited so long in all for the data of a list, its client must have sent that
many bytes for each second of waiting."""
_LOOK_S = 1.0


class ListAnswer(Struct, frozen=True, kw_only=True):
    """The report on a list, as `milepost submit --json` gives it. `id` is empty after a dry run.
    `vanished` names the keys for callers who may read; other callers get the number of them."""

    id: str
    route: str
    name: str
    digest: str
    at: str
    full: bool
    dry_run: bool
    lines: int
    counts: dict[str, int]
    malformed: list[dict[str, Any]]
    changed: list[dict[str, Any]]
    vanished: list[str]
    compared_with: str
    notes: list[str]


class Body:
    """A request's body for a thread that reads it. It holds at most one chunk: data that is not
    read stays in the network. The thread sees an early end as an OSError, and `cut_off` holds the
    problem for the client."""

    def __init__(
        self,
        stream: AsyncIterator[bytes],
        loop: asyncio.AbstractEventLoop,
        silent_s: float,
        ticks: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cut_off: ProblemError | None = None
        self.abandoned = False
        """Set when the server is being stopped: no request waits for the answer any more."""
        self._stream, self._loop, self._silent_s, self._ticks = stream, loop, silent_s, ticks
        self._received = 0
        self._waited_s = 0.0

    def read(self, size: int, /) -> bytes:
        waiting: Future[bytes | OSError]
        gathering = self._gather(size)
        try:
            waiting = asyncio.run_coroutine_threadsafe(gathering, self._loop)
        except RuntimeError:
            gathering.close()
            raise OSError("the server has stopped") from None
        while True:
            try:
                found = waiting.result(_LOOK_S)
            except TimeoutError:
                if self.abandoned:
                    raise OSError("the server is being stopped") from None
            except CancelledError:
                raise OSError("the server is being stopped") from None
            else:
                if isinstance(found, OSError):
                    raise found
                return found

    async def _gather(self, size: int) -> bytes | OSError:
        """About so many bytes, less at the end, and all that came before a cut; then the error. The
        error is returned and not raised, so that it cannot be confused with an error of the
        wait."""
        data = bytearray()
        try:
            while len(data) < size and self.cut_off is None:
                async with asyncio.timeout(self._silent_s):
                    data += await self._next_piece()
                self._check_rate()
        except StopAsyncIteration:
            return bytes(data)
        except TimeoutError:
            self.cut_off = problem_error(
                "too-slow",
                f"no data received for {self._silent_s:g} s",
                expected="send the list again; the lines received were accepted",
            )
        except ClientDisconnect:
            self.cut_off = problem_error("malformed", "the client disconnected")
        if self.cut_off is not None and not data:
            return OSError(self.cut_off.problem.detail)
        return bytes(data)

    async def _next_piece(self) -> bytes:
        """The next data. Only the time of waiting for the client counts, not that in which the
        ledger takes the lines in."""
        began = self._ticks()
        piece = await anext(self._stream)
        self._waited_s += self._ticks() - began
        self._received += len(piece)
        return piece

    def _check_rate(self) -> None:
        if self._waited_s > UNHURRIED_S and self._received < SLOWEST_RATE * self._waited_s:
            self.cut_off = problem_error(
                "too-slow",
                f"{self._received:,} bytes were received in {self._waited_s:.0f} s",
                expected=f"at least {SLOWEST_RATE:,} bytes a second; send the list again; the lines received were accepted",
            )


async def take_in_stream(state: ServerState, call: Call, kind: str) -> Answer:
    """Accept a list from a request's body, line by line, as the lists engine does with a file."""
    plan, wanted = state.plan(call), call.query
    if wanted.replace_changed or wanted.failed_again:
        check_may_operate(
            call, "replace known items" if wanted.replace_changed else "accept failed keys again"
        )
        check_reason(wanted.reason, wanted.dry_run)
    # Any local user may call while there are no keys: then nobody's share can be told apart.
    caller, shared = call.caller.name, call.caller != LOCAL
    try:
        state.list_slots.take(caller, shared=shared)
    except NoSlot as full:
        whose = "of yours" if full.own else "in all"
        what = f"the server is accepting its maximum number of lists {whose} already"
        raise problem_error(
            "busy", what, expected="try again when one of them is finished"
        ) from None
    loop = asyncio.get_running_loop()
    body = Body(call.raw.stream(), loop, SILENT_S)

    def work() -> ListReport:
        options = asdict(wanted)
        name = options.pop("name")
        source = Source(body, name or "the body")
        try:
            return take_in_list(
                state.ctx,
                plan.name,
                source,
                name or "api",
                format=FORMS[kind],
                by=call.caller.name,
                **options,
            )
        finally:
            state.list_slots.give_back(caller)

    try:
        report = await loop.run_in_executor(state.list_pool, work)
    except MilepostError:
        if body.cut_off is not None:
            raise body.cut_off from None
        raise
    finally:
        body.abandoned = True
    if not call.caller.may("read"):
        report = replace(
            report, vanished=[], changed=[replace(line, difference=[]) for line in report.changed]
        )
    values = {**to_builtins(report), "at": iso(report.at)}
    return Answer(ListAnswer(**values))


class ListsWanted(Struct, frozen=True, kw_only=True):
    route: str | None = None
    limit: Annotated[int, Meta(ge=1, le=1000)] = 20
    after: str | None = None


class Lists(Struct, frozen=True):
    """Lists, the latest first. `more`: there are earlier ones; give `next` as `after` to get
    them."""

    lists: list[dict[str, Any]]
    more: bool
    next: str | None = None


@endpoint(
    "GET",
    "/api/v1/lists",
    scope="read",
    query=ListsWanted,
    summary="Submitted lists, the latest first",
)
def all_lists(state: ServerState, call: Call) -> Lists:
    """As `milepost lists --json`. A list that is not `finished` was cut off, or is being accepted
    now."""
    wanted = call.query
    found = [
        record
        for record in reversed(lists(state.ctx, wanted.route))
        if call.caller.sees(record.route)
    ]
    if wanted.after is not None:
        place = next(
            (number for number, record in enumerate(found, 1) if record.id == wanted.after), None
        )
        if place is None:
            raise problem_error(
                "wrong-value",
                f"there is no list {wanted.after!r} among these",
                field="after",
                expected="the `next` of a page",
            )
        found = found[place:]
    shown = found[: wanted.limit]
    more = len(found) > len(shown)
    return Lists([list_view(record) for record in shown], more, shown[-1].id if more else None)


@endpoint(
    "GET",
    "/api/v1/lists/{id}",
    scope="read",
    problems=("unknown-list",),
    summary="One list, with its counts",
)
def one_list(state: ServerState, call: Call) -> dict[str, Any]:
    """Name, digest, submitter, time, and how many of its lines were new, known, changed, repeated
    or malformed."""
    return list_view(the_list(state, call))


def the_list(state: ServerState, call: Call) -> ListRecord:
    """The list that a call's URL names; a list of a route that the caller may not see is answered
    as unknown."""
    wanted = call.path["id"]
    for record in lists(state.ctx):
        if record.id == wanted and call.caller.sees(record.route):
            return record
    raise problem_error(
        "unknown-list",
        f"there is no list {wanted!r}",
        field="id",
        expected="an id from GET /api/v1/lists",
    )
