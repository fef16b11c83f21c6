"""IAM policies: for each function, process and person exactly the actions and resources that they
need.

Tables that all routes share are bound by their leading key (`dynamodb:LeadingKeys`): the control
table by the kind of document, history by the route. The bucket is bound by prefix. The lists below
are complete: a request that needs more fails with an error that names the request (LedgerReadOnly)
until it is added here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs

from milepost.ports import documents as kinds
from milepost.ports.handler import attach_of
from milepost_aws.infra.parts import Parts, Place
from milepost_aws.infra.settings import object_place, queue_arn
from milepost_aws.ledger.left_failures import LEFT, NOTED
from milepost_aws.ledger.refused_rows import QUARANTINED
from milepost_aws.ledger.repair.repair import REPAIR
from milepost_aws.ledger.stream import GAP, POLLER, SHARD
from milepost_aws.ledger.tables.counters import COUNT, COUNTED, GROUP
from milepost_aws.ledger.tables.documents import BUCKET, BY_ROUTE, FORMAT, HOLDING, LAYOUT
from milepost_aws.ledger.tables.journal import JOURNAL

# If one action allows no more than another, both are granted: the choice between them is a matter
# of speed.
LOOK_UP = ("GetItem", "BatchGetItem")
READ = (*LOOK_UP, "Query")
WRITE = ("PutItem", "BatchWriteItem")
CHANGE = ("PutItem", "UpdateItem", "DeleteItem")
USE_KEY = (
    "Decrypt",
    "DescribeKey",
    "Encrypt",
    "GenerateDataKey",
    "GenerateDataKeyWithoutPlaintext",
    "ReEncryptFrom",
    "ReEncryptTo",
)

EVERYONE_READS = (
    kinds.ROUTE,
    LAYOUT,
    FORMAT,
    kinds.HOLD,
    kinds.LIMIT,
    kinds.BREAKER,
    kinds.MOVED,
    BUCKET,
    HOLDING,
    JOURNAL,
)
"""Documents that decide whether an item may be worked on now, and by which version of its route;
and the places of history lines."""
SEALED = (kinds.FORGET,)
"""The secret by which forgotten keys stay known: for all that look up seals."""
FIRST = (kinds.ROUTE, LAYOUT, FORMAT, NOTED)
"""A route's first version, its table's layout, the format of a new ledger's tables, and that a
route has no old seals, written by the first function or process that opens the ledger."""
EVERYONE_WRITES = (kinds.PROCESS,)
"""The heartbeat."""
RATES = (BUCKET, HOLDING)
"""Rates, and lanes with held rows."""
ADMITTING = (kinds.BREAKER, *RATES)
"""What every worker writes to admit items, each for its own route."""
PAUSING = (kinds.HOLD, kinds.ACT)
"""A pause, and the record of it: for workers whose handler may pause its lane."""
TELLING = (kinds.CURSOR, kinds.PARKED, kinds.PARKED_CHANGE)
"""Cursors of subscribers, and parked events."""
REPAIRS = (
    REPAIR,
    NOTED,
    GAP,
    kinds.HEAD,
    kinds.BACK_FILL,
    kinds.HOLD,
    kinds.LIMIT,
    kinds.ACT,
    kinds.PROGRESS,
)
STREAM_READERS = (SHARD, POLLER, GAP)
"""Positions of processes in the streams. Lambda keeps the relay function's position itself."""
APPLICATIONS = (kinds.APPLICATION, kinds.TALLY, kinds.ALERT)
"""The applications' own documents, their counts, and their alerts."""
SECRETS = (kinds.KEY, kinds.KEY_USE, kinds.SESSION)
"""Digests of API keys and sessions: for processes that serve the API, and for operators who make
keys."""
ACTS = (
    *FIRST, kinds.HOLD, kinds.LIMIT, kinds.ACT, kinds.LIST, kinds.BACK_FILL, kinds.MOVED, kinds.MOVING, kinds.HEAD, kinds.PROBE, *TELLING,
    *APPLICATIONS,
)  # fmt: skip
"""Documents that operators write: pauses, limits, route versions, lists, replays; each act with
author and reason."""


