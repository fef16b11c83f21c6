"""Errors of the HTTP client. Each says whether the request may have reached the partner.

NetError
├── InvalidRequest          the URL, the method, a header or the body cannot be sent
├── AddressRefused          the address guard refuses every address of the host
├── ConnectFailed           no connection: name, TCP, TLS or certificate
├── NoAnswer                the request was sent, and no whole answer came in time
├── InvalidAnswer           the answer is no valid HTTP, or its body was cut off
├── AnswerTooLarge          the answer's body is larger than the limit
├── RedirectRefused         the answer redirects to a place that is not allowed
└── CallStopped             the client was closed while the call ran

`NetUsageError`, a ValueError, is an argument that is wrong: nothing was done. InvalidRequest is one
too. No message holds a path, a query, a header or a part of a body: these may be secrets.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from milepost_net.response import Response


LOOKUP_WAITS = "lookup-waits"
"""Kind of a call whose host was not even looked up."""


class SendState(StrEnum):
    """How far a request got before the call failed."""

    NOT_SENT = "not-sent"
    """No byte of it was sent: the partner cannot have acted on it."""
    MAYBE_SENT = "maybe-sent"
    """It was sent, at least in part, and no answer came: the partner may have acted on it."""
    ANSWERED = "answered"
    """The partner has answered, even if the answer could not be read to its end."""


class NetUsageError(ValueError):
    """An argument is wrong, such as a network, a timeout, a secret or a file of certificates;
    nothing was done."""


class NetError(Exception):
    """A call over HTTP failed.

    `sent` says how far the request got: NOT_SENT is certain, MAYBE_SENT means that the partner may
    have acted on it, ANSWERED means that it answered. `kind` is a stable code of the cause.
    `response` is what was read of the answer, if its head was read. A handler may let it through:
    it is a `Retry` with these facts, or a `Reject` where `permanent` is True.
    """

    permanent = False

    def __init__(
        self,
        message: str,
        *,
        kind: str = "failed",
        sent: SendState = SendState.NOT_SENT,
        response: Response | None = None,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.sent = sent
        self.response = response

    @property
    def unknown(self) -> bool:
        """May the partner have acted on the request? A handler that raises the error then has its
        `verify` run before the next try."""
        return self.sent is not SendState.NOT_SENT

    @property
    def http_status(self) -> int | None:
        """The status of the answer, if its head was read."""
        return None if self.response is None else self.response.status

    @property
    def retry_after(self) -> float | None:
        """The seconds of the answer's Retry-After header, if its head was read and has one."""
        return None if self.response is None else self.response.retry_after


class InvalidRequest(NetError, NetUsageError):
    """The URL, the method, a header or the body cannot be sent. `kind`: `invalid-url`,
    `invalid-method`, `invalid-header`, `invalid-body`."""

    permanent = True


class AddressRefused(NetError):
    """The address guard refuses every address of the host. `kind`: `address-refused`."""

    permanent = True


class ConnectFailed(NetError):
    """There is no connection to the host. `kind`: `name-not-resolved`, `connection-refused`,
    `unreachable`, `connect-timeout`, `timeout`, `tls-failed`, `certificate-refused`,
    `no-connection-free` (all that are allowed to the destination were in use), or `lookup-waits`
    (its name was not even looked up, because of other names: that says nothing about the host)."""


class NoAnswer(NetError):
    """The request was sent, at least in part, and no whole answer came. `kind`: `closed`, `silent`
    (the partner sent nothing for the read timeout), `timeout` (the total time is over), or
    `tls-failed` (the partner has refused the TLS connection, such as for want of a client
    certificate)."""


class InvalidAnswer(NetError):
    """The answer is no valid HTTP, or its body was cut off. `kind`: `malformed`, `cut`."""


class AnswerTooLarge(NetError):
    """The answer's body is larger than the limit; `response.body` holds the part up to it. `kind`:
    `too-large`."""


class RedirectRefused(NetError):
    """The answer redirects to a place that is not allowed. `kind`: `redirect-refused`."""


class CallStopped(NetError):
    """The client was closed while the call ran. `kind`: `stopped`."""


class SignatureRefused(Exception):
    """A webhook's signature does not prove that the sender has the secret, or it is too old."""
