"""Faults at calls of boto3 clients, of the model or of any other: throttled, refused, delivered
twice, or executed but not answered.

    faults = Faults()
    faults.attach(model)                                # every client that it makes from now on; or attach(a client)
    faults.plan(3, "throttle")                          # the third call of all
    faults.plan("UpdateItem", "timeout_after")          # the first UpdateItem
    faults.plan(("UpdateItem", 2), "twice", times=3)    # the second, third and fourth

A call is one attempt: a retry counts again. `calls` has all of them in order, `fired` those with a
fault; `kinds` lists the faults that a call can have, so that a test can go through every call of a
run and every fault.
"""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

Answer = dict[str, Any]
Send = Callable[[dict[str, Any]], Answer]

ANY = ("throttle", "500", "timeout_before", "timeout_after", "twice")
"""Faults that every call can have."""
CONFLICTING = ("PutItem", "UpdateItem", "DeleteItem", "TransactWriteItems", "TransactGetItems")
SOME = {
    ("sqs", "SendMessageBatch"): ("partial", "partial_lost"),
    ("sqs", "ReceiveMessage"): ("dup",),
    ("sns", "PublishBatch"): ("partial", "partial_lost"),
    ("dynamodb", "BatchWriteItem"): ("unprocessed",),
    ("dynamodb", "BatchGetItem"): ("unprocessed",),
} | {("dynamodb", operation): ("conflict",) for operation in CONFLICTING}
THROTTLES = {
    "dynamodb": (400, "ProvisionedThroughputExceededException"),
    "sqs": (400, "RequestThrottled"),
    "sns": (429, "Throttled"),
}
DENIALS = {
    "sqs": (403, "AccessDenied"),
    "sns": (403, "AuthorizationError"),
    "s3": (403, "AccessDenied"),
}


def kinds(service: str, operation: str) -> tuple[str, ...]:
    """The temporary faults that such a call can have. In addition, every call can be "denied",
    which is permanent."""
    return ANY + SOME.get((service, operation), ())


class AwsCall(NamedTuple):
    """One call of a client."""

    service: str
    operation: str
    nth: int
    """Number within this operation, counted from 1."""


class Faults:
    """Counts every call of the clients it is attached to, and makes the planned ones fail;
    thread-safe."""

    def __init__(self) -> None:
        self.calls: list[AwsCall] = []
        self.fired: list[tuple[AwsCall, str]] = []
        self._plans: dict[int | tuple[str, int], str] = {}
        self._counts: Counter[str] = Counter()
        self._received: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._attached: list[Any] = []
        self._lock = threading.RLock()

    def plan(self, where: int | str | tuple[str, int], kind: str, times: int = 1) -> None:
        """Plan a fault at the n-th call of all, or at an operation's n-th (the first, if only its
        name is given), for `times` calls."""
        if kind not in {"denied", *ANY, *(kind for some in SOME.values() for kind in some)}:
            raise ValueError(f"there is no fault {kind!r}")
        first = (where, 1) if isinstance(where, str) else where
        for more in range(times):
            self._plans[first + more if isinstance(first, int) else (first[0], first[1] + more)] = (
                kind
            )

    def clear(self) -> None:
        """Reset the counts, and plan nothing."""
        with self._lock:
            self.calls.clear()
            self.fired.clear()
            self._plans.clear()
            self._counts.clear()

    def attach(self, target: Any) -> None:
        """Attach to a boto3 client; or to anything that makes them by `.client(service)`, for all
        that it makes from now on."""
        if hasattr(target, "meta"):
            with self._lock:
                if not any(one is target for one in self._attached):
                    self._attached.append(target)
                    target._make_api_call = partial(self._call, target, target._make_api_call)
            return
        make = target.client

        def client(service: str, *args: Any, **options: Any) -> Any:
            made = make(service, *args, **options)
            self.attach(made)
            return made

        target.client = client

    def _call(
        self,
        client: Any,
        call_through: Callable[[str, dict[str, Any]], Answer],
        operation: str,
        params: dict[str, Any],
    ) -> Answer:
        service = client.meta.service_model.service_name
        send: Send = partial(call_through, operation)
        with self._lock:
            self._counts[operation] += 1
            call = AwsCall(service, operation, self._counts[operation])
            self.calls.append(call)
            kind = self._plans.get(len(self.calls)) or self._plans.get((operation, call.nth))
            earlier = self._received[params["QueueUrl"]] if operation == "ReceiveMessage" else []
            if kind == "dup" and not earlier:
                kind = None
            if kind is not None:
                if kind not in (*kinds(service, operation), "denied"):
                    raise ValueError(f"{operation} of {service} cannot have the fault {kind!r}")
                self.fired.append((call, kind))
        if operation == "ReceiveMessage":
            send = partial(_remember, send, earlier)
        return send(params) if kind is None else _spoil(client, call, kind, params, send, earlier)


