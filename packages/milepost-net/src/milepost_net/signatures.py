"""Standard Webhooks signatures: headers that prove to a receiver who sent a request and when.

The signature is the HMAC-SHA256 of "ID.SECONDS.BODY" under a secret that both sides have, written
`whsec_` and base64. While a secret is being replaced the sender signs with both; the receiver
accepts a request if one signature is right. See https://www.standardwebhooks.com.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets as random
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256

from milepost_net.errors import NetUsageError, SignatureRefused

PREFIX = "whsec_"
SHORTEST, LONGEST = 24, 64
TOLERANCE = 300.0
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"

Secrets = str | Sequence[str]
"""One secret, or several while one is being replaced."""


def new_secret() -> str:
    """A new random secret: `whsec_` and 32 bytes in base64."""
    return PREFIX + base64.b64encode(random.token_bytes(32)).decode()


def secret_keys(secrets: Secrets) -> tuple[bytes, ...]:
    """The bytes of secrets; raises NetUsageError, without the secret."""
    given = [secrets] if not isinstance(secrets, (list, tuple)) else list(secrets)
    if not given:
        raise NetUsageError(
            "give at least one webhook secret, such as one of milepost_net.new_secret()"
        )
    return tuple(_key(secret) for secret in given)


def webhook_headers(
    secrets: Secrets, message_id: str, body: bytes, *, at: float | None = None
) -> dict[str, str]:
    """The three headers for a request: its id (the same for every repeat), the time and the
    signatures, one for each secret. `at`: seconds since 1970, now if not given."""
    return signed_headers(secret_keys(secrets), message_id, body, time.time() if at is None else at)


def signed_headers(
    keys: Sequence[bytes], message_id: str, body: bytes, at: float
) -> dict[str, str]:
    """As `webhook_headers`, with the bytes of the secrets. Without any, the headers say id and time
    alone."""
    if (
        not message_id
        or "." in message_id
        or not message_id.isascii()
        or not message_id.isprintable()
        or " " in message_id
    ):
        raise NetUsageError(
            f"the webhook id {message_id[:80]!r} must be printable ASCII without spaces and dots"
        )
    seconds = str(int(at))
    headers = {ID: message_id, TIMESTAMP: seconds}
    if keys:
        headers[SIGNATURE] = " ".join(
            f"v1,{_signature(key, message_id, seconds, body)}" for key in keys
        )
    return headers


def verify(
    secrets: Secrets,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now: float | None = None,
    tolerance: float = TOLERANCE,
) -> str:
    """Check a request that was received; returns its id, by which a receiver recognises a repeat.

    `body` is the bytes as they came, before any parsing. Raises SignatureRefused if a header is
    missing, no signature matches, or the time differs from `now` (seconds since 1970, the present
    if not given) by more than `tolerance` seconds.
    """
    keys = secret_keys(secrets)
    found = {name.lower(): value for name, value in headers.items()}
    missing = [name for name in (ID, TIMESTAMP, SIGNATURE) if not found.get(name)]
    if missing:
        raise SignatureRefused(f"the request has no header {missing[0]}")
    message_id, seconds = found[ID], found[TIMESTAMP]
    if not (seconds.isascii() and seconds.isdigit() and len(seconds) <= 15):
        raise SignatureRefused(f"the header {TIMESTAMP} is not a number of seconds")
    if abs((time.time() if now is None else now) - int(seconds)) > tolerance:
        raise SignatureRefused(
            f"the request was signed more than {tolerance:g} s ago, or in the future; is one of the clocks wrong?"
        )
    try:
        expected = [_signature(key, message_id, seconds, body).encode() for key in keys]
    except UnicodeEncodeError:
        raise SignatureRefused(f"the header {ID} is not ASCII") from None
    given = [
        word.removeprefix("v1,") for word in found[SIGNATURE].split(" ") if word.startswith("v1,")
    ]
    # Every pair is compared, in constant time: how long it takes tells nothing.
    matches = [
        hmac.compare_digest(one, other.encode("utf-8", "replace"))
        for one in expected
        for other in given
    ]
    if not any(matches):
        raise SignatureRefused(
            "no signature matches: the sender used another secret, or the body was changed"
        )
    return message_id


def _signature(key: bytes, message_id: str, seconds: str, body: bytes) -> str:
    signed = f"{message_id}.{seconds}.".encode("ascii") + body
    return base64.b64encode(hmac.new(key, signed, sha256).digest()).decode()


def _key(secret: object) -> bytes:
    if not isinstance(secret, str):
        raise NetUsageError("a webhook secret is text: whsec_ and base64")
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise NetUsageError(
            "a webhook secret is whsec_ and base64; this one is not base64"
        ) from None
    if not SHORTEST <= len(key) <= LONGEST:
        raise NetUsageError(
            f"a webhook secret has {SHORTEST} to {LONGEST} bytes; this one has {len(key)}"
        )
    return key
