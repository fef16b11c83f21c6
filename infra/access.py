"""Who may do what: for each function exactly the actions that it carries out, on the resources that it carries them out on.

The lists below are the whole of it. A function that asks for something new fails in the open (LedgerReadOnly) until it is added here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs

from infra.parts import Parts, Place

# Where one action may do no more than another, both are given: which of them is used is a matter of speed.
LOOK_UP = ("GetItem", "BatchGetItem")
WRITE = ("PutItem", "BatchWriteItem")
CONTROL = (*LOOK_UP, "Query", "PutItem", "UpdateItem", "DeleteItem", "DescribeTable")
"""Route versions, pauses, rate tokens, heartbeats, counters: everybody reads them and keeps some of them."""


def worker(parts: Parts, place: Place) -> list[iam.PolicyStatement]:
    """Claims and settles rows of its own route, called by its own queue."""
    return [
        _rows(parts, "Rows", (*LOOK_UP, "UpdateItem"), [place[0]]),
        # An outcome whose answer was lost is looked for here before it is called refused.
        _shared(parts, "history", (*LOOK_UP, "Query")),
        _shared(parts, "control", CONTROL),
        _statement(
            "OwnQueue",
            "sqs",
            ("ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes", "GetQueueUrl", "SendMessage"),
            [parts.queues[place].queue_arn],
        ),
        _retention(parts, [place[0]]),
        _quarantine(parts),
        *_blobs(parts, "GetObject", "PutObject", "AbortMultipartUpload"),
    ]


def relay(parts: Parts) -> list[iam.PolicyStatement]:
    """Reads the streams and carries out what follows: offers, history, seals, counters, events, the row's leaving."""
    return [
        _statement(
            "Streams",
            "dynamodb",
            ("DescribeStream", "GetRecords", "GetShardIterator"),
            [_stream(parts, route) for route in parts.rows],
        ),
        # AWS knows no narrower resource for it, and a mapping cannot be made without it.
        iam.PolicyStatement(sid="ListStreams", actions=["dynamodb:ListStreams"], resources=["*"]),
        _rows(parts, "Rows", (*LOOK_UP, "UpdateItem", "DeleteItem")),
        *_telling(parts),
    ]


def resender(parts: Parts) -> list[iam.PolicyStatement]:
    """Finds what has gone quiet, by the index; once a day, by a scan. Tells what could not be told."""
    return [
        _rows(parts, "Rows", (*LOOK_UP, "Scan", "UpdateItem", "DeleteItem")),
        _statement("Due", "dynamodb", ("Query",), [f"{table.table_arn}/index/due" for table in parts.rows.values()]),
        # It makes the daily heads, and nobody else puts any.
        *(_rows(parts, "Heads", ("PutItem",), [route.name]) for route in parts.settings.heads),
        *_bringing_back(parts),
        *_telling(parts),
    ]


def _bringing_back(parts: Parts) -> list[iam.PolicyStatement]:
    """A back-fill of an added stage goes through the seals, and puts back rows that have left, where their evidence was kept."""
    kept = [route.name for route in parts.settings.routes if route.evidence]
    if not kept:
        return []
    return [_rows(parts, "Back", ("PutItem",), kept), _statement("Seals", "dynamodb", ("Scan",), [parts.shared["seen"].table_arn])]


def lists(parts: Parts) -> list[iam.PolicyStatement]:
    """Takes in delivered lists: reads the list, looks up what is known, adds what is new."""
    routes = [route.name for route in parts.settings.routes]
    return [
        _rows(parts, "Rows", (*LOOK_UP, "PutItem"), routes),
        _shared(parts, "history", (*LOOK_UP, "Query")),
        _shared(parts, "seen", LOOK_UP),
        _shared(parts, "control", CONTROL),
        _retention(parts, routes),
        _quarantine(parts),
        _statement("Lists", "s3", ("GetObject",), [f"{parts.bucket_arn}/lists/*"]),
        _statement("Reports", "s3", ("GetObject", "PutObject"), [f"{parts.bucket_arn}/reports/*"]),
        *_blobs(parts, "GetObject", "PutObject", "AbortMultipartUpload"),
    ]


def own_log(group: logs.LogGroup) -> iam.PolicyStatement:
    return _statement("Log", "logs", ("CreateLogStream", "PutLogEvents"), [group.log_group_arn])


def traces() -> iam.PolicyStatement:
    """AWS knows no narrower resource for these."""
    return _statement("Traces", "xray", ("PutTraceSegments", "PutTelemetryRecords"), ["*"])


def _telling(parts: Parts) -> list[iam.PolicyStatement]:
    """What relay and resender have in common."""
    return [
        _shared(parts, "history", (*LOOK_UP, "Query", *WRITE)),
        _shared(parts, "seen", (*LOOK_UP, *WRITE)),
        _shared(parts, "control", CONTROL),
        _statement(
            "Offers", "sqs", ("SendMessage", "GetQueueUrl", "GetQueueAttributes"), [queue.queue_arn for queue in parts.queues.values()]
        ),
        _quarantine(parts),
        _statement("Events", "sns", ("Publish",), [parts.events.topic_arn]),
        *_blobs(parts, "GetObject", "PutObject", "AbortMultipartUpload", "DeleteObject"),
    ]


def _rows(parts: Parts, sid: str, actions: Sequence[str], routes: Iterable[str] | None = None) -> iam.PolicyStatement:
    return _statement(sid, "dynamodb", actions, [parts.rows[name].table_arn for name in (parts.rows if routes is None else routes)])


def _stream(parts: Parts, route: str) -> str:
    arn = parts.rows[route].table_stream_arn
    assert arn is not None
    return arn


def _shared(parts: Parts, table: str, actions: Sequence[str]) -> iam.PolicyStatement:
    return _statement(table.title(), "dynamodb", actions, [parts.shared[table].table_arn])


def _retention(parts: Parts, routes: Iterable[str]) -> iam.PolicyStatement:
    """An offer lives as long as its queue keeps it: whoever opens the ledger asks each queue of its routes."""
    wanted = set(routes)
    queues = [queue.queue_arn for (route, _), queue in parts.queues.items() if route in wanted]
    return _statement("Retention", "sqs", ("GetQueueUrl", "GetQueueAttributes"), queues)


def _quarantine(parts: Parts) -> iam.PolicyStatement:
    return _statement("Quarantine", "sqs", ("SendMessage", "GetQueueUrl"), [parts.quarantine.queue_arn])


def _blobs(parts: Parts, *actions: str) -> list[iam.PolicyStatement]:
    return [
        _statement("Blobs", "s3", actions, [f"{parts.bucket_arn}/blobs/*"]),
        # Without it S3 says "access denied" where it means "there is none". It cannot be narrowed to a part of the bucket: a
        # request for one object does not say which prefix it is for.
        _statement("MissingIsTold", "s3", ("ListBucket",), [parts.bucket_arn]),
    ]


def _statement(sid: str, service: str, actions: Sequence[str], resources: Sequence[str]) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=[f"{service}:{action}" for action in actions], resources=list(resources))
