"""Faults put between boto3 and a stand-in: what AWS does now and then, and what no stand-in does by itself.

    faults = Faults()
    faults.attach(requests)                             # every client that it makes; or attach(a boto3 client)
    faults.plan(3, "throttle")                          # the third call of all
    faults.plan("UpdateItem", "timeout_after")          # the first UpdateItem
    faults.plan(("UpdateItem", 2), "twice", times=3)    # the second, third and fourth

A call is one attempt: what is tried again is counted again. `calls` holds them in order, `fired` those that met a fault; `kinds` says
which faults a call can meet, so that a test can go through every call of a run and every fault.
"""

from __future__ import annotations

import functools
import io
import json
import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlencode
from xml.etree import ElementTree

from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from botocore.exceptions import ReadTimeoutError
from urllib3 import HTTPResponse

Send = Callable[[AWSPreparedRequest], AWSResponse]

ANY = ("throttle", "500", "timeout_before", "timeout_after", "twice")
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


def kinds(service: str, operation: str) -> tuple[str, ...]:
    """The faults that such a call can meet."""
    return ANY + SOME.get((service, operation), ())


class Call(NamedTuple):
    service: str
    operation: str
    nth: int
    """Of this operation, counted from 1."""


class Faults:
    """Watches every call of the clients it is attached to, and spoils those that were planned for; safe with many threads."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.fired: list[tuple[Call, str]] = []
        self._plans: dict[int | tuple[str, int], str] = {}
        self._counts: Counter[str] = Counter()
        self._received: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self._lock = threading.Lock()

    def plan(self, where: int | str | tuple[str, int], kind: str, times: int = 1) -> None:
        """At the n-th call of all, or at an operation's n-th (the first, when only its name is given), and so on for `times` calls."""
        if kind not in {*ANY, *(kind for some in SOME.values() for kind in some)}:
            raise ValueError(f"there is no fault {kind!r}")
        first = (where, 1) if isinstance(where, str) else where
        for more in range(times):
            self._plans[first + more if isinstance(first, int) else (first[0], first[1] + more)] = kind

    def clear(self) -> None:
        """Counts from one again, with nothing planned."""
        with self._lock:
            self.calls.clear()
            self.fired.clear()
            self._plans.clear()
            self._counts.clear()

    def attach(self, target: Any) -> None:
        """To a boto3 client; or to whatever makes them by `.client(service)`, for all that it makes from now on."""
        if hasattr(target, "meta"):
            handler = functools.partial(self._before_send, target)
            target.meta.events.register("before-send", handler, unique_id=f"faults-{id(self)}")
            return
        make = target.client

        def client(service: str, *timeouts: Any) -> Any:
            made = make(service, *timeouts)
            with self._lock:
                self.attach(made)
            return made

        target.client = client

    def _before_send(self, client: Any, request: AWSPreparedRequest, event_name: str, **_: Any) -> AWSResponse:
        service, operation = client.meta.service_model.service_name, event_name.rsplit(".", 1)[1]
        send: Send = client._endpoint.http_session.send
        with self._lock:
            self._counts[operation] += 1
            call = Call(service, operation, self._counts[operation])
            self.calls.append(call)
            kind = self._plans.get(len(self.calls)) or self._plans.get((operation, call.nth))
            earlier = self._received[_json(request)["QueueUrl"]] if operation == "ReceiveMessage" else []
            if kind == "dup" and not earlier:
                kind = None
            if kind is not None:
                if kind not in kinds(service, operation):
                    raise ValueError(f"{operation} of {service} cannot meet the fault {kind!r}")
                self.fired.append((call, kind))
        if operation == "ReceiveMessage":
            send = functools.partial(_remember, send, earlier)
        return send(request) if kind is None else _spoil(call, kind, request, send, earlier)


def _spoil(call: Call, kind: str, request: AWSPreparedRequest, send: Send, earlier: list[dict[str, Any]]) -> AWSResponse:
    match kind:
        case "throttle":
            return _error(call, *THROTTLES.get(call.service, (400, "ThrottlingException")))
        case "500":
            return _error(call, 500, "InternalServerError")
        case "conflict":
            return _conflict(call, request)
        case "timeout_before":
            raise ReadTimeoutError(endpoint_url=request.url)
        case "timeout_after":
            send(request)
            raise ReadTimeoutError(endpoint_url=request.url)
        case "twice":
            answer = send(request)
            send(request)
            return answer
        case "dup":
            return _dup(request, send, earlier[-1])
        case "unprocessed":
            return _unprocessed(call, request, send)
        case _:
            partial = _partial_publish if call.service == "sns" else _partial_send
            return partial(request, send, kind == "partial_lost")


# Answers and requests --------------------------------------------------------------------------------------------------
def _json(message: AWSPreparedRequest | AWSResponse) -> Any:
    return json.loads(message.body if isinstance(message, AWSPreparedRequest) else message.content)


def _answer(status: int, body: bytes) -> AWSResponse:
    headers = {"content-length": str(len(body)), "x-amzn-requestid": "fault"}
    return AWSResponse("", status, headers, HTTPResponse(io.BytesIO(body), headers, status, preload_content=False))


def _error(call: Call, status: int, code: str, **more: Any) -> AWSResponse:
    message = "a fault, put in by a test"
    if call.service == "sns":
        error = f"<Error><Type>Sender</Type><Code>{code}</Code><Message>{message}</Message></Error>"
        return _answer(status, f"<ErrorResponse>{error}<RequestId>fault</RequestId></ErrorResponse>".encode())
    return _answer(status, json.dumps({"__type": f"com.amazonaws#{code}", "message": message, **more}).encode())


