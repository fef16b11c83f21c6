"""Keys that are longer than DynamoDB takes: a long URL stands as its digest and is given back
whole; other long keys are refused."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from tests.aws.ledger.synchronous_ledger import Moment, SynchronousLedger

from milepost.blobs.memory import MemoryBlobs
from milepost.core.outcome import Done, Reject
from milepost.core.routes.plan import Plan
from milepost.core.routes.route import Route
from milepost.core.status import FAILED, LIVE, Status
from milepost.engine.context import Context
from milepost.engine.intake import submit
from milepost.ledgers.memory import MemoryLedger
from milepost.ledgers.sqlite import SqliteLedger
from milepost.ports.items import Query
from milepost_aws.ledger.names import due_shard
from milepost_aws.ledger.repair.quarantine import AwsQuarantine
from milepost_aws.ledger.tables.keys import Layout
from milepost_testing.clock import SeededChance
from milepost_testing.contract.world import World

URL = "https://a.example/" + "%C3%A4" * 155 + "?q=1#z"
FIELDS = ("messageId", "senderId", "timestamp", "targetUrl")


def messages(key: Any = FIELDS) -> Route:
    route = Route("messages", key=key)
    route.stage("send")(lambda item: Done())
    route.external("received")
    return route


def message(number: int = 1, url: str = URL, **more: Any) -> dict[str, Any]:
    return {
        "messageId": f"m{number}",
        "senderId": "s",
        "timestamp": "2026-01-01T00:00:00Z",
        "targetUrl": url,
        **more,
    }


class Mail(World):
    """Messages with URLs of over a thousand bytes."""

    def submit(self, *contents: dict[str, Any]) -> list[Any]:
        context = Context(
            self.ledger,
            {self.plan.name: self.plan},
            Moment(self.now),
            SeededChance(),
            MemoryBlobs(),
        )
        return submit(context, self.plan.name, contents)

    def key(self, number: int = 1, url: str = URL) -> str:
        return self.plan.route.key_of(message(number, url))


@pytest.fixture
def mail(ledger: SynchronousLedger) -> Mail:
    return Mail(ledger, messages())


def table(ledger: SynchronousLedger) -> list[dict[str, Any]]:
    return list(
        ledger.store.requests.scan(ledger.store.names.rows("messages"), ConsistentRead=True)
    )


def test_a_long_url_stands_as_its_digest_and_is_told_whole(
    ledger: SynchronousLedger, mail: Mail
) -> None:
    assert [receipt.answer for receipt in mail.submit(message(), message(2), message())] == [
        "new",
        "new",
        "known",
    ]
    key = mail.key()
    (row,) = [row for row in table(ledger) if row["pk"] == {"S": "m1#s"}]
    assert row["sk"] == {"S": f"2026-01-01T00:00:00Z#sha256:{sha256(URL.encode()).hexdigest()}"}
    assert row["fullKey"] == {"S": key}
    assert mail.row(key).key == key
    assert [receipt.answer for receipt in mail.submit(message(), message(more=1))] == [
        "known",
        "changed",
    ]


def test_it_travels_its_route_as_any_other(ledger: SynchronousLedger, mail: Mail) -> None:
    mail.submit(message())
    key = mail.key()
    item = mail.take(key, "send")
    assert mail.settle(item, Done({"at": "once"})) is None
    assert mail.row(key).status is Status.QUEUED
    (call,) = ledger.store.queues.receive(ledger.store.queues.url("messages", "received"), 10, 60)
    assert call.body["key"] == key
    confirmed = {name: {"S": value} for name, value in call.body["confirm"]["key"].items()}
    ledger.store.requests.call(
        "dynamodb",
        "update_item",
        TableName=call.body["confirm"]["table"],
        Key=confirmed,
        UpdateExpression=f"SET {call.body['confirm']['attribute']} = :yes",
        ExpressionAttributeValues={":yes": {"BOOL": True}},
    )
    ledger.follower.follow(mail.now)
    assert mail.row(key).status is Status.COMPLETED
    assert mail.reasons(key) == ["accepted", "advanced", "offered", "confirmed"]
    (known,) = ledger.peek("messages", [key])
    assert (known.key, known.status) == (key, Status.COMPLETED)
    mail.audit()


def test_what_is_found_by_an_index_has_its_whole_key(ledger: SynchronousLedger, mail: Mail) -> None:
    mail.submit(message(), message(2))
    mail.settle(mail.claim("send", 1).items[0], Reject("no"))
    due = Query(route="messages", statuses=LIVE, due_before=mail.now + 2**42)
    failed = Query(route="messages", statuses=FAILED)
    found = [item.key for query in (due, failed) for item in ledger.find(query).items]
    assert sorted(found) == [mail.key(1), mail.key(2)]
    assert ledger.next_due([mail.plan]) is not None


def test_a_long_url_is_found_by_how_it_begins(ledger: SynchronousLedger, mail: Mail) -> None:
    mail.submit(message(), message(url="https://b.example/"), message(2))
    found = [
        Query(route="messages", prefix=f"m1#s#2026-01-01T00:00:00Z{rest}")
        for rest in ("", "#", "#https://a.example/")
    ]
    assert [len(ledger.find(query).items) for query in found] == [2, 2, 1]


def test_a_failed_row_is_found_before_anybody_has_read_the_stream(
    ledger: SynchronousLedger, mail: Mail
) -> None:
    mail.submit(message())
    key = mail.key()
    mail.settle(mail.take(key, "send"), Reject("no"))
    (failed,) = table(ledger)
    assert failed["dueShard"]["S"] == due_shard("failed", key)


def test_a_key_of_many_long_parts_is_remembered_by_its_seal(
    ledger: SynchronousLedger, mail: Mail
) -> None:
    """A seal is named after the whole key, which is longer here than a table's key may be."""
    long = message(url="https://a.example/" + "ä" * 900, messageId="m" * 1000)
    mail.submit(long)
    key = mail.plan.route.key_of(long)
    assert len(key.encode()) > 2048
    mail.settle(mail.take(key, "send"), Reject("no"))
    assert ledger.store.seals("messages", [key])[key].key == key
    ledger.store.requests.call(
        "dynamodb",
        "delete_item",
        TableName=ledger.store.names.rows("messages"),
        Key=ledger.store.layout("messages").key_image(key),
    )
    ledger.follower.follow(mail.now)
    (known,) = ledger.peek("messages", [key])
    assert (known.key, known.sealed) == (key, True)
    assert ledger.sealed("messages", None, 1) == ([known], key)
    assert ledger.sealed("messages", key, 1) == ([], None)


