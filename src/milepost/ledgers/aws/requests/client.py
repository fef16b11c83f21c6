"""The only place that calls boto3: one wish at a time, tried again with patience, its errors said in ours, every request counted."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, TypeVar, cast

from milepost.core.errors import ConfigMistake, LedgerBusy, LedgerError
from milepost.ledgers.aws.requests.deadline import CALL, Deadline
from milepost.ledgers.aws.requests.errors import PASSING, AwsRefused, ConditionFailed, Image, RowRefused, TransactionRefused, passing

__all__ = ["PASSING", "AwsRefused", "ConditionFailed", "Image", "Requests", "RetryBudget", "RowRefused", "TransactionRefused"]

T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
CONNECTIONS = 64
"""Connections that are kept to one service: enough for the pool's threads, the services of a process and the server's threads
together. One is opened only when it is needed."""
Timeouts = tuple[float, float]
"""How long one request may take to connect, and to answer, in seconds."""
USUAL: Timeouts = (3.0, 10.0)
LONG_POLL: Timeouts = (3.0, 25.0)
SHORT: tuple[Timeouts, ...] = ((1.0, 3.0), (0.5, 0.5))
"""For requests that are made shortly before their deadline."""
_WRITES = {"put_item", "update_item", "delete_item", "batch_write_item", "transact_write_items"}
_METERED = {*_WRITES, "get_item", "query", "scan", "batch_get_item", "transact_get_items"}


class RetryBudget:
    """How long one wish is tried again: pauses grow, with full jitter, and none reaches past the deadline."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._since = requests.clock()
        self._until = self._since + requests.deadline_s
        self._pauses = 0

    def pause(self, where: str, why: str, cause: Exception | None = None) -> None:
        """Wait a little before trying again; LedgerBusy when the time is up."""
        left = min(self._until - self._requests.clock(), self._requests.deadline.left())
        if left <= 0:
            took = self._requests.clock() - self._since
            raise LedgerBusy(
                f"{where}: {why}; given up after {self._pauses + 1} tries in {took:.3g} s. Whether the last of them"
                " was carried out is not known. Try again later; if it goes on, look at AWS's limits for it and at the network"
            ) from cause
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._pauses, 10))
        self._pauses += 1
        self._requests.sleep(min(left, self._requests.chance() * longest))


