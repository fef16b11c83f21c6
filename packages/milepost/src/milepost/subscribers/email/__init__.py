"""Mail: typed messages, transports over SMTP or Amazon SES, and a subscriber that sends events as mails.

from milepost.subscribers.email import Mail, mail_transport

transport = mail_transport("smtps://reports@mail.example.org", password_env="REPORTS_PASSWORD")
transport.send(Mail(id="digest-7", sender="reports@example.org", to=["ops@example.org"], subject="Digest 7", text="All is well.\n"))
"""

from __future__ import annotations

from milepost.subscribers.email.message import (
    Mail,
    MailAttachment,
    MailError,
    MailNotSent,
    MailReceipt,
    MailRefused,
    RecipientRefusal,
)
from milepost.subscribers.email.subscriber import EmailSubscriber
from milepost.subscribers.email.transport import MailTransport, mail_transport

__all__ = [
    "EmailSubscriber",
    "Mail",
    "MailAttachment",
    "MailError",
    "MailNotSent",
    "MailReceipt",
    "MailRefused",
    "MailTransport",
    "RecipientRefusal",
    "mail_transport",
]
