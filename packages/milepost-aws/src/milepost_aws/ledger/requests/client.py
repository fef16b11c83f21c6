"""AWS client: the only code that calls boto3, with retries under a deadline, translated errors and
a count of all requests."""

from __future__ import annotations

import math
import random
import re
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, TypeVar, cast

from milepost.core.errors import LedgerBusy, LedgerError, LedgerMissing, LedgerReadOnly
from milepost_aws.ledger.requests.answer_clock import AnswerDates


# Deadline -----------------------------------------------------------------------------------------
class Deadline:
    """The deadline of the present work, shared by all threads that make requests for it;
    optional."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at = math.inf

    def left(self) -> float:
        """Seconds until the deadline; infinite if there is none."""
        return self._ends_at - self._clock()

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """Set the deadline in so many seconds; within another deadline the earlier one applies."""
        before = self._ends_at
        self._ends_at = min(before, self._clock() + seconds)
        try:
            yield
        finally:
            self._ends_at = before


CALL = Deadline()
"""The deadline of this process: a Lambda container handles one call at a time and sets it from that
call's remaining time."""


# Errors -------------------------------------------------------------------------------------------
Image = dict[str, dict[str, Any]]
"""A row in DynamoDB's form: attribute values by name, such as {"doi": {"S": "10.1/x"}}."""

TEMPORARY = {
    *(
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "Throttled",
        "RequestThrottled",
        "RequestThrottledException",
    ),
    *(
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "ThrottlingError",
        "RequestLimitExceeded",
    ),
    *(
        "TooManyRequestsException",
        "LimitExceededException",
        "BandwidthLimitExceeded",
        "SlowDown",
        "PriorRequestNotComplete",
    ),
    *(
        "OverLimit",
        "AWS.SimpleQueueService.OverLimit",
        "KmsThrottled",
        "KMSThrottling",
        "KMSThrottlingException",
    ),
    *(
        "InternalServerError",
        "InternalError",
        "InternalFailure",
        "ServiceUnavailable",
        "RequestTimeout",
        "RequestTimeoutException",
    ),
    *(
        "TransactionConflict",
        "TransactionConflictException",
        "TransactionInProgressException",
        "ReplicatedWriteConflictException",
    ),
}
"""Temporary error codes: the same request may succeed a moment later."""
_MISSING = {
    *("ResourceNotFoundException", "TableNotFoundException", "NotFound", "NotFoundException"),
    *("QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue"),
}
_DENIED = {
    "AccessDenied",
    "AccessDeniedException",
    "AuthorizationError",
    "KMS.AccessDeniedException",
    "KMSAccessDenied",
}
_BAD_CREDENTIALS = {
    *(
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
    ),
    *(
        "ExpiredToken",
        "ExpiredTokenException",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
    ),
    *("IncompleteSignature", "IncompleteSignatureException", "InvalidAccessKeyId"),
}

_ONE_ROW = ("update_item", "put_item")
_WRONG_KEY = "key element does not match the schema"
"""The table has another key than expected, so no row can be written."""
_NO_INDEX = "The table does not have the specified index"