# Rows that others put -----------------------------------------------------------------------------
@pytest.fixture
def put(ledger: SynchronousLedger, mail: Mail) -> Callable[..., None]:
    def put(sk: str, **more: Any) -> None:
        ledger.prepare(mail.plan)
        ledger.follower.load_route(mail.plan)
        row = {"pk": {"S": "m1#s"}, "sk": {"S": sk}, "input": {"S": '{"n":1}'}, **more}
        ledger.store.requests.call(
            "dynamodb", "put_item", TableName=ledger.store.names.rows("messages"), Item=row
        )
        ledger.follower.follow(mail.now)

    return put


def test_a_row_that_somebody_put_with_its_whole_key_is_taken_in(
    ledger: SynchronousLedger, mail: Mail, put: Callable[..., None]
) -> None:
    key = mail.key()
    put(_sk(mail), fullKey={"S": key})
    assert mail.row(key).status is Status.QUEUED
    mail.take(key, "send")


def _sk(mail: Mail) -> str:
    return str(Layout.of(mail.plan, "t").key_image(mail.key())["sk"]["S"])


@pytest.mark.parametrize(
    "whole", [None, "m1#s#2026-01-01T00:00:00Z#https://b.example/" + "b" * 1000]
)
def test_a_digest_without_the_key_that_it_stands_for_is_set_aside(
    ledger: SynchronousLedger, mail: Mail, put: Callable[..., None], whole: str | None
) -> None:
    put(_sk(mail), **({} if whole is None else {"fullKey": {"S": whole}}))
    (aside,), _ = ledger.quarantine.entries(10)
    assert "is missing or does not match the digest" in aside.reason
    assert "version" not in table(ledger)[0]


def test_a_long_part_that_stands_as_it_is_is_set_aside(
    ledger: SynchronousLedger, mail: Mail, put: Callable[..., None]
) -> None:
    put("2026-01-01T00:00:00Z#https://a.example/" + "x" * 950)
    (aside,), _ = ledger.quarantine.entries(10)
    assert "sha256:<hex>" in aside.reason
    (answer,) = AwsQuarantine(ledger.store, lambda: 0.0).replay(
        {"messages": mail.plan}, [aside.id], mail.now, by="ops", why="test"
    )
    assert not answer.done
    assert len(table(ledger)) == 1, "no ghost was made under another key"


def test_a_row_put_over_one_with_a_long_key_gives_everything_back(
    ledger: SynchronousLedger, mail: Mail, put: Callable[..., None]
) -> None:
    mail.submit(message())
    put(_sk(mail))
    key = mail.key()
    assert mail.row(key).version == 2
    assert mail.reasons(key) == ["accepted", "noted"]
    assert table(ledger)[0]["fullKey"] == {"S": key}


# Keys that cannot be ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("key", "content", "told"),
    [
        ("id", {"id": "ä" * 1024 + "x"}, None),
        ("id", {"id": "☃" * 1000}, "'id' of 3,000 bytes; DynamoDB accepts 2,048"),
        (
            ("id", "part"),
            {"id": "a", "part": "ä" * 600},
            "'part' of 1,200 bytes; DynamoDB accepts 1,024",
        ),
        (FIELDS, message(timestamp="t" * 1000), "'sk' of 1,072 bytes; DynamoDB accepts 1,024"),
        (FIELDS, message(messageId="☃" * 800), "'pk' of 2,402 bytes; DynamoDB accepts 2,048"),
    ],
)
def test_a_key_that_is_too_long_is_refused_as_malformed_and_the_others_are_taken_in(
    ledger: SynchronousLedger, key: Any, content: dict[str, Any], told: str | None
) -> None:
    mail = Mail(ledger, messages(key))
    good = {"id": "good", "part": "1", **message()}
    first, bad, last = mail.submit(good, content, {**good, "id": "other", "messageId": "other"})
    assert (first.answer, last.answer, bad.answer) == ("new", "new", "malformed")
    assert (told or "over 1,024 characters") in bad.error
    assert len(table(ledger)) == 2


def test_a_key_that_cannot_be_is_not_there(ledger: SynchronousLedger, mail: Mail) -> None:
    mail.submit(message())
    assert ledger.peek("messages", ["one part", "☃" * 2000]) == [None, None]
    assert ledger.get([("messages", "one part")]) == [None]


def test_the_embedded_ledgers_take_any_key(tmp_path: Path) -> None:
    plan = Plan(messages())
    for ledger in (MemoryLedger(), SqliteLedger.open(str(tmp_path / "ledger.db"))):
        assert ledger.invalid_keys(plan, ["☃" * 2000]) == {}
        ledger.close()
