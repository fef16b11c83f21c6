"""Settings of a deployment, checked before anything is made. No CDK here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path

from milepost.application.declaration import AwsAccess
from milepost.core.errors import ConfigMistake
from milepost.core.routes.route import Route, Stage
from milepost.engine.heads.route import heads_for
from milepost_aws.ledger.names import ResourceNames
from milepost_aws.ledger.tables.documents import KNOWN_FORMAT

PYTHON = "3.13"
"""The functions' runtime."""
LONGEST_RUN_S = 900
"""Maximum run time of a function on AWS."""
USUAL_RUN_S = 300
"""Run time of a worker function whose stage has no timeout."""
MARGIN_S = 30
"""Time for claiming before the work and settling after it."""
BATCH = 10
LARGEST_BATCH = 1000
WINDOW_S = 5
"""Batching window of a stage with batches larger than ten."""
DAY_MS = 86_400_000
RELAY_AT_ONCE = 16
"""Instances of the relay for each route: a new table's stream has 4 shards, and 4 instances read
each."""
LONGEST_WINDOW_S = 300
WARM_FROM, WARM_READS = 4_000, 3
"""Write units of a new table on demand, and read units for each of them."""

_PREFIX = re.compile(r"[a-z][a-z0-9-]{0,18}[a-z0-9]")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_TOPIC = re.compile(r"arn:aws[a-z-]*:sns:[a-z0-9-]+:\d{12}:[A-Za-z0-9_-]{1,256}")
_KEY = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[A-Za-z0-9-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}")
_SECRET = re.compile(r"[A-Za-z0-9/_+=.@:-]{1,512}")
_QUEUE_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_OBJECTS = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])/(?P<prefix>[A-Za-z0-9!_.'()/-]+)"
)
_QUEUE_URL = re.compile(
    r"https://sqs\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/(?P<account>\d{12})/(?P<name>[A-Za-z0-9_-]{1,80})"
)


@dataclass(frozen=True)
class Settings:
    """One deployment: its prefix, its routes, the functions' code, and the receivers of alarms."""

    prefix: str
    routes: tuple[Route, ...]
    routes_in_code: str
    """Where the functions find the route files, as MILEPOST_ROUTES."""
    code: Path
    applications_in_code: str = ""
    """Where the functions find the applications, as MILEPOST_APPLICATIONS."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The applications' settings, as variables of the functions' environment."""
    services: Mapping[str, int] = field(default_factory=dict)
    """The applications' services, with the milliseconds between two calls."""
    access: tuple[AwsAccess, ...] = ()
    """AWS resources outside the ledger that the applications use."""
    endpoints: tuple[tuple[str, str], ...] = ()
    """Method and path of each endpoint of an application through which items are submitted."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """By variable of the environment, the name or ARN of the secret in Secrets Manager that holds
    its value."""
    alarm_emails: tuple[str, ...] = ()
    alarm_topic: str | None = None
    key: str | None = None
    """A customer-managed key: "new", or the ARN of an existing one; None: AWS's own keys."""
    reserve: bool = True
    """Reserve a share of the account's concurrent functions for relay and resender."""
    relay_at_once: int = RELAY_AT_ONCE
    """Instances of the relay that are reserved for each route; it never has more."""
    stream_window_s: int = 0
    """How long the stream waits until a call of the relay is full."""
    warm_units: int | None = None
    """Write units a second for which each table of rows and its index are prepared; None: what a
    new table has."""
    tables_format: int = KNOWN_FORMAT
    """The format of the deployment's tables: 1 before `milepost upgrade` is run on one that an
    earlier version made. Roles follow it."""
    repair_within_ms: int | None = None
    """Time in which the daily repair scan should end; None: the ledger's own."""

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.prefix):
            # It is the beginning of a bucket name, which has at most 63 characters with account and
            # region.
            raise ConfigMistake(
                f"the prefix is {self.prefix!r}; use 2 to 20 small letters, digits or '-', such as 'prod'"
            )
        if not self.routes:
            raise ConfigMistake("no route is named; give --routes FILE.py, or --application NAME")
        names = ResourceNames(self.prefix)
        for route in (*self.routes, *self.heads):
            if not route.stages:
                raise ConfigMistake(
                    f"route {route.name!r} has no stages; there is nothing to deploy for it"
                )
            for stage in route.stages:
                _check(route, stage)
                names.queue(route.name, stage.name)
        for access in self.access:
            for queue in (*access.sends_to, *access.receives_from):
                queue_arn(queue)
            for place in access.objects:
                object_place(place)
            for topic in access.publishes_to:
                if not _TOPIC.fullmatch(topic):
                    raise ConfigMistake(
                        f"an application publishes to {topic!r}; an ARN looks like arn:aws:sns:eu-west-2:123456789012:ops"
                    )
            for variable in access.secrets:
                if variable not in self.secrets:
                    raise ConfigMistake(
                        f"an application needs the secret {variable}; give --secret {variable}=NAME of Secrets Manager"
                    )
        for variable, secret in self.secrets.items():
            if not _VARIABLE.fullmatch(variable) or not _SECRET.fullmatch(secret):
                raise ConfigMistake(
                    f"--secret is '{variable}={secret}'; give VARIABLE=NAME, or VARIABLE=ARN of a secret in Secrets Manager"
                )
        if not self.alarm_emails and self.alarm_topic is None:
            raise ConfigMistake(
                "alarms would have no receiver; give --alarm-email ADDRESS, or --alarm-topic ARN"
            )
        if self.alarm_emails and self.alarm_topic is not None:
            raise ConfigMistake(
                "give --alarm-email or --alarm-topic, not both: the addresses can be subscribed to your own topic"
            )
        for address in self.alarm_emails:
            if not _EMAIL.fullmatch(address):
                raise ConfigMistake(
                    f"--alarm-email is {address!r}; give an address such as ops@example.org"
                )
        if self.alarm_topic is not None and not _TOPIC.fullmatch(self.alarm_topic):
            raise ConfigMistake(
                f"--alarm-topic is {self.alarm_topic!r}; an ARN looks like arn:aws:sns:eu-west-2:123456789012:ops"
            )
        if self.key is not None and self.key != "new" and not _KEY.fullmatch(self.key):
            raise ConfigMistake(
                f"--key is {self.key!r}; give 'new', or an ARN such as arn:aws:kms:eu-west-2:123456789012:key/1234abcd-…"
            )
        if self.relay_at_once < 1:
            raise ConfigMistake(
                f"--relay-at-once is {self.relay_at_once}; give the instances of the relay for each route, such as 40"
            )
        if not 0 <= self.stream_window_s <= LONGEST_WINDOW_S:
            raise ConfigMistake(
                f"--stream-window is {self.stream_window_s}; give 0 to {LONGEST_WINDOW_S} seconds"
            )
        if self.warm_units is not None and self.warm_units < WARM_FROM:
            raise ConfigMistake(
                f"--warm-throughput is {self.warm_units}; a new table has {WARM_FROM:,} write units a second: give more"
            )
        if not 1 <= self.tables_format <= KNOWN_FORMAT:
            raise ConfigMistake(
                f"--tables-format is {self.tables_format}; this version knows 1 to {KNOWN_FORMAT}"
            )
        if not self.code.is_dir():
            raise ConfigMistake(
                f"there is no folder {self.code} with the functions' code; make it with python -m milepost_aws.infra.bundle, or give --code"
            )

    @property
    def heads(self) -> tuple[Route, ...]:
        """The route of the daily heads, if evidence is kept. It has a table like the others, but no
        queue and no function."""
        return tuple(heads_for(self.routes, None))