def _with_body(request: AWSPreparedRequest, body: bytes) -> AWSPreparedRequest:
    """The same request about something else. Its signature no longer fits, which no stand-in minds."""
    changed = AWSPreparedRequest(request.method, request.url, request.headers.copy(), body, request.stream_output)
    changed.headers["Content-Length"] = str(len(body))
    return changed


# DynamoDB --------------------------------------------------------------------------------------------------------------
def _conflict(call: Call, request: AWSPreparedRequest) -> AWSResponse:
    """Alone, a write is refused by name; in a transaction, its last item is the one that another transaction has hold of."""
    if not call.operation.startswith("Transact"):
        return _error(call, 400, "TransactionConflictException")
    reasons = [{"Code": "None"} for _ in _json(request)["TransactItems"]]
    reasons[-1] = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
    return _error(call, 400, "TransactionCanceledException", CancellationReasons=reasons)


def _unprocessed(call: Call, request: AWSPreparedRequest, send: Send) -> AWSResponse:
    """The second half comes back undone. Of a single entry nothing would be done, and AWS then refuses the call."""
    asked = _json(request)
    tables = asked["RequestItems"]
    get = call.operation == "BatchGetItem"
    entries = [(table, entry) for table, some in tables.items() for entry in (some["Keys"] if get else some)]
    if len(entries) == 1:
        return _error(call, *THROTTLES["dynamodb"])

    def request_items(chosen: list[tuple[str, Any]]) -> dict[str, Any]:
        items: dict[str, Any] = {}
        for table, entry in chosen:
            some = items.setdefault(table, {**tables[table], "Keys": []} if get else [])
            (some["Keys"] if get else some).append(entry)
        return items

    half = (len(entries) + 1) // 2
    asked["RequestItems"] = request_items(entries[:half])
    answer = send(_with_body(request, json.dumps(asked).encode()))
    if answer.status_code != 200:
        return answer
    left = "UnprocessedKeys" if get else "UnprocessedItems"
    said = _json(answer)
    assert not said.get(left), "the stand-in itself left some entries undone"
    return _answer(200, json.dumps({**said, left: request_items(entries[half:])}).encode())


# SQS and SNS -----------------------------------------------------------------------------------------------------------
def _remember(send: Send, earlier: list[dict[str, Any]], request: AWSPreparedRequest) -> AWSResponse:
    answer = send(request)
    if answer.status_code == 200:
        earlier.extend(_json(answer).get("Messages", []))
    return answer


def _dup(request: AWSPreparedRequest, send: Send, message: dict[str, Any]) -> AWSResponse:
    """The message received last, behind new ones if there is room; its handle is the old one."""
    asked = _json(request)
    room = asked.get("MaxNumberOfMessages", 1) - 1
    if room == 0:
        return _answer(200, json.dumps({"Messages": [message]}).encode())
    answer = send(_with_body(request, json.dumps({**asked, "MaxNumberOfMessages": room, "WaitTimeSeconds": 0}).encode()))
    if answer.status_code != 200:
        return answer
    return _answer(200, json.dumps({"Messages": [*_json(answer).get("Messages", []), message]}).encode())


def _partial_send(request: AWSPreparedRequest, send: Send, lost: bool) -> AWSResponse:
    """The last entry is reported as failed: sent all the same, or lost."""
    asked = _json(request)
    *others, last = asked["Entries"]
    said: dict[str, Any] = {}
    if others or not lost:
        answer = send(_with_body(request, json.dumps({**asked, "Entries": others}).encode()) if lost else request)
        if answer.status_code != 200:
            return answer
        said = _json(answer)
    successful, failed = ([one for one in said.get(part, []) if one["Id"] != last["Id"]] for part in ("Successful", "Failed"))
    failed.append({"Id": last["Id"], "Code": "InternalError", "Message": "a fault, put in by a test", "SenderFault": False})
    return _answer(200, json.dumps({"Successful": successful, "Failed": failed}).encode())


def _partial_publish(request: AWSPreparedRequest, send: Send, lost: bool) -> AWSResponse:
    """As `_partial_send`, in the words of SNS: forms and XML."""
    entry = "PublishBatchRequestEntries.member."
    form = dict(parse_qsl(request.body.decode() if isinstance(request.body, bytes) else request.body, keep_blank_values=True))
    last = max(int(name.removeprefix(entry).split(".")[0]) for name in form if name.startswith(entry))
    failed_id = form[f"{entry}{last}.Id"]
    root = ElementTree.fromstring("<R><PublishBatchResult><Successful/><Failed/></PublishBatchResult></R>")
    if last > 1 or not lost:
        others = {name: value for name, value in form.items() if not name.startswith(f"{entry}{last}.")}
        answer = send(_with_body(request, urlencode(others).encode()) if lost else request)
        if answer.status_code != 200:
            return answer
        root = ElementTree.fromstring(answer.content)
    space = root.tag.removesuffix(root.tag.rpartition("}")[2])
    for part in ("Successful", "Failed"):
        members = root.find(f".//{space}{part}")
        for member in [] if members is None else list(members):
            if member.findtext(f"{space}Id") == failed_id:
                members.remove(member)
    result = root.find(f".//{space}PublishBatchResult")
    failed = root.find(f".//{space}Failed")
    failed = ElementTree.SubElement(result, f"{space}Failed") if failed is None else failed
    member = ElementTree.SubElement(failed, f"{space}member")
    for name, value in {"Id": failed_id, "Code": "InternalError", "Message": "a fault, put in by a test", "SenderFault": "false"}.items():
        ElementTree.SubElement(member, f"{space}{name}").text = value
    return _answer(200, ElementTree.tostring(root))
