"""Settings of the standalone confirmer: environment variables with the names that today's confirmers use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

import milepost as mp
from milepost.applications.postingest.confirmer.rules import WORKERS, split

MAX_MESSAGES = 50
NEEDED = {
    "SQS_QUEUE_URL": "the URL of the queue of messages",
    "DYNAMO_TABLE_NAME": "the table whose rows are confirmed",
    "DYNAMO_ATTRIBUTE_NAME": "the attribute of a confirmation, such as result_CC or ingested_CC",
}


class ConfirmerSettings(msgspec.Struct, frozen=True):
    """The queue of messages, and the table whose rows are confirmed, as `attribute` in the format of `dialect`. `blobs` is as for `Rows`."""

    queue_url: str
    table: str
    attribute: str
    dialect: str
    worker: str
    max_messages: int = MAX_MESSAGES
    quarantine_url: str | None = None
    blobs: str | None = None


def read_settings(env: Mapping[str, str]) -> ConfirmerSettings:
    """Raises mp.ConfigMistake with a sentence for every missing setting."""
    missing = [f"{name} is not set; expected {what}" for name, what in NEEDED.items() if not env.get(name)]
    if missing:
        raise mp.ConfigMistake("\n".join(missing))
    url, table, attribute = (env[name] for name in NEEDED)
    dialect, stage = split(attribute)
    return ConfirmerSettings(
        url,
        table,
        attribute,
        dialect,
        _worker(stage, attribute, env.get("CONFIRMER", "")),
        _number(env.get("MAX_MESSAGES") or str(MAX_MESSAGES)),
        env.get("QUARANTINE_URL") or None,
        env.get("MILEPOST_BLOBS") or None,
    )


def _worker(stage: str, attribute: str, said: str) -> str:
    kinds = sorted(set(WORKERS.values()))
    if said and said not in kinds:
        raise mp.ConfigMistake(f"CONFIRMER is {said!r}; expected {' or '.join(kinds)}")
    worker = said or WORKERS.get(stage)
    if worker is None:
        raise mp.ConfigMistake(
            f"DYNAMO_ATTRIBUTE_NAME is {attribute!r}, which does not say which worker confirms it; set CONFIRMER to {' or '.join(kinds)}"
        )
    return worker


def _number(said: str) -> int:
    if not said.isdecimal() or int(said) < 1:
        raise mp.ConfigMistake(f"MAX_MESSAGES is {said!r}; expected a whole number from 1 up")
    return int(said)


def open_clients(width: int) -> tuple[Any, Any]:
    """boto3's clients of SQS and DynamoDB, with boto3's usual configuration."""
    try:
        from boto3.session import Session
        from botocore.config import Config
        from botocore.exceptions import NoRegionError
    except ImportError:
        raise mp.ConfigMistake("a confirmer needs boto3, which is not installed: pip install 'milepost[aws]'") from None
    # Every request here may be repeated without harm.
    config = Config(retries={"mode": "standard", "total_max_attempts": 4}, connect_timeout=5, read_timeout=20, max_pool_connections=width)
    session = Session()
    try:
        return session.client("sqs", config=config), session.client("dynamodb", config=config)
    except NoRegionError:
        raise mp.ConfigMistake("AWS_DEFAULT_REGION is not set; expected the region of the queue and the table, such as eu-west-2") from None