RESENDER_AT_ONCE = 5
"""One instance is called each minute and may run for 15 minutes, beside the daily repair."""


def batch_size(stage: Stage) -> int:
    """Number of messages that a worker gets at once: ten, or as many as the handler takes in one
    call."""
    return max(BATCH, min(stage.batch, LARGEST_BATCH))


def window_seconds(stage: Stage) -> int:
    return WINDOW_S if batch_size(stage) > BATCH else 0


def run_seconds(stage: Stage) -> int:
    """Run time of the stage's function: enough for a whole batch in which every call takes its full
    time, if AWS allows it."""
    if stage.timeout_ms is None:
        return USUAL_RUN_S
    turns = 1 if stage.batch > 1 else ceil(BATCH / stage.concurrency)
    return min(LONGEST_RUN_S, ceil(turns * stage.timeout_ms / 1000) + MARGIN_S)


def visibility_seconds(stage: Stage) -> int:
    """Visibility timeout of a message. More than six times the function's run time, as AWS
    recommends: throttled pollers then do not deliver a message again that is still being processed.
    Confirmers check again after ten minutes."""
    return 600 if stage.external else 6 * run_seconds(stage) + window_seconds(stage) + 60


def at_once(stage: Stage) -> int:
    """Maximum concurrent instances of the stage's function; AWS allows 2 to 1,000."""
    return min(max(stage.concurrency, 2), 1000)


def late_seconds(stage: Stage) -> int:
    """Age from which an item at this stage raises an alarm: its `overdue`, else a day, or two weeks
    for external stages."""
    return ceil((stage.overdue_ms or (14 * DAY_MS if stage.external else DAY_MS)) / 1000)


def own_queue_arn(stage: Stage) -> tuple[str, str, str] | None:
    """Region, account and name of an external stage's own queue."""
    if stage.queue is None:
        return None
    found = _QUEUE_URL.fullmatch(stage.queue)
    return None if found is None else (found["region"], found["account"], found["name"])


def queue_arn(queue: str) -> tuple[str | None, str | None, str]:
    """Region, account and name of a queue that an application names by URL, or by its name alone:
    then the first two are the stack's."""
    if _QUEUE_NAME.fullmatch(queue):
        return None, None, queue
    found = _QUEUE_URL.fullmatch(queue)
    if found is None:
        raise ConfigMistake(
            f"an application uses the queue {queue!r}; give its name, or https://sqs.REGION.amazonaws.com/ACCOUNT/NAME"
        )
    return found["region"], found["account"], found["name"]


def object_place(place: str) -> tuple[str, str]:
    """Bucket and prefix of objects that an application uses."""
    found = _OBJECTS.fullmatch(place)
    if found is None:
        raise ConfigMistake(
            f"an application keeps files in {place!r}, which functions do not share; give s3://BUCKET/PREFIX"
        )
    return found["bucket"], found["prefix"].strip("/")


def _check(route: Route, stage: Stage) -> None:
    subject = f"stage {stage.name!r} of route {route.name!r}"
    if stage.queue is not None and own_queue_arn(stage) is None:
        raise ConfigMistake(
            f"{subject}: queue is {stage.queue!r}; a queue's address is https://sqs.REGION.amazonaws.com/ACCOUNT/NAME"
        )
    if stage.timeout_ms is not None and stage.timeout_ms / 1000 > LONGEST_RUN_S - MARGIN_S:
        raise ConfigMistake(
            f"{subject}: its timeout is {stage.timeout_ms / 1000:g} s, and a function is ended after {LONGEST_RUN_S} s; shorten it,"
            f" or hand the work over and let the answer come later (HandedOver)"
        )