def worker(parts: Parts, place: Place) -> list[iam.PolicyStatement]:
    """Claims and settles rows of its own route, called by its own queue."""
    route = place[0]
    pauses = any(stage.pauses for of, stage in parts.stages() if (of.name, stage.name) == place)
    own = (*_admitting(parts, [route], pauses=pauses), *_of_routes(QUARANTINED, [route]))
    heads = [one.name for one in parts.settings.heads]
    looks = any(
        attach_of(stage.handler) is not None
        for of, stage in parts.stages()
        if (of.name, stage.name) == place
    )
    return [
        *_working(parts, [place]),
        *(_looking(parts, route) if looks else []),
        _history_of(parts, [route]),
        *_control(
            parts,
            (*EVERYONE_READS, *_by_route([route, *heads]), *own, *_kept(parts)),
            (*EVERYONE_WRITES, *own),
        ),
        _retention(parts, [route]),
        _quarantine(parts),
        *_blobs(parts, "GetObject", under=[route, f"history/{route}", "confirmed"]),
        *_blobs(parts, "PutObject", "AbortMultipartUpload", under=[route]),
        *declared(parts),
        *use_key(parts),
    ]


def relay(parts: Parts) -> list[iam.PolicyStatement]:
    """Reads the streams and carries out the consequences: offers, history, seals, counters, events,
    removal of rows."""
    return [
        *_streams(parts),
        _rows(parts, "Rows", (*LOOK_UP, "UpdateItem", "DeleteItem")),
        *_telling(parts),
        *_follow_ups(parts),
        *_control(parts, (*_relay_reads(parts), *_kept(parts)), _relay_writes(parts)),
    ]


def resender(parts: Parts) -> list[iam.PolicyStatement]:
    """Finds due items by the index, and once a day by a scan, whose pace follows the size of the
    table; delivers events that could not be delivered."""
    return [
        _rows(parts, "Rows", (*LOOK_UP, "Scan", "UpdateItem", "DeleteItem", "DescribeTable")),
        _due(parts),
        _statement("Seals", "dynamodb", ("Scan",), [parts.shared["seen"].table_arn]),
        *_heads(parts),
        *_bringing_back(parts),
        *_telling(parts),
        *_follow_ups(parts),
        *_blobs(
            parts,
            "GetObject",
            "PutObject",
            "AbortMultipartUpload",
            "DeleteObject",
            under=[REPAIR],
            sid="RepairRuns",
        ),
        *_control(
            parts,
            (*_relay_reads(parts), *REPAIRS, *_kept(parts)),
            (*_relay_writes(parts), *REPAIRS, *_by_route(parts.rows, PAUSING)),
        ),
    ]


def lists(parts: Parts) -> list[iam.PolicyStatement]:
    """Accepts delivered lists: reads the list, looks up known keys, adds new items."""
    routes = [route.name for route in parts.settings.routes]
    aside = _of_routes(QUARANTINED, routes)
    return [
        _rows(parts, "Rows", (*LOOK_UP, "PutItem"), routes),
        _shared(parts, "history", READ),
        _shared(parts, "seen", LOOK_UP),
        *_control(
            parts,
            (*EVERYONE_READS, *_by_route(parts.rows), *SEALED, kinds.LIST, *aside, *_kept(parts)),
            (*EVERYONE_WRITES, *FIRST, kinds.LIST, *aside),
        ),
        _retention(parts, routes),
        _quarantine(parts),
        _statement("Lists", "s3", ("GetObject",), [parts.objects("lists")]),
        _statement("Reports", "s3", ("GetObject", "PutObject"), [parts.objects("reports")]),
        *_blobs(parts, "GetObject", "PutObject", "AbortMultipartUpload", under=[*routes, "lists"]),
        *use_key(parts),
    ]


