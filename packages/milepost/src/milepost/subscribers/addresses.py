"""Subscribers by address, as milepost.toml and applications name them: "log", a URL, "email:…", or
what a package adds: "sns:ARN"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from milepost.core.errors import UsageError
from milepost.ports.extensions import SUBSCRIBERS, extension, missing_package
from milepost.ports.subscriber import Subscriber
from milepost.subscribers.in_process import LogSubscriber
from milepost.subscribers.route_formats import PREFIX as FORMED
from milepost.subscribers.route_formats import Formed

FORMS = '"log", sns:ARN, https://… or email:…'


def open_subscriber(
    address: str, *, allow_cidrs: Sequence[str] = (), offers: bool = True
) -> Subscriber | None:
    """The subscriber of an address; None if the address has no form that is known here.
    `allow_cidrs`: networks beside the public ones that a URL may lead to. Without `offers`, a topic
    is not sent offers to external stages. Raises UsageError that names the address."""
    if address.startswith(FORMED):
        inner = open_subscriber(
            address.removeprefix(FORMED), allow_cidrs=allow_cidrs, offers=offers
        )
        return None if inner is None else Formed(inner)
    if address == "log":
        return LogSubscriber()
    scheme, _, rest = address.partition(":")
    try:
        if scheme in ("https", "http") and rest:
            from milepost.subscribers.webhook import webhook_subscriber

            return cast(Subscriber, webhook_subscriber(address, allow_cidrs))
        if scheme == "email" and rest:
            from milepost.subscribers.email.subscriber import email_subscriber

            return cast(Subscriber, email_subscriber(address))
        if rest and not scheme.endswith(".py"):
            return _installed(scheme, rest, offers)
    except UsageError as error:
        raise UsageError(f"the subscriber {address!r}: {error}") from None
    return None


def _installed(scheme: str, rest: str, offers: bool) -> Subscriber | None:
    """The subscriber of a scheme that an installed package adds; None if none does."""
    known = extension(SUBSCRIBERS, scheme)
    if known is not None:
        subscriber: Subscriber = known(rest, offers=offers)
        return subscriber
    missing = missing_package(SUBSCRIBERS, scheme)
    if missing is not None:
        raise UsageError(f"it needs a package that is not installed; {missing}")
    return None
