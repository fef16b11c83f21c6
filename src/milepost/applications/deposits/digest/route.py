"""Route of digests: each is a mail that is sent, kept until it is, and tried again with backoff."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

import milepost as mp
from milepost.applications.deposits.digest.entries import Digest
from milepost.applications.deposits.digest.mail import mail_of
from milepost.applications.deposits.settings import DepositsSettings, MailSettings
from milepost.subscribers.email import MailNotSent, MailRefused, MailTransport, mail_transport

OpenTransport = Callable[[MailSettings], MailTransport]


def open_transport(mail: MailSettings) -> MailTransport:
    """The transport that [deposits.mail] names."""
    return mail_transport(mail.smtp or f"ses://{mail.ses}", password_env=mail.password_env)


def digests_route(settings: DepositsSettings, open_with: OpenTransport = open_transport) -> mp.Route:
    """The route of mails. It opens the transport at the first mail."""
    route = mp.Route(settings.digests_route, key="id")

    @route.stage("mail", retry=mp.Backoff(attempts=40, base="1m", factor=2, cap="6h"), concurrency=1)
    def send(item: mp.Item) -> mp.Outcome:
        mail = settings.mail
        if mail is None:
            return mp.NotYet(after="1h", note="[deposits.mail] is not set")
        digest = msgspec.convert(item.input["digest"], Digest)
        try:
            receipt = open_with(mail).send(mail_of(digest, mail.sender, mail.dashboard))
        except MailRefused as error:
            return mp.Reject(str(error), category="MAIL_REFUSED")
        except MailNotSent as error:
            return mp.Retry(str(error), category="MAIL_NOT_SENT")
        refused = [f"{one.address}: {one.text}" for one in receipt.refused]
        return mp.Done({"accepted": list(receipt.accepted), "refused": refused})

    return route