def services(parts: Parts) -> list[iam.PolicyStatement]:
    """Runs the services of applications: looks up items, adds new ones, applies answers, stores the
    applications' documents; checks alerts; ends pauses that a handler has made; and uses the
    resources that the applications declare."""
    routes = [route.name for route in parts.settings.routes]
    resuming = (
        (*PAUSING, *_by_route(routes, PAUSING))
        if any(stage.pauses for _, stage in parts.stages())
        else ()
    )
    return [
        _rows(parts, "Rows", (*READ, "PutItem", "UpdateItem"), routes),
        _due(parts),
        _shared(parts, "history", READ),
        _shared(parts, "seen", LOOK_UP),
        *_control(
            parts,
            (
                *EVERYONE_READS,
                *_by_route(parts.rows),
                *SEALED,
                COUNTED,
                *_of_routes((COUNT, GROUP), routes),
            ),
            (*EVERYONE_WRITES, *FIRST, *APPLICATIONS, *TELLING, kinds.LIST, kinds.ACT, *resuming),
        ),
        _retention(parts, routes),
        _quarantine(parts),
        *_blobs(parts, "GetObject", under=["history"], sid="Lines"),
        *_blobs(parts, "GetObject", "PutObject", "AbortMultipartUpload", under=[*routes, "lists"]),
        *declared(parts),
        *use_key(parts),
    ]


def declared(parts: Parts) -> list[iam.PolicyStatement]:
    """AWS resources outside the ledger that the applications declare (`AwsAccess`)."""
    access = parts.settings.access
    send = ("SendMessage", "GetQueueUrl", "GetQueueAttributes")
    take = (
        "ReceiveMessage",
        "DeleteMessage",
        "ChangeMessageVisibility",
        "GetQueueUrl",
        "GetQueueAttributes",
    )
    found = []
    for sid, actions, queues in (
        ("PartnersQueues", send, [queue for one in access for queue in one.sends_to]),
        ("PartnersAnswers", take, [queue for one in access for queue in one.receives_from]),
    ):
        if queues:
            found.append(
                _statement(
                    sid,
                    "sqs",
                    actions,
                    [_queue_arn(parts, queue) for queue in dict.fromkeys(queues)],
                )
            )
    places = [
        object_place(place)
        for place in dict.fromkeys(place for one in access for place in one.objects)
    ]
    if places:
        change = ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload")
        found.append(
            _statement(
                "AppObjects",
                "s3",
                change,
                [parts.others(bucket, prefix) for bucket, prefix in places],
            )
        )
        buckets = [
            f"arn:{parts.stack.partition}:s3:::{bucket}"
            for bucket in dict.fromkeys(bucket for bucket, _ in places)
        ]
        found.append(_statement("AppBuckets", "s3", ("ListBucket",), buckets))
    topics = list(dict.fromkeys(topic for one in access for topic in one.publishes_to))
    if topics:
        found.append(_statement("Topics", "sns", ("Publish",), topics))
    if any(one.sends_mail for one in access):
        identities = (
            f"arn:{parts.stack.partition}:ses:{parts.stack.region}:{parts.stack.account}:identity/*"
        )
        found.append(_statement("Mail", "ses", ("SendEmail",), [identities]))
    return found


def _queue_arn(parts: Parts, queue: str) -> str:
    region, account, name = queue_arn(queue)
    return f"arn:{parts.stack.partition}:sqs:{region or parts.stack.region}:{account or parts.stack.account}:{name}"


def accept(parts: Parts) -> list[iam.PolicyStatement]:
    """Answers the applications' endpoints that submit items: recognises the caller's key, looks up
    what is known, adds what is new."""
    routes = [route.name for route in parts.settings.routes]
    return [
        _rows(parts, "Rows", (*LOOK_UP, "PutItem"), routes),
        _shared(parts, "history", READ),
        _shared(parts, "seen", LOOK_UP),
        *_control(
            parts,
            (
                *EVERYONE_READS,
                *_by_route(parts.rows),
                *SEALED,
                *SECRETS,
                kinds.APPLICATION,
                kinds.TALLY,
            ),
            (*EVERYONE_WRITES, *FIRST, kinds.KEY_USE, kinds.TALLY),
        ),
        _retention(parts, routes),
        _quarantine(parts),
        *_blobs(parts, "GetObject", "PutObject", "AbortMultipartUpload", under=routes),
        *use_key(parts),
    ]