def _spoil(
    client: Any,
    call: AwsCall,
    kind: str,
    params: dict[str, Any],
    send: Send,
    earlier: list[dict[str, Any]],
) -> Answer:
    match kind:
        case "throttle":
            raise _error(client, call, *THROTTLES.get(call.service, (400, "ThrottlingException")))
        case "500":
            raise _error(client, call, 500, "InternalServerError")
        case "denied":
            raise _error(client, call, *DENIALS.get(call.service, (400, "AccessDeniedException")))
        case "conflict":
            raise _conflict(client, call, params)
        case "timeout_before":
            raise _no_answer(client)
        case "timeout_after":
            _unheard(send, params)
            raise _no_answer(client)
        case "twice":
            try:
                return send(params)
            finally:
                _unheard(send, params)
        case "dup":
            return _dup(params, send, earlier[-1])
        case "unprocessed":
            return _unprocessed(client, call, params, send)
        case _:
            entries = "PublishBatchRequestEntries" if call.service == "sns" else "Entries"
            return _partial(params, send, entries, kind == "partial_lost")


def _unheard(send: Send, params: dict[str, Any]) -> None:
    """Execute the call; its answer is lost, even an error."""
    from botocore.exceptions import ClientError

    with suppress(ClientError):
        send(params)


def _error(client: Any, call: AwsCall, status: int, code: str, **more: Any) -> Exception:
    message = "a fault, put in by a test"
    answer = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {"HTTPStatusCode": status, "RetryAttempts": 0},
        **more,
    }
    made: Exception = client.exceptions.from_code(code)(answer, call.operation)
    return made


def _no_answer(client: Any) -> Exception:
    from botocore.exceptions import ReadTimeoutError

    made: Exception = ReadTimeoutError(endpoint_url=client.meta.endpoint_url)
    return made


# DynamoDB -----------------------------------------------------------------------------------------
def _conflict(client: Any, call: AwsCall, params: dict[str, Any]) -> Exception:
    """A single write is refused with its own error; in a transaction, the last item is locked by
    another transaction."""
    if not call.operation.startswith("Transact"):
        return _error(client, call, 400, "TransactionConflictException")
    reasons = [{"Code": "None"} for _ in params["TransactItems"]]
    reasons[-1] = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
    return _error(client, call, 400, "TransactionCanceledException", CancellationReasons=reasons)


def _unprocessed(client: Any, call: AwsCall, params: dict[str, Any], send: Send) -> Answer:
    """The second half is returned as unprocessed. A call with a single entry would do nothing, and
    AWS then refuses it."""
    tables = params["RequestItems"]
    get = call.operation == "BatchGetItem"
    entries = [
        (table, entry)
        for table, some in tables.items()
        for entry in (some["Keys"] if get else some)
    ]
    if len(entries) == 1:
        raise _error(client, call, *THROTTLES["dynamodb"])

    def request_items(chosen: list[tuple[str, Any]]) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for table, entry in chosen:
            some = items.setdefault(table, {**tables[table], "Keys": []} if get else [])
            (some["Keys"] if get else some).append(entry)
        return items

    half = (len(entries) + 1) // 2
    answer = send({**params, "RequestItems": request_items(entries[:half])})
    left = "UnprocessedKeys" if get else "UnprocessedItems"
    assert not answer.get(left), "some entries are unprocessed already"
    return {**answer, left: request_items(entries[half:])}


# SQS and SNS --------------------------------------------------------------------------------------
def _remember(send: Send, earlier: list[dict[str, Any]], params: dict[str, Any]) -> Answer:
    answer = send(params)
    earlier.extend(answer.get("Messages", ()))
    return answer


def _dup(params: dict[str, Any], send: Send, message: dict[str, Any]) -> Answer:
    """The message received last, after new ones if there is room; with its old handle."""
    room = params.get("MaxNumberOfMessages", 1) - 1
    new = (
        send({**params, "MaxNumberOfMessages": room, "WaitTimeSeconds": 0}).get("Messages", [])
        if room
        else []
    )
    return {"Messages": [*new, message]}


def _partial(params: dict[str, Any], send: Send, entries: str, lost: bool) -> Answer:
    """The last entry is reported as failed: sent nevertheless, or lost."""
    *others, last = params[entries]
    answer: Answer = {}
    if others or not lost:
        answer = send({**params, entries: others} if lost else params)
    successful, failed = (
        [one for one in answer.get(part, ()) if one["Id"] != last["Id"]]
        for part in ("Successful", "Failed")
    )
    failed.append(
        {
            "Id": last["Id"],
            "Code": "InternalError",
            "Message": "a fault, put in by a test",
            "SenderFault": False,
        }
    )
    return {**answer, "Successful": successful, "Failed": failed}
