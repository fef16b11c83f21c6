"""Subscribers by address: "log", a URL, "sns:ARN" or "email:…", as milepost.toml and applications name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from milepost.core.errors import UsageError
from milepost.ports.subscriber import Subscriber
from milepost.subscribers.in_process import LogSubscriber
from milepost.subscribers.route_formats import PREFIX as FORMED
from milepost.subscribers.route_formats import Formed

FORMS = '"log", sns:ARN, https://… or email:…'


def open_subscriber(address: str, *, allow_cidrs: Sequence[str] = (), offers: bool = True) -> Subscriber | None:
    """The subscriber of an address; None if the address has no form that is known here. `allow_cidrs`: networks beside the public ones that
    a URL may lead to. Without `offers`, a topic is not sent offers to external stages. Raises UsageError that names the address."""
    if address.startswith(FORMED):
        inner = open_subscriber(address.removeprefix(FORMED), allow_cidrs=allow_cidrs, offers=offers)
        return None if inner is None else Formed(inner)
    if address == "log":
        return LogSubscriber()
    scheme, _, rest = address.partition(":")
    try:
        if scheme == "sns" and rest:
            return _topic(rest, offers)
        if scheme in ("https", "http") and rest:
            from milepost.subscribers.webhook import webhook_subscriber

            return cast(Subscriber, webhook_subscriber(address, allow_cidrs))
        if scheme == "email" and rest:
            from milepost.subscribers.email.subscriber import email_subscriber

            return cast(Subscriber, email_subscriber(address))
    except UsageError as error:
        raise UsageError(f"the subscriber {address!r}: {error}") from None
    return None


def _topic(arn: str, offers: bool) -> Subscriber:
    from milepost_aws.topic import Topic

    topic = Topic(arn, offers=offers)
    if len(topic.name) > 64:
        raise UsageError(
            f"the topic name {topic.name} is too long for a subscriber (at most 64 characters); "
            "write  events = Topic(arn, name='…')  in a Python file, and use file.py:events here"
        )
    return topic