class Requests:
    """Requests to AWS in one region, by any number of threads; where stand-ins are meant, at one `endpoint`, but for the services
    that have one of their own in `endpoints`. `counts` has every attempt by (service, operation). With `measure`
    set, `units` has what DynamoDB says it charged, by (table, "read" | "write"); an index's share is under "table/index".
    `session` makes the clients, as boto3's own session does; one of boto3's is made on first use unless it is given."""

    def __init__(
        self,
        region: str,
        endpoint: str | None = None,
        *,
        endpoints: Mapping[str, str] | None = None,
        deadline_s: float = 30.0,
        width: int = 16,
        sleep: Callable[[float], object] = time.sleep,
        chance: Callable[[], float] = random.random,
        clock: Callable[[], float] = time.monotonic,
        deadline: Deadline = CALL,
        session: Any = None,
    ) -> None:
        try:
            from boto3.session import Session
        except ImportError:
            raise ConfigMistake("the AWS ledger needs boto3: pip install 'milepost[aws]'") from None
        self.region, self.endpoint, self.deadline_s, self.width = region, endpoint, deadline_s, width
        self.endpoints = dict(endpoints or {})
        self.sleep, self.chance, self.clock, self.deadline = sleep, chance, clock, deadline
        self.measure = False
        self.counts: Counter[tuple[str, str]] = Counter()
        self.units: Counter[tuple[str, str]] = Counter()
        self._new_session = Session
        self._session: Any = session
        self._clients: dict[tuple[str, Timeouts], Any] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._in_pool = threading.local()
        self._closed = False

    def client(self, service: str, timeouts: Timeouts = USUAL) -> Any:
        """boto3's client for the service, made on first use. It never tries again by itself: that is counted and timed here."""
        made = self._clients.get((service, timeouts))
        if made is None:
            from botocore.config import Config

            # Making clients is not safe in several threads at once; using them is.
            with self._lock:
                self._check_open()
                made = self._clients.get((service, timeouts))
                if made is None:
                    config = Config(
                        retries={"total_max_attempts": 1, "mode": "standard"},
                        connect_timeout=timeouts[0],
                        read_timeout=timeouts[1],
                        max_pool_connections=max(CONNECTIONS, 2 * self.width),
                        # Some stand-ins name shards more shortly than AWS does, and boto3 would refuse to ask for one of those.
                        parameter_validation=service != "dynamodbstreams",
                    )
                    self._session = self._session or self._new_session(region_name=self.region)
                    made = self._session.client(service, endpoint_url=self._at(service), config=config)
                    if made.meta.service_model.resolved_protocol == "json":
                        made.meta.events.register("before-parse", _check_whole)
                    self._clients[service, timeouts] = made
        return made

    def patience(self) -> RetryBudget:
        """The deadline for one wish that takes several requests."""
        return RetryBudget(self)

    def call(self, service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        """One request, tried again until the deadline while what stands in its way is passing; see the errors of this module."""
        return self.attempt(self.patience(), service, operation, params)

    def attempt(self, patience: RetryBudget, service: str, operation: str, params: dict[str, Any]) -> dict[str, Any]:
        """`call`, within a deadline that several requests share."""
        if operation in _METERED and self.measure:
            params = {"ReturnConsumedCapacity": "INDEXES", **params}
        if operation == "transact_write_items" and "ClientRequestToken" not in params:
            # One token for all attempts: a repeat after a lost answer is then known to DynamoDB, and not done twice.
            params = {"ClientRequestToken": uuid.uuid4().hex, **params}
        while True:
            timeouts = self._timeouts(service, operation, params)
            with self._lock:
                self.counts[service, operation] += 1
            try:
                # The usual ones are not named: whoever watches the clients in a test need not know of others.
                client = self.client(service) if timeouts == USUAL else self.client(service, timeouts)
                answer: dict[str, Any] = getattr(client, operation)(**params)
            except Exception as error:
                where = self.where(service, operation, params)
                patience.pause(where, passing(error, where), error)
            else:
                if "ConsumedCapacity" in answer:
                    self._meter(operation, answer["ConsumedCapacity"])
                return answer

    def _timeouts(self, service: str, operation: str, params: dict[str, Any]) -> Timeouts:
        """The longest timeouts that still end before the deadline. Raises LedgerBusy where there is no time for a request."""
        left = self.deadline.left()
        # Shorter than a request may take, so that a queue with nothing in it is no lost answer.
        wanted = LONG_POLL if params.get("WaitTimeSeconds", 0) > USUAL[1] / 2 else USUAL
        for timeouts in (wanted, *SHORT):
            if sum(timeouts) <= left:
                return timeouts
        raise LedgerBusy(f"{self.where(service, operation, params)}: not tried, since the function's time is nearly over")

    def where(self, service: str, operation: str, params: dict[str, Any]) -> str:
        """What a request is about, for messages: 'dynamodb update_item of orders in eu-central-1'."""
        named = [str(params[name]) for name in ("TableName", "QueueUrl", "QueueName", "TopicArn", "StreamArn", "Bucket") if name in params]
        named += params.get("RequestItems", ())
        actions = [action for one in params.get("TransactItems", ()) for action in one.values()]
        named += sorted({action["TableName"] for action in actions})
        return f"{service} {operation}{' of ' if named else ''}{', '.join(named)} in {self._at(service) or self.region}"

    def each(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """All answers, in order, from jobs done side by side. The first error is raised, after all jobs have ended."""
        # A job that asks for more jobs does them itself: were they to wait for its own pool, all could wait for ever.
        if len(jobs) < 2 or getattr(self._in_pool, "here", False):
            return _all(_ended(job) for job in jobs)
        with self._lock:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self.width, "milepost-aws", setattr, (self._in_pool, "here", True))
            futures = [self._pool.submit(_ended, job) for job in jobs]
        try:
            wait(futures)
        finally:
            # Only an interrupt gets here early: what has not begun is left undone.
            for future in futures:
                future.cancel()
        return _all(future.result() for future in futures)

    def batch_get(self, table: str, keys: Iterable[Image], *, consistent: bool = True) -> list[Image]:
        """The rows that are there, in any order; a key asked for twice is answered once."""
        unique = list({repr(sorted(key.items())): key for key in keys}.values())
        chunks = [unique[start : start + 100] for start in range(0, len(unique), 100)]

        def get(chunk: list[Image]) -> list[Image]:
            rows: list[Image] = []
            patience = self.patience()
            asked: dict[str, Any] = {table: {"Keys": chunk, "ConsistentRead": consistent}}
            while True:
                answer = self.attempt(patience, "dynamodb", "batch_get_item", {"RequestItems": asked})
                rows += answer.get("Responses", {}).get(table, ())
                asked = answer.get("UnprocessedKeys") or {}
                if not asked:
                    return rows
                patience.pause(f"dynamodb batch_get_item of {table}", f"{len(asked[table]['Keys'])} keys are left unread")

        return [row for rows in self.each([partial(get, chunk) for chunk in chunks]) for row in rows]

    def batch_write(self, table: str, puts: Sequence[Image] = (), deletes: Sequence[Image] = ()) -> None:
        """Write and delete all of them, in any order and without conditions. Where one is refused for what it is, the others
        are written all the same, and then the refusal is raised."""
        wishes: list[dict[str, Any]] = [{"PutRequest": {"Item": image}} for image in puts]
        wishes += [{"DeleteRequest": {"Key": key}} for key in deletes]
        chunks = [wishes[start : start + 25] for start in range(0, len(wishes), 25)]
        self.each([partial(self._write, table, chunk) for chunk in chunks])

    def _write(self, table: str, wishes: list[dict[str, Any]], patience: RetryBudget | None = None) -> None:
        patience = patience or self.patience()
        while wishes:
            try:
                answer = self.attempt(patience, "dynamodb", "batch_write_item", {"RequestItems": {table: wishes}})
            except AwsRefused as refusal:
                # DynamoDB refuses all for one that is too large or malformed, or for one key named twice: halve until it stands alone.
                if refusal.code not in ("ValidationException", "ParamValidationError") or len(wishes) == 1:
                    raise
                half = len(wishes) // 2
                _all(_ended(partial(self._write, table, part, patience)) for part in (wishes[:half], wishes[half:]))
                return
            wishes = (answer.get("UnprocessedItems") or {}).get(table, [])
            if wishes:
                patience.pause(f"dynamodb batch_write_item of {table}", f"{len(wishes)} writes are left undone")

    def query(self, table: str, **params: Any) -> Iterator[Image]:
        """All rows that a query finds, page by page as they are wanted."""
        return self._pages("query", {"TableName": table, **params})

    def scan(self, table: str, **params: Any) -> Iterator[Image]:
        """All rows of a table or index, page by page as they are wanted."""
        return self._pages("scan", {"TableName": table, **params})

    def _pages(self, operation: str, params: dict[str, Any]) -> Iterator[Image]:
        while True:
            answer = self.call("dynamodb", operation, **params)
            yield from answer.get("Items", ())
            if not answer.get("LastEvaluatedKey"):
                return
            params = {**params, "ExclusiveStartKey": answer["LastEvaluatedKey"]}

    def close(self) -> None:
        """Wait for jobs under way, end the threads and close the connections. No request can be made afterwards."""
        with self._lock:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        with self._lock:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    def _at(self, service: str) -> str | None:
        return self.endpoints.get(service, self.endpoint)

    def _check_open(self) -> None:
        if self._closed:
            raise LedgerError("the ledger is closed; open it again to use it")

    def _meter(self, operation: str, consumed: Any) -> None:
        kind = "write" if operation in _WRITES else "read"
        with self._lock:
            for told in consumed if isinstance(consumed, list) else [consumed]:
                table = told.get("TableName", "")
                indexes = {**told.get("GlobalSecondaryIndexes", {}), **told.get("LocalSecondaryIndexes", {})}
                for index, part in indexes.items():
                    self.units[f"{table}/{index}", kind] += part["CapacityUnits"]
                # The total holds the indexes' shares too.
                self.units[table, kind] += told.get("CapacityUnits", 0) - sum(part["CapacityUnits"] for part in indexes.values())


def _check_whole(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """boto3 takes a torn body, or a page from some proxy, for an empty answer: the row would seem not to be there."""
    if response_dict["status_code"] < 300 and operation_model.output_shape and not response_dict["body"].rstrip().endswith(b"}"):
        from botocore.parsers import ResponseParserError

        raise ResponseParserError(f"the answer is not JSON: {response_dict['body'][:100]!r}")


def _ended(job: Callable[[], T]) -> tuple[T, Exception | None]:
    try:
        return job(), None
    except Exception as error:
        return cast(T, None), error


def _all(ended: Iterable[tuple[T, Exception | None]]) -> list[T]:
    """All answers; or the first error, once every job has ended."""
    outcomes = list(ended)
    for _, error in outcomes:
        if error is not None:
            raise error
    return [answer for answer, _ in outcomes]