def process(parts: Parts) -> list[iam.PolicyStatement]:
    """`milepost up` and `milepost work` outside Lambda: worker, relay and resender in one, with the
    API and the dashboard."""
    places = [(route.name, stage.name) for route, stage in parts.stages() if stage.ours]
    routes = [route.name for route in parts.settings.routes]
    every = (*_relay_reads(parts), *REPAIRS, *STREAM_READERS, *SECRETS, *ACTS)
    return [
        *_streams(parts),
        _rows(
            parts, "Rows", (*READ, "Scan", "PutItem", "UpdateItem", "DeleteItem", "DescribeTable")
        ),
        _due(parts),
        *([_own_queues(parts, places)] if places else []),
        *_telling(parts),
        _statement("SeenScan", "dynamodb", ("Scan",), [parts.shared["seen"].table_arn]),
        *_control(
            parts,
            every,
            (
                *_relay_writes(parts),
                *REPAIRS,
                *_by_route(parts.rows, PAUSING),
                *STREAM_READERS,
                *SECRETS,
                *ACTS,
            ),
        ),
        *_blobs(
            parts,
            "GetObject",
            "PutObject",
            "AbortMultipartUpload",
            under=["heads", "lists", REPAIR],
            sid="Records",
        ),
        *_blobs(parts, "DeleteObject", under=["heads", REPAIR], sid="Replaced"),
        _retention(parts, routes),
    ]


def operator(parts: Parts) -> list[iam.PolicyStatement]:
    """Operators with the command line: everything that `milepost --help` lists except running the
    work. Only the relay writes counters: an act is a write of the item's row, and the relay derives
    the rest."""
    routes = [route.name for route in parts.settings.routes]
    aside = (*_of_routes((QUARANTINED, LEFT), parts.rows), *_by_route(parts.rows))
    reads = (*_relay_reads(parts), *REPAIRS, *STREAM_READERS, *SECRETS, *ACTS)
    return [
        _rows(
            parts, "Rows", (*READ, "Scan", "PutItem", "UpdateItem", "DeleteItem", "DescribeTable")
        ),
        _due(parts),
        _shared(parts, "history", (*READ, "DescribeTable")),
        # `milepost prune` removes lines whose rows have left, marks that on their seals, and
        # forgets old seals.
        _statement("Prune", "dynamodb", ("BatchWriteItem",), [parts.shared["history"].table_arn]),
        _shared(parts, "seen", (*LOOK_UP, "Scan", "PutItem", "UpdateItem", "DeleteItem")),
        *_control(
            parts,
            reads,
            (*EVERYONE_WRITES, *BY_ROUTE, *SECRETS, *SEALED, *ACTS, GAP, kinds.PROGRESS, *aside),
        ),
        # `milepost forget` takes a key out of the journal's blocks, and the example of its error
        # out of a group.
        _statement(
            "Forget",
            "dynamodb",
            ("UpdateItem",),
            [parts.shared["control"].table_arn],
            _leading("StringEquals", [JOURNAL, *_of_routes(GROUP, routes)]),
        ),
        # `milepost quarantine replay` copies out the lines of a row that the relay could not read,
        # and seals it if it has ended.
        _statement(
            "Replay",
            "dynamodb",
            ("PutItem",),
            [parts.shared["control"].table_arn],
            _leading("StringEquals", [JOURNAL]),
        ),
        _statement(
            "Offers",
            "sqs",
            ("SendMessage", "GetQueueUrl", "GetQueueAttributes"),
            [queue.queue_arn for queue in parts.queues.values()],
        ),
        _statement(
            "Quarantine",
            "sqs",
            (
                "SendMessage",
                "ReceiveMessage",
                "DeleteMessage",
                "ChangeMessageVisibility",
                "GetQueueUrl",
                "GetQueueAttributes",
            ),
            [parts.quarantine.queue_arn],
        ),
        _statement("Events", "sns", ("Publish",), [parts.events.topic_arn]),
        *_blobs(parts, "GetObject", under=[""]),
        *_blobs(
            parts,
            "PutObject",
            "AbortMultipartUpload",
            under=[*routes, "lists", "heads", "evidence"],
        ),
        *_blobs(
            parts,
            "DeleteObject",
            under=[*routes, *(f"history/{route}" for route in routes), "confirmed", "evidence"],
        ),
        *use_key(parts),
    ]