class AwsRefused(LedgerError):
    """AWS refused a request permanently; `code` is its error code."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


class RowRefused(AwsRefused):
    """AWS refused to write one row permanently: it is too large or has an invalid value. Other rows
    can be written. `refused_rows` says what happens then."""


class ConditionFailed(LedgerError):
    """The condition of a write failed. `image` is the present row, if requested and existing (see
    `Requests.conflict`)."""

    def __init__(
        self, image: Image | None, message: str = "the row is not as the write expected"
    ) -> None:
        super().__init__(message)
        self.image = image


class TransactionRefused(LedgerError):
    """A transaction was refused because of its conditions. `reasons` has one entry per action, in
    order: its Code ("None" if there was no problem) and, if requested, the row as Item."""

    def __init__(
        self,
        reasons: list[dict[str, Any]],
        message: str = "a row is not as the transaction expected",
    ) -> None:
        super().__init__(message)
        self.reasons = reasons


def temporary_reason(error: Exception, where: str) -> str:
    """Why a request failed, if the error is temporary; otherwise raises the translated error."""
    from botocore import exceptions as known
    from botocore.parsers import ResponseParserError

    if isinstance(error, known.ClientError):
        return _translated(error, error.response, where)
    if isinstance(
        error,
        (
            known.HTTPClientError,
            known.ConnectionError,
            known.IncompleteReadError,
            ResponseParserError,
        ),
    ):
        return f"no usable answer ({error})"
    if isinstance(error, (known.NoRegionError, known.InvalidRegionError)):
        raise LedgerError(
            f"{where}: {error}; name the region in the ledger's address: dynamodb://REGION/PREFIX"
        ) from error
    no_credentials = (
        known.NoCredentialsError,
        known.PartialCredentialsError,
        known.CredentialRetrievalError,
        known.ProfileNotFound,
    )
    if isinstance(error, (*no_credentials, known.SSOError, known.TokenRetrievalError)):
        raise _bad_credentials(where, str(error)) from error
    if isinstance(error, known.BotoCoreError):
        one_row = isinstance(error, known.ParamValidationError) and any(
            operation in where for operation in _ONE_ROW
        )
        raise (RowRefused if one_row else AwsRefused)(
            f"{where}: {error}", type(error).__name__
        ) from error
    raise error


def _translated(error: Exception, response: dict[str, Any], where: str) -> str:
    code, message = (
        str(response.get("Error", {}).get("Code", "")),
        response.get("Error", {}).get("Message", ""),
    )
    why = f"{code}: {message}" if message else code
    if code == "ConditionalCheckFailedException":
        raise ConditionFailed(
            response.get("Item"), f"{where}: the row is not in the state that the write requires"
        ) from error
    if code == "TransactionCanceledException":
        reasons = response.get("CancellationReasons", [])
        codes = {reason.get("Code", "None") for reason in reasons} - {"None"}
        if codes and codes <= TEMPORARY:
            return why
        if codes and codes - TEMPORARY <= {"ConditionalCheckFailed"}:
            raise TransactionRefused(reasons, f"{where}: {message}") from error
    status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in TEMPORARY or status == 429 or status >= 500:
        return why
    if code in _MISSING:
        raise LedgerMissing(
            f"{where}: not found ({why}); check the region and the prefix in dynamodb://REGION/PREFIX, the account, and whether"
            " its tables and queues were created"
        ) from error
    if code == "ValidationException" and message.startswith(_NO_INDEX):
        raise LedgerError(
            f"{where}: the table has no index {message.removeprefix(_NO_INDEX).strip(': ')!r}, which finds due items; add it as the"
            " stack in infra/ does: a global secondary index of dueShard and dueAt, both text, with the keys only (KEYS_ONLY)"
        ) from error
    if code in _DENIED:
        raise LedgerReadOnly(
            f"{where}: this role has no permission ({why}); add the action to its policy"
        ) from error
    if code in _BAD_CREDENTIALS:
        raise _bad_credentials(where, why) from error
    if (
        code == "ValidationException"
        and any(operation in where for operation in _ONE_ROW)
        and _WRONG_KEY not in message
    ):
        raise RowRefused(f"{where}: {why}", code) from error
    raise AwsRefused(f"{where}: {why}", code) from error


def _bad_credentials(where: str, why: str) -> LedgerError:
    return LedgerError(
        f"{where}: AWS does not accept the credentials ({why}); log in again, or set AWS_PROFILE or AWS_ACCESS_KEY_ID"
        " and AWS_SECRET_ACCESS_KEY"
    )


# Requests -----------------------------------------------------------------------------------------
def expressions(
    values: Mapping[str, Any] | None = None, short: Mapping[str, str] | None = None, /, **texts: str
) -> dict[str, Any]:
    """Parameters of a request with expressions, such as ConditionExpression="#head = :head":
    `#head` is the attribute of that name, which may be a reserved word, and `:head` is the value of
    that name. `short`: attributes with another name than in the expressions."""
    names = sorted({name for text in texts.values() for name in re.findall(r"#(\w+)", text)})
    params: dict[str, Any] = {
        **texts,
        "ExpressionAttributeNames": {f"#{name}": (short or {}).get(name, name) for name in names},
    }
    if values:
        params["ExpressionAttributeValues"] = {f":{name}": value for name, value in values.items()}
    return params


def key_condition(text: str, **values: str) -> dict[str, Any]:
    """Parameters of a query by a condition on the key; all values are text."""
    return expressions(
        {name: {"S": value} for name, value in values.items()}, KeyConditionExpression=text
    )


T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
CONNECTIONS = 64
"""Connection pool size per service: enough for the threads of the pool, the services and the server
together. Connections are opened on demand."""
Timeouts = tuple[float, float]
"""Connect and read timeout of one request, in seconds."""
USUAL: Timeouts = (3.0, 10.0)
LONG_POLL: Timeouts = (3.0, 25.0)
SHORT: tuple[Timeouts, ...] = ((1.0, 3.0), (0.5, 0.5))
"""For requests shortly before their deadline."""


class RetryBudget:
    """Time budget for retries of one operation: pauses grow, with full jitter, and end before the
    deadline."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._since = requests.clock()
        self._until = self._since + requests.deadline_s
        self._pauses = 0

    def pause(self, where: str, why: str, cause: Exception | None = None) -> None:
        """Wait before the next try; LedgerBusy when the budget is used up."""
        left = min(self._until - self._requests.clock(), self._requests.deadline.left())
        if left <= 0:
            took = self._requests.clock() - self._since
            raise LedgerBusy(
                f"{where}: {why}; gave up after {self._pauses + 1} tries in {took:.3g} s. The last one may have been carried out."
                " Try again later; if this continues, check the AWS service quotas and the network"
            ) from cause
        longest = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(self._pauses, 10))
        self._pauses += 1
        self._requests.sleep(min(left, self._requests.chance() * longest))


