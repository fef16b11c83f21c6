"""The one module here that knows where things are inside Milepost. When modules or classes move,
only this file changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec.structs import replace

import milepost as mp
import milepost.application as mpa
from milepost.blobs.memory import MemoryBlobs
from milepost.cli.commands import cli
from milepost.core import operators
from milepost.core.admission.breakers import BreakerRecord
from milepost.core.admission.controls import Hold, Limit
from milepost.core.change import Change
from milepost.core.confirmations import confirm
from milepost.core.decide import accept, decide, given_back, late, undecided
from milepost.core.due import Lease, look, offered
from milepost.core.events import cloud_event, event_id, events_of
from milepost.core.failures import group_of
from milepost.core.history import Attempt, Line, claim_digest, encode_line, link, origin
from milepost.core.item import Content, Failure, Item, Row, digest_of, work_id
from milepost.core.routes.plan import Plan
from milepost.core.values.json import canonical_json
from milepost.engine.alerts.record import AlertRecord, Trouble, after_look, envelope_of, seen
from milepost.engine.metrics import (
    MetricFigures,
    counted_families,
    ledger_families,
    process_families,
)
from milepost.evidence.heads import head_of
from milepost.evidence.merkle import leaf, root
from milepost.evidence.record import blob_name
from milepost.http.server.assembly import HttpServer
from milepost.ports import documents
from milepost.subscribers import CallSubscriber, LogSubscriber, WebhookSubscriber
from milepost.subscribers.email import Mail, MailAttachment
from milepost.subscribers.email.subscriber import words_of
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.offers import message_body, message_for
from milepost_aws.ledger.retention import seal_for, write_seals
from milepost_aws.ledger.store import AwsStore, StoreSettings
from milepost_aws.ledger.tables.attribute_rules import update_of
from milepost_aws.ledger.tables.conditional_write import put_of
from milepost_aws.ledger.tables.counters import RowChange
from milepost_aws.ledger.tables.create import make_common, make_route
from milepost_aws.ledger.tables.item_rows import attributes
from milepost_aws.ledger.tables.journal import JournalEntry
from milepost_aws.ledger.tables.values import Values
from milepost_aws.topic import Topic
from milepost_net import webhook_headers


@contextmanager
def served(ledger: mp.Milepost) -> Iterator[int]:
    """The HTTP API over an open ledger; the port that it listens on."""
    door = HttpServer(ledger.context, "127.0.0.1", 0)
    door.open()
    try:
        yield door.server.port
    finally:
        door.close()


def log_subscriber(stream: Any) -> Any:
    return LogSubscriber(stream)


def web_subscriber(
    url: str, name: str, secret: str, headers: dict[str, str], clock: Callable[[], float]
) -> Any:
    return WebhookSubscriber(
        url, name=name, secret=secret, headers=headers, allow_cidrs=["127.0.0.1/32"], clock=clock
    )


def topic_subscriber(arn: str, client: Any) -> Any:
    return Topic(arn, client=client)


def call_subscriber(function: Callable[[dict[str, Any]], object], name: str) -> Any:
    return CallSubscriber(function, name=name)


def plain(value: Any) -> Any:
    """A value that Milepost gave, as JSON; bytes in hex."""
    return _plain(msgspec.to_builtins(value, builtin_types=(bytes,)))


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {str(name): _plain(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    return value


def command_group() -> Any:
    """The click group with all commands."""
    return cli


def metric_families() -> list[dict[str, Any]]:
    """Every family of metrics: its name, type, labels and help."""
    with mp.open("memory:") as ledger:
        families = [
            *ledger_families(ledger.context),
            *counted_families(MetricFigures()),
            *process_families("VERSION"),
        ]
    return [
        {
            "name": family.name,
            "type": family.kind,
            "labels": list(family.labels),
            "help": family.help,
        }
        for family in families
    ]


def subscriber_classes() -> dict[str, Any]:
    """What users make subscribers with."""
    return {
        "call": CallSubscriber,
        "log": LogSubscriber,
        "webhook": WebhookSubscriber,
        "topic": Topic,
    }


def webhook_signature(secret: str, message_id: str, at: int, body: bytes) -> str:
    return webhook_headers(secret, message_id, body, at=at)["webhook-signature"]


# Events and evidence ------------------------------------------------------------------------------
NOW = 2_015_619_200_123
ATTEMPT = Attempt(
    2,
    "BUSY",
    "scale 7 is busy",
    {"scale": 7},
    12,
    503,
    1_500,
    1_000,
    500,
    NOW + 1_500,
    "Traceback …",
)


def line_of(reason: mp.Reason, **more: Any) -> Line:
    """A history line with every field."""
    return Line(
        version=3, at=NOW, reason=reason, stage="weigh", status=mp.Status.QUEUED, to="deliver", by="anna", since=NOW - 60_000, why="a reason",
        act="act-1", attempt=ATTEMPT, output="0a" * 32, offered="0b" * 16, note={"said": "note"}, claim="0c" * 6, **more,
    )  # fmt: skip


def event_of_every_kind() -> list[tuple[str, list[Any]]]:
    """For each reason of a line the events that it makes, as subscribers get them."""
    plan = Plan(golden_route())
    found = []
    for reason in mp.Reason:
        events = events_of(line_of(reason), "parcels", "p 1", "order-1", {"grams": 340})
        found.append((reason.value, [dict(cloud_event(event, plan)) for event in events]))
    return found


def alerts_of_every_kind() -> dict[str, Any]:
    """For each kind of trouble the notices of its beginning and its end, as subscribers get them,
    and the record that is stored."""
    rule = mpa.AlertRule(name="post", to=["log"], items="parcels", lane="carrier")
    failure = Trouble(
        "failures", "parcels", "send", "van", 1_000, "HTTP 500", "SERVER_ERROR", "0123456789", "P-1"
    )
    found: dict[str, Any] = {}
    for trouble in (
        failure,
        Trouble("breaker", "parcels", "send", "van", 1_000, "HTTP 500"),
        Trouble("pause", "parcels", "send", "", 1_000, "410"),
    ):
        raised = seen(None, trouble, rule, ["log"], 2_000)
        over = after_look(raised, rule, ["log"], 2_000_000, there=False)
        found[trouble.kind] = {
            "notices": [dict(envelope_of(over, notice)) for notice in over.notices],
            "record": msgspec.to_builtins(over),
        }
    return found


def mail_of_an_event() -> str:
    """The mail about an event, as a mail server gets it."""
    event = events_of(line_of(mp.Reason.REJECTED), "parcels", "p 1", "order-1")[0]
    words = words_of(cloud_event(event))
    mail = Mail(
        id=event.id,
        sender="Milepost <milepost@example.org>",
        to=["ops@example.org"],
        subject=words.subject,
        text=words.text,
        html=words.html,
        date=datetime.fromtimestamp(event.at / 1000, UTC),
        attachments=[MailAttachment("items.csv", b"id\r\np 1\r\n", "text/csv")],
    )
    return mail.as_bytes().decode("ascii").replace("\r\n", "\n")


def document_shapes() -> dict[str, Any]:
    """The control documents that processes share, by kind: fields, and the defaults of those that
    may be left out."""
    kinds = {
        documents.ROUTE: documents.RouteVersion, documents.HOLD: Hold, documents.LIMIT: Limit,
        documents.BREAKER: BreakerRecord,
        documents.PROCESS: documents.Process, documents.CURSOR: documents.Cursor, documents.PARKED: documents.Parked,
        documents.ACT: documents.Act, documents.LIST: documents.ListRecord, documents.MOVED: documents.Moved,
        documents.MOVING: documents.Moving, documents.BACK_FILL: documents.BackFill, documents.KEY: documents.Key,
        documents.SESSION: documents.Session, documents.ALERT: AlertRecord,
    }  # fmt: skip
    return {
        kind: [_field(field) for field in msgspec.structs.fields(struct)]
        for kind, struct in kinds.items()
    }


def _field(field: Any) -> str:
    if field.default is not msgspec.NODEFAULT:
        return f"{field.encode_name} = {field.default!r}"
    return (
        field.encode_name
        if field.default_factory is msgspec.NODEFAULT
        else f"{field.encode_name} = {field.default_factory()!r}"
    )


def digests() -> dict[str, Any]:
    """Ids and digests of fixed values. Partners, subscribers and auditors make some of these again
    by themselves."""
    content = {"id": "p1", "zahl": 1.5, "text": "naïve ☃", "list": [1, None, True]}
    lines = [line_of(reason) for reason in mp.Reason]
    bare = Line(1, NOW, mp.Reason.ACCEPTED, "weigh", mp.Status.PENDING)
    start = origin("parcels", "p1", digest_of(content))
    tree = root([leaf(encode_line(line)) for line in lines])
    head = head_of(
        "2033-11-14", tree, len(lines), 0, len(lines), None, None, {"parcels": len(lines)}
    )
    uncounted = head_of("2033-11-14", tree, len(lines), 0, len(lines), None, None, {})
    return {
        "canonical JSON": canonical_json(content).decode(),
        "content": digest_of(content).hex(),
        "line": encode_line(lines[0]).decode(),
        "line with a life": encode_line(line_of(mp.Reason.ACCEPTED, life=7)).decode(),
        "bare line": encode_line(bare).decode(),
        "origin of a chain": start.hex(),
        "origin of a later life": origin("parcels", "p1", digest_of(content), 7).hex(),
        "link of a chain": link(start, encode_line(bare)).hex(),
        "work id": work_id("parcels", "p1", "weigh", 1),
        "work id of a later life": work_id("parcels", "p1", "weigh", 2, 7),
        "event id": event_id("parcels", "p 1", 3, "advanced"),
        "event id of a later life": event_id("parcels", "p 1", 3, "advanced", 7),
        "claim": claim_digest("token"),
        "error group": group_of("weigh", "BUSY", "scale 7 is busy"),
        "evidence blob": blob_name("parcels", "p1"),
        "evidence blob of a later life": blob_name("parcels", "p1", 7),
        "stages": Plan(golden_route()).digest,
        "daily head": head,
        "daily head of an earlier Milepost": uncounted,
    }


# AWS: the pure encoders, and a stand-in that only writes down what is sent ------------------------
def golden_route(**more: Any) -> mp.Route:
    """A stage of ours, and one outside."""
    route = mp.Route("parcels", key="id", **more)
    weighing = route.stage(
        "weigh",
        lane=lambda content: str(content.get("depot", "")),
        checks=mp.Checks(overdue="1h", jitter=0),
        retry=mp.Backoff(attempts=2, base=60, jitter=0),
    )
    weighing(lambda item: mp.Done())
    route.external("deliver", resend_after="14d", overdue="30d", announce="It is delivered.")
    return route


class SentRequests:
    """In the place of the client for AWS: every request is written down, and answered with nothing,
    or as it must be."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, dict[str, Any]]] = []

    def clock(self) -> float:
        return 0.0

    def call(self, service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        if operation == "get_queue_url":
            return {"QueueUrl": f"https://sqs.example/{params['QueueName']}"}
        if operation == "get_queue_attributes":
            return {"Attributes": {"MessageRetentionPeriod": "1209600"}}
        if operation in ("get_item", "query"):
            return {"Items": []}
        self.sent.append((f"{service} {operation}", params))
        return {}

    def write_if(self, operation: str, /, **params: Any) -> bool:
        self.call("dynamodb", operation, **params)
        return True

    def conflict(self, operation: str, /, **params: Any) -> None:
        self.call("dynamodb", operation, **params, ReturnValuesOnConditionCheckFailure="ALL_OLD")

    def attempt(
        self, patience: Any, service: str, operation: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        self.call(service, operation, **params)
        return {"Successful": [{"Id": entry["Id"]} for entry in params["Entries"]]}

    def retry_budget(self) -> None: ...

    def each(self, jobs: Any) -> list[Any]:
        return [job() for job in jobs]

    def batch_write(self, table: str, images: Any = (), deletes: Any = ()) -> None:
        self.sent.append(
            (
                "dynamodb batch_write_item",
                {"TableName": table, "puts": list(images), "deletes": list(deletes)},
            )
        )

    def query(self, table: str, **params: Any) -> list[Any]:
        return []

    def taken(self) -> list[Any]:
        sent, self.sent = self.sent, []
        return [{"request": request, **plain(params)} for request, params in sent]


class AwsGolden:
    """One deployment in which nothing is stored: what would be written and sent can be looked
    at."""

    def __init__(self) -> None:
        self.requests = SentRequests()
        self.plan = Plan(golden_route(), grace_ms=600_000, offer_life_ms=600_000)
        self.store = AwsStore(
            self.requests, ResourceNames("golden"), MemoryBlobs(), StoreSettings()
        )  # type: ignore[arg-type]
        self.layout = self.store.load_route(self.plan)
        self.first = self.requests.taken()

    def tables(self) -> list[Any]:
        """The requests that make tables and queues; a route's key of one, two, four and three
        fields."""
        make_common(self.requests, self.store.names)  # type: ignore[arg-type]
        make_route(self.requests, self.store.names, self.plan)  # type: ignore[arg-type]
        for name, key in (
            ("pairs", ("batch", "number")),
            ("four", ("a", "b", "c", "d")),
            ("three", ("a", "b", "c")),
        ):
            route = mp.Route(name, key=key)
            route.external("deliver")
            make_route(self.requests, self.store.names, Plan(route))  # type: ignore[arg-type]
        return self.requests.taken()

    def life(self) -> Iterator[tuple[str, Change, Item]]:
        """The changes of one item's long life, each with the item as it is after it."""
        plan = self.plan
        given = {"id": "p1", "depot": "north", "grams": 340}
        first = accept(
            plan,
            "p1",
            given,
            NOW,
            correlation_id="order-1",
            digest=digest_of(given),
            list_id="list-1",
            by="golden",
        )
        item, now = Item(first.after, Content(given)), NOW
        yield "accepted", first, item

        def lease() -> Lease:
            return Lease("lease-1", "worker-1", now + 60_000)

        steps: list[tuple[str, Callable[[], Any]]] = [
            ("offered", lambda: offered(item.row, plan.by_name[item.stage], now)),
            ("claimed", lambda: look(item, plan, now, 0.0, lease(), called=True)),
            ("not yet", lambda: decide(item, mp.NotYet(after="1h", note="not brought"), plan, now, 0.0)),
            ("claimed again", lambda: look(item, plan, now + 3_600_000, 0.0, lease(), called=True)),
            ("failed", lambda: decide(item, mp.Retry("scale 7 is busy", category="BUSY", details={"scale": 7}, http_status=503, unknown=True), plan, now, 0.0, response_ms=12)),
            ("claimed after a failure", lambda: look(item, plan, now + 3_600_000, 0.0, lease())),
            ("given back", lambda: given_back(item.row, now, why="shutdown")),
            ("claimed once more", lambda: look(item, plan, now, 0.0, lease(), called=True)),
            ("undecided", lambda: undecided(item.row, mp.Done({"grams": 1}), now, by="old")),
            ("decided", lambda: decide(item, mp.Done({"grams": 341}, payload={"label": "fragile"}), plan, now, 0.0)),
            ("offered outside", lambda: offered(item.row, plan.by_name[item.stage], now)),
            ("resent", lambda: operators.resend(item, plan, now, by="anna", why="a reason")),
            ("handed over", lambda: confirm(item, "deliver", mp.HandedOver("2d", "asked"), plan, now, 0.0, by="depot")),
            ("confirmed", lambda: confirm(item, "deliver", mp.Done({"step": "front"}), plan, now, 0.0, by="depot")),
            ("run again", lambda: operators.rerun(item, plan, now, stage="deliver", by="anna", why="a reason")),
            ("rejected", lambda: confirm(item, "deliver", mp.Reject("no such street"), plan, now, 0.0, by="depot")),
            ("started again", lambda: operators.retry(item, plan, now, stage="weigh", by="anna", why="a reason", act="act-1")),
            ("answered early", lambda: confirm(item, "deliver", mp.Done(True), plan, now, 0.0, by="depot")),
            ("replaced", lambda: operators.replace(item, plan, now, content={"id": "p1", "depot": "south"}, digest=digest_of({"id": "p1", "depot": "south"}), old={"content": given}, by="anna", why="a reason")),
            ("set for later", lambda: operators.reschedule(item, plan, now, not_before=now + 86_400_000, by="anna", why="a reason")),
            ("late", lambda: late(item.row, mp.Done(), now, by="worker-0", lease="lease-0")),
            ("cancelled", lambda: operators.cancel(item, plan, now, by="anna", why="a reason")),
        ]  # fmt: skip
        for title, step in steps:
            now += 1_000
            made = step()
            assert isinstance(made, Change), (title, made)
            item = _after(item, made)
            yield title, made, item

    def writes(self) -> list[Any]:
        """What is written for each change of a life: the new row, then one conditional update for
        each change."""
        found = []
        for title, made, item in self.life():
            if made.before.version == 0:
                found.append(
                    {
                        "change": title,
                        "put": self._bare(
                            put_of(made, item.input, self.layout, self.store.values, "create-token")
                        ),
                    }
                )
            else:
                found.append(
                    {
                        "change": title,
                        **self._update(update_of(made, self.layout, self.store.values).params()),
                    }
                )
        return found

    def rows(self, items: list[Item]) -> dict[str, Any]:
        """The attributes of these items' rows, and of one whose fields are all set."""
        found = {
            f"{item.row.status.value} {item.key}": plain(attributes(item.row, self.layout))
            for item in items
        }
        found["every field"] = plain(attributes(_full(), self.layout))
        return found

    def trail(self) -> dict[str, str]:
        """A history line as it waits, packed, on its row."""
        body = encode_line(line_of(mp.Reason.RETRY))
        return {
            "packed": self.store.values.encode_line(b"\x07" * 32, body, "place")["B"].hex(),
            "body": body.decode(),
        }

    def unpacked(self, packed: str) -> tuple[str, str]:
        """The digest before a packed line, and the line."""
        previous, body = Values(MemoryBlobs()).decode_line({"B": bytes.fromhex(packed)})
        return previous.hex(), body.decode()

    def large(self) -> Any:
        """A value that is kept apart: what stands on the row, and the names of blobs."""
        return self.store.values.encode({"text": "x" * 5_000}, "parcels/place")

    def history(self) -> list[Any]:
        """The rows of history lines and the journal's block that lists them."""
        entries = [
            JournalEntry(
                "parcels",
                "p1",
                "order-1",
                1,
                b"\x01" * 32,
                encode_line(line_of(mp.Reason.ACCEPTED)),
            ),
            JournalEntry(
                "parcels",
                "p1",
                "p1",
                2,
                b"\x02" * 32,
                encode_line(line_of(mp.Reason.ADVANCED)),
                {"grams": 340},
                7,
            ),
            JournalEntry(
                "letters", "l1", "l1", 1, b"\x03" * 32, encode_line(line_of(mp.Reason.ACCEPTED))
            ),
        ]
        self.store.journal.append(entries)
        return self.requests.taken()

    def seals(self) -> list[Any]:
        full = replace(_full(), status=mp.Status.COMPLETED)
        bare = seal_for(self.store, replace(full, life=0, list_id=None, content_digest=None), 12)
        write_seals(self.store, [seal_for(self.store, full, 12), replace(bare, place=None)], NOW)
        return self.requests.taken()

    def counters(self) -> list[Any]:
        changes = [RowChange(made.before, made.after) for _, made, _ in self.life()]
        self.store.counters.add(changes[:6])
        return self.requests.taken()

    def documents(self) -> list[Any]:
        """A control document written for the first time, written again, and removed; and the layout
        of a route."""
        control = self.store.control
        control.write("hold", "parcels/weigh", {"at": NOW, "by": "anna", "reason": "a reason"})
        control.write(
            "hold", "parcels/weigh", {"at": NOW, "by": "anna", "reason": "another"}, expect=5
        )
        control.write("hold", "x" * 1_100, {"long": "name"}, expect=0)
        control.write("hold", "parcels/weigh", None, expect=6)
        control.write("hold", "parcels/weigh", None)
        return [*self.first, *self.requests.taken()]

    def messages(self) -> list[Any]:
        """SQS: calls for workers of ours, offers to stages outside in the usual and in their own
        words, and what is set aside."""
        states = {title: item for title, _, item in self.life()}
        ours, outside = states["offered"], states["offered outside"]
        own = replace(
            self.plan.by_name["deliver"],
            message=lambda offer: f"please deliver {offer['key']}",
            queue="https://sqs.example/depot",
        )
        store = self.store
        heavy = Item(outside.row, Content(None, {"deliver": "x" * 200_001}))
        outgoing = [
            message_for(store, ours, self.plan.by_name["weigh"]),
            message_for(store, ours, self.plan.by_name["weigh"], 90_000, ahead=True),
            message_for(store, outside, self.plan.by_name["deliver"]),
            message_for(store, outside, own),
            message_for(store, heavy, self.plan.by_name["deliver"]),
        ]
        assert store.queues.send(outgoing) == [None] * len(outgoing)
        store.queues.set_aside(
            "message", {"url": "https://sqs.example/q", "id": "m-1", "body": "?"}, "it is no JSON"
        )
        return [
            *self.requests.taken(),
            {"call with everything": message_body("parcels", "p1", "weigh", "north", 2, 7)},
        ]

    def _bare(self, image: dict[str, Any]) -> Any:
        """An image with its packed lines unpacked: how well they are packed depends on the library
        that does it."""
        return plain(
            {
                name: self._opened(value) if name == "trail" else value
                for name, value in image.items()
            }
        )

    def _opened(self, trail: dict[str, Any]) -> Any:
        lines = [self.store.values.decode_line(entry) for entry in trail["L"]]
        return {
            "L": [{"previous": previous.hex(), "body": body.decode()} for previous, body in lines]
        }

    def _update(self, params: dict[str, Any]) -> dict[str, Any]:
        """An update with names and values put in for their placeholders, one line for each part."""
        put_in = {
            **params["ExpressionAttributeNames"],
            **{
                name: self._shown(value)
                for name, value in params.get("ExpressionAttributeValues", {}).items()
            },
        }
        words = sorted(put_in, key=len, reverse=True)

        def shown(text: str) -> str:
            for word in words:
                text = text.replace(word, f"\0{words.index(word)}\0")
            for number, word in enumerate(words):
                text = text.replace(f"\0{number}\0", put_in[word])
            return text

        return {
            "key": plain(params["Key"]),
            "parts": sorted(shown(part) for part in _parts(params["UpdateExpression"])),
            "conditions": sorted(
                shown(part) for part in params["ConditionExpression"].split(" AND ")
            ),
            "others": {
                name: value
                for name, value in params.items()
                if name in ("TableName", "ReturnValuesOnConditionCheckFailure")
            },
        }

    def _shown(self, value: dict[str, Any]) -> str:
        if value.get("L") and "B" in value["L"][0]:
            value = self._opened(value)
        return msgspec.json.encode(plain(value), order="sorted").decode()


def _parts(expression: str) -> Iterator[str]:
    """The parts of an update expression, each with its verb."""
    verb, part, depth = "", "", 0
    for word in expression.split(" "):
        if word in ("SET", "REMOVE", "ADD", "DELETE"):
            if part:
                yield f"{verb}{part}"
            verb, part = word, ""
            continue
        depth += word.count("(") - word.count(")")
        if word.endswith(",") and depth == 0:
            yield f"{verb}{part} {word[:-1]}"
            part = ""
        else:
            part = f"{part} {word}"
    yield f"{verb}{part}"


def _after(item: Item, made: Change) -> Item:
    """The item as a ledger would hold it once the change is written."""
    content = Content(item.content.input, dict(item.content.payloads), dict(item.content.results))
    for put in made.puts:
        if put.kind == "input":
            content.input = put.value
        elif put.kind in ("payload", "result"):
            (content.payloads if put.kind == "payload" else content.results)[put.stage] = put.value
    return Item(made.after, content)


def _full() -> Row:
    """A row whose fields are all set."""
    error = Failure("BUSY", "scale 7 is busy", NOW, "group-1", {"scale": 7}, 503)
    return Row(
        route="parcels", key="p1", stage="weigh", status=mp.Status.PROCESSING, version=7, head=b"\x01" * 32, created_at=NOW - 5_000,
        updated_at=NOW, entered_at=NOW - 1_000, correlation_id="order-1", input_digest=b"\x02" * 32, lane="north", look_at=NOW + 60_000,
        overdue_at=NOW + 50_000, lease="lease-1", holder="worker-1", claimed_at=NOW - 500, attempts=1, total_attempts=2, looks=3, losses=4,
        round=5, pass_no=6, unknown=True, alone=True, handed_over=True, again=True, list_id="list-1", note="a note", error=error,
        not_before=NOW - 2_000, content_digest=b"\x03" * 32, settled="0c" * 6, life=8,
    )  # fmt: skip


def items_of(ledger: mp.Milepost, route: str, keys: list[str]) -> list[Item]:
    """Items as the ledger gives them."""
    return [
        item
        for item in ledger.context.ledger.get([(route, key) for key in keys])
        if isinstance(item, Item)
    ]