def viewer(parts: Parts) -> list[iam.PolicyStatement]:
    """People and programs that only read: `status`, `list`, `show`, `doctor`, `export`. Neither API
    keys nor sessions."""
    reads = (
        *_relay_reads(parts),
        *REPAIRS,
        *STREAM_READERS,
        *(kind for kind in ACTS if kind != kinds.PROBE),
    )
    return [
        _rows(parts, "Rows", (*READ, "Scan", "DescribeTable")),
        _due(parts),
        _shared(parts, "history", READ),
        _shared(parts, "seen", (*LOOK_UP, "Scan")),
        *_control(parts, reads, ()),
        _retention(parts, [route.name for route in parts.settings.routes]),
        _statement(
            "Quarantine", "sqs", ("GetQueueUrl", "GetQueueAttributes"), [parts.quarantine.queue_arn]
        ),
        *_blobs(parts, "GetObject", under=[""]),
        *use_key(parts, "Decrypt", "DescribeKey"),
    ]


def own_log(group: logs.LogGroup) -> iam.PolicyStatement:
    return _statement("Log", "logs", ("CreateLogStream", "PutLogEvents"), [group.log_group_arn])


def traces() -> iam.PolicyStatement:
    """AWS has no narrower resource for these."""
    return _statement("Traces", "xray", ("PutTraceSegments", "PutTelemetryRecords"), ["*"])


# Parts --------------------------------------------------------------------------------------------


def _working(parts: Parts, places: Sequence[Place]) -> list[iam.PolicyStatement]:
    return [
        _rows(parts, "Rows", (*LOOK_UP, "UpdateItem"), sorted({route for route, _ in places})),
        _own_queues(parts, places),
    ]


def _looking(parts: Parts, route: str) -> list[iam.PolicyStatement]:
    """For a handler that looks at other items of its route: by the beginning of their keys, and at
    failed ones whose rows have left."""
    return [
        _rows(parts, "OtherItems", ("Query",), [route]),
        _shared(parts, "seen", LOOK_UP),
        _statement(
            "LeftItems",
            "dynamodb",
            READ,
            [parts.shared["control"].table_arn],
            _leading("StringEquals", (NOTED, *_of_routes(LEFT, [route]))),
        ),
    ]


def _own_queues(parts: Parts, places: Sequence[Place]) -> iam.PolicyStatement:
    return _statement(
        "OwnQueue",
        "sqs",
        (
            "ReceiveMessage",
            "DeleteMessage",
            "ChangeMessageVisibility",
            "GetQueueAttributes",
            "GetQueueUrl",
            "SendMessage",
        ),
        [parts.queues[place].queue_arn for place in places],
    )


def _streams(parts: Parts) -> list[iam.PolicyStatement]:
    read = ("DescribeStream", "GetRecords", "GetShardIterator")
    return [
        _statement("Streams", "dynamodb", read, [_stream(parts, route) for route in parts.rows]),
        # AWS has no narrower resource for it, and an event source mapping cannot be made without
        # it.
        iam.PolicyStatement(sid="ListStreams", actions=["dynamodb:ListStreams"], resources=["*"]),
    ]


def _heads(parts: Parts) -> list[iam.PolicyStatement]:
    """Only the resender makes daily heads."""
    found = [_rows(parts, "Heads", ("PutItem",), [route.name]) for route in parts.settings.heads]
    if found:
        found += _blobs(
            parts,
            "GetObject",
            "PutObject",
            "AbortMultipartUpload",
            "DeleteObject",
            under=["heads"],
            sid="HeadTrees",
        )
    return found