class Requests:
    """Requests to AWS in one region; thread-safe. For stand-ins, `endpoint` serves all services
    except those in `endpoints`. `counts` has every try by (service, operation). `session` creates
    the clients; by default a boto3 session, created on first use."""

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
        from boto3.session import Session

        self.region, self.endpoint, self.deadline_s, self.width = (
            region,
            endpoint,
            deadline_s,
            width,
        )
        self.endpoints = dict(endpoints or {})
        self.sleep, self.chance, self.clock, self.deadline = sleep, chance, clock, deadline
        self.counts: Counter[tuple[str, str]] = Counter()
        self.dates = AnswerDates()
        self._new_session = Session
        self._session: Any = session
        self._clients: dict[tuple[str, Timeouts], Any] = {}
        self._lock = threading.Lock()
        self._pool: ThreadPoolExecutor | None = None
        self._in_pool = threading.local()
        self._closed = False

    def client(self, service: str, timeouts: Timeouts = USUAL) -> Any:
        """boto3's client for the service, created on first use. It never retries by itself: retries
        are counted and timed here."""
        made = self._clients.get((service, timeouts))
        if made is None:
            from botocore.config import Config

            # boto3 clients may be used, but not created, in several threads at once.
            with self._lock:
                self._check_open()
                made = self._clients.get((service, timeouts))
                if made is None:
                    config = Config(
                        retries={"total_max_attempts": 1, "mode": "standard"},
                        connect_timeout=timeouts[0],
                        read_timeout=timeouts[1],
                        max_pool_connections=max(CONNECTIONS, 2 * self.width),
                        # Some stand-ins have shorter shard ids than AWS, and boto3 would refuse
                        # such a parameter.
                        parameter_validation=service != "dynamodbstreams",
                    )
                    self._session = self._session or self._new_session(region_name=self.region)
                    made = self._session.client(
                        service, endpoint_url=self._at(service), config=config
                    )
                    if made.meta.service_model.resolved_protocol == "json":
                        made.meta.events.register("before-parse", _check_whole)
                    self._clients[service, timeouts] = made
        return made

    def retry_budget(self) -> RetryBudget:
        """The retry budget of one operation that takes several requests."""
        return RetryBudget(self)

    def call(self, service: str, operation: str, /, **params: Any) -> dict[str, Any]:
        """One request, retried until the deadline while its errors are temporary; see `errors`."""
        return self.attempt(self.retry_budget(), service, operation, params)

    def write_if(self, operation: str, /, **params: Any) -> bool:
        """One conditional write to DynamoDB; False: its condition does not hold."""
        try:
            self.call("dynamodb", operation, **params)
        except ConditionFailed:
            return False
        return True

    def conflict(self, operation: str, /, **params: Any) -> Image | None:
        """One conditional write to DynamoDB. None: it was written; else the present row, empty if
        there is none. After a lost answer the row may be the result of this same write: the caller
        must look for its token in the row."""
        try:
            self.call(
                "dynamodb",
                operation,
                **{**params, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"},
            )
        except ConditionFailed as failed:
            return failed.image or {}
        return None

    def attempt(
        self, budget: RetryBudget, service: str, operation: str, params: dict[str, Any]
    ) -> dict[str, Any]:
        """`call`, within a retry budget shared by several requests."""
        if operation == "transact_write_items" and "ClientRequestToken" not in params:
            # One token for all tries: DynamoDB then recognises a repeat after a lost answer and
            # does not apply it twice.
            params = {"ClientRequestToken": uuid.uuid4().hex, **params}
        while True:
            timeouts = self._timeouts(service, operation, params)
            try:
                return self._send(service, operation, params, timeouts)
            except Exception as error:
                where = self.where(service, operation, params)
                budget.pause(where, temporary_reason(error, where), error)

    def ask(self, service: str, operation: str, /, **params: Any) -> None:
        """One request for the date of its answer, whatever the answer is; tried once, and not
        waited for long."""
        with suppress(Exception):
            self._send(service, operation, params, SHORT[0])

    def _send(
        self, service: str, operation: str, params: dict[str, Any], timeouts: Timeouts
    ) -> dict[str, Any]:
        """One try of a request. The date of its answer, or of an error's, is noted."""
        with self._lock:
            self.counts[service, operation] += 1
        # The usual timeouts are not passed, so that a test that replaces `client` need not know
        # others.
        client = self.client(service) if timeouts == USUAL else self.client(service, timeouts)
        sent = self.clock()
        try:
            answer: dict[str, Any] = getattr(client, operation)(**params)
        except Exception as error:
            response = getattr(error, "response", None)
            self.dates.note(response if isinstance(response, dict) else {}, sent, self.clock())
            raise
        self.dates.note(answer, sent, self.clock())
        return answer

    def _timeouts(self, service: str, operation: str, params: dict[str, Any]) -> Timeouts:
        """The longest timeouts that end before the deadline. Raises LedgerBusy where there is no
        time for a request."""
        left = self.deadline.left()
        # Shorter than a request may take, so that a long poll of an empty queue is no lost answer.
        wanted = LONG_POLL if params.get("WaitTimeSeconds", 0) > USUAL[1] / 2 else USUAL
        for timeouts in (wanted, *SHORT):
            if sum(timeouts) <= left:
                return timeouts
        raise LedgerBusy(
            f"{self.where(service, operation, params)}: not sent, because the function call is about to time out"
        )

    def where(self, service: str, operation: str, params: dict[str, Any]) -> str:
        """Description of a request for messages: 'dynamodb update_item of orders in
        eu-central-1'."""
        named = [
            str(params[name])
            for name in ("TableName", "QueueUrl", "QueueName", "TopicArn", "StreamArn", "Bucket")
            if name in params
        ]
        named += params.get("RequestItems", ())
        actions = [action for one in params.get("TransactItems", ()) for action in one.values()]
        named += sorted({action["TableName"] for action in actions})
        return f"{service} {operation}{' of ' if named else ''}{', '.join(named)} in {self._at(service) or self.region}"

    def each(self, jobs: Sequence[Callable[[], T]]) -> list[T]:
        """Run jobs in parallel and return their results in order. The first error is raised after
        all jobs have ended."""
        # A job that starts more jobs runs them itself: waiting for its own pool could block for
        # ever.
        if len(jobs) < 2 or getattr(self._in_pool, "here", False):
            return _results(_outcome_of(job) for job in jobs)
        with self._lock:
            self._check_open()
            if self._pool is None:
                self._pool = ThreadPoolExecutor(
                    self.width, "milepost-aws", setattr, (self._in_pool, "here", True)
                )
            futures = [self._pool.submit(_outcome_of, job) for job in jobs]
        try:
            wait(futures)
        finally:
            # Only an interrupt gets here early: jobs that have not started are dropped.
            for future in futures:
                future.cancel()
        return _results(future.result() for future in futures)

    def batch_get(self, table: str, keys: Iterable[Image]) -> list[Image]:
        """The existing rows, read consistently, in any order; a key given twice is answered
        once."""
        unique = list({repr(sorted(key.items())): key for key in keys}.values())
        chunks = [unique[start : start + 100] for start in range(0, len(unique), 100)]

        def get(chunk: list[Image]) -> list[Image]:
            rows: list[Image] = []
            budget = self.retry_budget()
            unread: dict[str, Any] = {table: {"Keys": chunk, "ConsistentRead": True}}
            while True:
                answer = self.attempt(
                    budget, "dynamodb", "batch_get_item", {"RequestItems": unread}
                )
                rows += answer.get("Responses", {}).get(table, ())
                unread = answer.get("UnprocessedKeys") or {}
                if not unread:
                    return rows
                budget.pause(
                    f"dynamodb batch_get_item of {table}",
                    f"{len(unread[table]['Keys'])} keys are still unread",
                )

        return [
            row for rows in self.each([partial(get, chunk) for chunk in chunks]) for row in rows
        ]

    def batch_write(
        self, table: str, puts: Sequence[Image] = (), deletes: Sequence[Image] = ()
    ) -> None:
        """Write and delete all of them, in any order and without conditions. If one is refused for
        its content, the others are still written, and then the refusal is raised."""
        writes: list[dict[str, Any]] = [{"PutRequest": {"Item": image}} for image in puts]
        writes += [{"DeleteRequest": {"Key": key}} for key in deletes]
        chunks = [writes[start : start + 25] for start in range(0, len(writes), 25)]
        self.each([partial(self._write, table, chunk) for chunk in chunks])

    def _write(
        self, table: str, writes: list[dict[str, Any]], budget: RetryBudget | None = None
    ) -> None:
        budget = budget or self.retry_budget()
        while writes:
            try:
                answer = self.attempt(
                    budget, "dynamodb", "batch_write_item", {"RequestItems": {table: writes}}
                )
            except AwsRefused as refusal:
                # DynamoDB refuses the whole batch for one entry that is too large, malformed or
                # duplicate: halve until that one is alone.
                if (
                    refusal.code not in ("ValidationException", "ParamValidationError")
                    or len(writes) == 1
                ):
                    raise
                half = len(writes) // 2
                _results(
                    _outcome_of(partial(self._write, table, part, budget))
                    for part in (writes[:half], writes[half:])
                )
                return
            writes = (answer.get("UnprocessedItems") or {}).get(table, [])
            if writes:
                budget.pause(
                    f"dynamodb batch_write_item of {table}", f"{len(writes)} writes are still open"
                )

    def query(self, table: str, start: Image | None = None, **params: Any) -> Iterator[Image]:
        """All rows that a query finds, or those after the key `start`; pages are read on demand."""
        return (
            row
            for page in self._pages("query", table, start, params)
            for row in page.get("Items", ())
        )

    def count(self, table: str, **params: Any) -> int:
        """Number of rows that a query finds."""
        return sum(
            int(page["Count"])
            for page in self._pages("query", table, None, {**params, "Select": "COUNT"})
        )

    def scan(self, table: str, start: Image | None = None, **params: Any) -> Iterator[Image]:
        """All rows of a table or index, or those after the key `start`; pages are read on
        demand."""
        return (
            row
            for page in self._pages("scan", table, start, params)
            for row in page.get("Items", ())
        )

    def page(
        self, operation: str, table: str, start: Image | None, **params: Any
    ) -> dict[str, Any]:
        """One page of a query or a scan, after the key `start`."""
        return self.call(
            "dynamodb",
            operation,
            TableName=table,
            **params,
            **({} if start is None else {"ExclusiveStartKey": start}),
        )

    def _pages(
        self, operation: str, table: str, start: Image | None, params: dict[str, Any]
    ) -> Iterator[dict[str, Any]]:
        while True:
            answer = self.page(operation, table, start, **params)
            yield answer
            start = answer.get("LastEvaluatedKey")
            if not start:
                return

    def close(self) -> None:
        """Wait for running jobs, end the threads and close the connections. No request is possible
        afterwards."""
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


def _check_whole(operation_model: Any, response_dict: dict[str, Any], **_: Any) -> None:
    """Raise for a truncated or non-JSON body: boto3 would treat it as an empty answer, and the row
    would seem to be missing."""
    if (
        response_dict["status_code"] < 300
        and operation_model.output_shape
        and not response_dict["body"].rstrip().endswith(b"}")
    ):
        from botocore.parsers import ResponseParserError

        raise ResponseParserError(f"the answer is not JSON: {response_dict['body'][:100]!r}")


def _outcome_of(job: Callable[[], T]) -> tuple[T, Exception | None]:
    try:
        return job(), None
    except Exception as error:
        return cast(T, None), error


def _results(outcomes: Iterable[tuple[T, Exception | None]]) -> list[T]:
    """All results; or the first error, once every job has ended."""
    outcomes = list(outcomes)
    for _, error in outcomes:
        if error is not None:
            raise error
    return [answer for answer, _ in outcomes]