def _bringing_back(parts: Parts) -> list[iam.PolicyStatement]:
    """A back-fill of an added stage reads the seals, and restores rows that have left, if their
    evidence was kept."""
    kept = [route.name for route in parts.settings.routes if route.evidence]
    return [_rows(parts, "Back", ("PutItem",), kept)] if kept else []


def _follow_ups(parts: Parts) -> list[iam.PolicyStatement]:
    """Relay and resender add the items that follow from completed ones (`route.then`), to no other
    tables."""
    routes = sorted(
        {
            route.follow_up.target.name
            for route in parts.settings.routes
            if route.follow_up is not None
        }
    )
    return [_rows(parts, "FollowUps", ("PutItem",), routes)] if routes else []


def _telling(parts: Parts) -> list[iam.PolicyStatement]:
    """The common part of relay and resender."""
    return [
        _shared(parts, "history", (*READ, *WRITE)),
        _shared(parts, "seen", (*LOOK_UP, *WRITE)),
        _statement(
            "Offers",
            "sqs",
            ("SendMessage", "GetQueueUrl", "GetQueueAttributes"),
            [queue.queue_arn for queue in parts.queues.values()],
        ),
        _quarantine(parts),
        _statement("Events", "sns", ("Publish",), [parts.events.topic_arn]),
        *_blobs(parts, "GetObject", under=[*parts.rows, "history", "evidence", "confirmed"]),
        *_blobs(
            parts, "PutObject", "AbortMultipartUpload", under=[*parts.rows, "history", "evidence"]
        ),
        # A blob is deleted with its row or line; evidence by operators alone, with `milepost
        # forget`.
        *_blobs(parts, "DeleteObject", under=[*parts.rows, "history", "confirmed"]),
        *use_key(parts),
    ]


def _kept(parts: Parts) -> tuple[str, ...]:
    """A handler or a lane function of an application may read what the application keeps, such as
    destinations that were added at run time."""
    return (kinds.APPLICATION,) if parts.settings.applications_in_code else ()


def _relay_reads(parts: Parts) -> tuple[str, ...]:
    of_routes = _of_routes((COUNT, GROUP, QUARANTINED, LEFT), parts.rows)
    return (
        *EVERYONE_READS,
        *_by_route(parts.rows),
        *SEALED,
        *TELLING,
        kinds.PROCESS,
        COUNTED,
        GAP,
        *of_routes,
    )


def _relay_writes(parts: Parts) -> tuple[str, ...]:
    return (
        *EVERYONE_WRITES,
        *RATES,
        *_by_route(parts.rows, ADMITTING),
        *FIRST,
        *TELLING,
        JOURNAL,
        COUNTED,
        *_of_routes((COUNT, GROUP, QUARANTINED, LEFT), parts.rows),
    )


def _admitting(parts: Parts, routes: Sequence[str], *, pauses: bool) -> tuple[str, ...]:
    """What the workers of these routes write to admit items: breakers, rates, lanes with held rows,
    and pauses if they make any. In tables of the first format all routes share these kinds."""
    pausing = PAUSING if pauses else ()
    shared = (*RATES, *pausing) if parts.settings.tables_format == 1 else ()
    return (*_by_route(routes, (*ADMITTING, *pausing)), *shared)


def _by_route(routes: Iterable[str], of: Iterable[str] = tuple(BY_ROUTE)) -> tuple[str, ...]:
    """The kinds with the route in their key, for these routes."""
    return _of_routes([f"{kind}#" for kind in of], routes)


def _of_routes(beginnings: str | Iterable[str], routes: Iterable[str]) -> tuple[str, ...]:
    """Kinds of documents that each route has separately."""
    wanted = (beginnings,) if isinstance(beginnings, str) else tuple(beginnings)
    return tuple(f"{beginning}{route}" for route in routes for beginning in wanted)


def _control(
    parts: Parts, reads: Sequence[str], writes: Sequence[str]
) -> list[iam.PolicyStatement]:
    """Control documents by kind, which is the table's partition key."""
    table = [parts.shared["control"].table_arn]
    found = [
        _statement("ControlTable", "dynamodb", ("DescribeTable",), table),
        _statement(
            "ControlRead", "dynamodb", READ, table, _leading("StringEquals", (*reads, *writes))
        ),
    ]
    if writes:
        found.append(
            _statement("ControlWrite", "dynamodb", CHANGE, table, _leading("StringEquals", writes))
        )
    return found


def _leading(operator: str, keys: Iterable[str]) -> dict[str, Any]:
    return {
        f"ForAllValues:{operator}": {"dynamodb:LeadingKeys": sorted(set(keys))},
        # "All" of an empty set is true: a request must name keys.
        "Null": {"dynamodb:LeadingKeys": "false"},
    }


def _history_of(parts: Parts, routes: Iterable[str]) -> iam.PolicyStatement:
    """A worker looks for an outcome whose answer was lost before it treats it as refused."""
    leading = _leading("StringLike", [f"{route}/*" for route in routes])
    return _statement("History", "dynamodb", READ, [parts.shared["history"].table_arn], leading)


def _rows(
    parts: Parts, sid: str, actions: Sequence[str], routes: Iterable[str] | None = None
) -> iam.PolicyStatement:
    return _statement(
        sid,
        "dynamodb",
        actions,
        [parts.rows[name].table_arn for name in (parts.rows if routes is None else routes)],
    )


def _due(parts: Parts) -> iam.PolicyStatement:
    return _statement(
        "Due",
        "dynamodb",
        ("Query",),
        [f"{table.table_arn}/index/due" for table in parts.rows.values()],
    )


def _stream(parts: Parts, route: str) -> str:
    arn = parts.rows[route].table_stream_arn
    assert arn is not None
    return arn


def _shared(parts: Parts, table: str, actions: Sequence[str]) -> iam.PolicyStatement:
    return _statement(table.title(), "dynamodb", actions, [parts.shared[table].table_arn])


def _retention(parts: Parts, routes: Iterable[str]) -> iam.PolicyStatement:
    """An offer lives as long as its queue keeps it: every process that opens the ledger reads the
    retention of its routes' queues."""
    wanted = set(routes)
    queues = [queue.queue_arn for (route, _), queue in parts.queues.items() if route in wanted]
    return _statement("Retention", "sqs", ("GetQueueUrl", "GetQueueAttributes"), queues)


def _quarantine(parts: Parts) -> iam.PolicyStatement:
    return _statement(
        "Quarantine", "sqs", ("SendMessage", "GetQueueUrl"), [parts.quarantine.queue_arn]
    )


def _blobs(
    parts: Parts, *actions: str, under: Sequence[str], sid: str = ""
) -> list[iam.PolicyStatement]:
    """Blobs with this name prefix. A reader also gets ListBucket: without it S3 answers "access
    denied" for a missing object. It cannot be limited to a part of the bucket: a request for one
    object names no prefix."""
    name = (
        sid
        or {"GetObject": "BlobsRead", "PutObject": "BlobsWrite", "DeleteObject": "BlobsRemove"}[
            actions[0]
        ]
    )
    found = [
        _statement(
            name,
            "s3",
            actions,
            [parts.objects(f"blobs/{one}" if one else "blobs") for one in under],
        )
    ]
    if actions[0] == "GetObject" and not sid:
        found.append(_statement("MissingIsTold", "s3", ("ListBucket",), [parts.bucket_arn]))
    return found


def use_key(parts: Parts, *actions: str) -> list[iam.PolicyStatement]:
    """The customer-managed key, if there is one: AWS checks the caller's right to use it."""
    return (
        []
        if parts.key is None
        else [_statement("Key", "kms", actions or USE_KEY, [parts.key.key_arn])]
    )


def _statement(
    sid: str,
    service: str,
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: dict[str, Any] | None = None,
) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=sid,
        actions=[f"{service}:{action}" for action in actions],
        resources=list(resources),
        conditions=conditions,
    )
