"""API keys with scopes, and login sessions. A key is shown once, when it is created; the ledger
stores only the digest of its secret.

A plain SHA-256 is enough, because the secret is 32 random bytes and cannot be guessed (slow hashes
protect passwords that people choose). So a key can be checked at every call.

A session is a cookie that stands for a key for twelve hours, in every process and across restarts.
The ledger stores the digest of the cookie's token, so that a reader of the ledger cannot take over
a session. A session has the scopes of its key and ends with it.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from milepost.core.errors import LedgerError, UsageError
from milepost.core.values.durations import iso
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.views.items import check_route
from milepost.ports.documents import (
    KEY,
    KEY_USE,
    SESSION,
    Key,
    KeyUse,
    Session,
    read_each,
    read_versioned,
    update,
)

SCOPES = ("read", "submit", "work", "operate", "admin")
"""Scopes of a key. Each endpoint needs one of them; "admin" includes all."""
PREFIX = "mp"
LONGEST_NAME = 64
LONGEST_VALUE = 256
USED_MS = 600_000
"""The time of last use is written at most this often."""
SESSION_MS = 12 * 3_600_000
MOST_SESSIONS = 50
"""Sessions per key; beyond that the oldest ends. Session documents stay few."""

_ATTRIBUTE = re.compile(r"[a-z][a-z0-9-]{0,39}")
log = logging.getLogger(__name__)


def any_keys(ctx: Context) -> bool:
    """Whether a key was ever created. From then on every call needs one, even if all keys have been
    revoked or have expired."""
    return bool(ctx.ledger.read(KEY))


def all_keys(ctx: Context) -> list[Key]:
    """All keys by name."""
    return [key for _, key in sorted(read_each(ctx.ledger, KEY, Key).items())]


def make_key(
    ctx: Context,
    name: str,
    scopes: Iterable[str],
    *,
    by: str,
    reason: str,
    routes: Iterable[str] | None = None,
    lasts_ms: int | None = None,
    rate: float | None = None,
    burst: int | None = None,
    attributes: Mapping[str, str] | None = None,
    random: Callable[[int], str] = secrets.token_urlsafe,
) -> tuple[Key, str]:
    """Create a key; returns it with its text, which cannot be shown again. A name can be reused
    once its key is revoked or has expired. `attributes` are for applications: they see them as
    `call.caller.attributes`."""
    signed(by, reason)
    _check_name(name)
    _check_attributes(attributes or {})
    chosen, seen = _checked_scopes(scopes), None if routes is None else sorted(set(routes))
    for route in seen or ():
        check_route(ctx, route)
    now, secret = ctx.clock.now(), random(32)
    key = Key(
        sha256(random(32).encode()).hexdigest()[:12],
        name,
        digest_of(secret),
        chosen,
        seen,
        by,
        now,
        expires_at=None if lasts_ms is None else now + lasts_ms,
        rate=rate,
        burst=burst,
        attributes=dict(attributes or {}),
    )

    def made(old: Key | None) -> Key:
        if old is not None and old.holds(now):
            raise UsageError(
                f"key {name!r} already exists; choose another name, or revoke it first: milepost keys revoke {name}"
            )
        return key

    update(ctx.ledger, KEY, name, Key, made)
    about: dict[str, Any] = {
        "scope": f"key {name}",
        "id": key.id,
        "scopes": chosen,
        "routes": seen,
        "expires_at": iso(key.expires_at),
    }
    if key.attributes:
        about["attributes"] = key.attributes
    record(ctx, "new-key", "", by, reason, about)
    return key, f"{PREFIX}_{key.id}_{secret}"


def revoke_key(ctx: Context, name: str, *, by: str, reason: str) -> Key:
    """Revoke a key: here at once, in other processes within five seconds. Its sessions end too."""
    signed(by, reason)

    def revoked(key: Key | None) -> Key:
        if key is None:
            raise UsageError(f"there is no key {name!r}; see 'milepost keys'")
        if key.revoked_at is not None:
            return key
        return replace(key, revoked_at=ctx.clock.now(), revoked_by=by, revoked_why=reason)

    revoking = update(ctx.ledger, KEY, name, Key, revoked)
    if revoking.written:
        about = {"scope": f"key {name}", "id": revoking.after.id}
        record(ctx, "revoke-key", "", by, reason, about)
    return revoking.after


def match(keys: Mapping[str, Key], text: str, now: int) -> Key | None:
    """The key with this text, if it is valid now; `keys` are by id."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    key = keys.get(key_id)
    if prefix != PREFIX or key is None or not hmac.compare_digest(digest_of(secret), key.digest):
        return None
    return key if key.holds(now) else None


def digest_of(secret: str) -> str:
    return sha256(secret.encode(errors="replace")).hexdigest()


def note_use(ctx: Context, key: Key, now: int) -> None:
    """Write a key's time of last use. It is information only: a failed write is logged and never
    fails the call."""
    try:
        last, _ = read_versioned(ctx.ledger, KEY_USE, key.name, KeyUse)
        if last is None or last.id != key.id or is_news(last.at, now):
            ctx.ledger.write(KEY_USE, key.name, KeyUse(key.id, now))
    except LedgerError as error:
        log.warning("cannot write the last use of key %s: %s", key.name, error)


def last_uses(ctx: Context) -> dict[str, int]:
    """When each key was last used, by the key's id."""
    return {use.id: use.at for use in read_each(ctx.ledger, KEY_USE, KeyUse).values()}


def is_news(used_at: int | None, now: int) -> bool:
    """Whether the last use is old enough to be written again."""
    return used_at is None or now - used_at >= USED_MS


def key_view(key: Key, now: int, used_at: int | None = None) -> dict[str, Any]:
    """A key as JSON, without its secret. `used_at`: when it was last used; None: never."""
    return {
        "name": key.name,
        "id": key.id,
        "state": state_of(key, now),
        "scopes": key.scopes,
        "routes": key.routes,
        "made_by": key.by,
        "made_at": iso(key.at),
        "expires_at": iso(key.expires_at),
        "used_at": iso(used_at),
        "rate": key.rate,
        "burst": key.burst,
        "attributes": key.attributes,
        "revoked_at": iso(key.revoked_at),
        "revoked_by": key.revoked_by or None,
        "revoked_why": key.revoked_why or None,
    }


def state_of(key: Key, now: int) -> str:
    """`good`, `expired` or `revoked`."""
    if key.revoked_at is not None:
        return "revoked"
    return "good" if key.holds(now) else "expired"


def _check_name(name: str) -> None:
    if (
        not name.strip()
        or name != name.strip()
        or len(name) > LONGEST_NAME
        or not name.isprintable()
    ):
        raise UsageError(
            f"invalid key name {name!r}; use printable text of at most {LONGEST_NAME} characters"
        )


def _check_attributes(attributes: Mapping[str, str]) -> None:
    for name, value in attributes.items():
        if not _ATTRIBUTE.fullmatch(name):
            raise UsageError(
                f"invalid attribute {name!r}; use lower-case letters, digits and '-', at most 40, such as sender"
            )
        if not value.strip() or len(value) > LONGEST_VALUE or not value.isprintable():
            raise UsageError(
                f"attribute {name!r} has the value {value!r}; use printable text of at most {LONGEST_VALUE} characters"
            )


def _checked_scopes(scopes: Iterable[str]) -> list[str]:
    chosen = set(scopes)
    if not chosen or chosen - set(SCOPES):
        wrong = (
            f"{sorted(chosen - set(SCOPES))[0]!r} is not a scope"
            if chosen
            else "a key needs a scope"
        )
        raise UsageError(f"{wrong}; scopes are {', '.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in chosen]


# Sessions -----------------------------------------------------------------------------------------
def open_session(ctx: Context, key: Key) -> str:
    """Start a session with this key and return its token. Expired sessions are deleted."""
    now, token = ctx.clock.now(), secrets.token_urlsafe(32)
    _clear(ctx, key, now)
    ctx.ledger.write(SESSION, digest_of(token), Session(key.id, now, now + SESSION_MS))
    return token


def end_session(ctx: Context, token: str) -> None:
    """Delete the session with this token."""
    ctx.ledger.write(SESSION, digest_of(token), None)


def session_key(
    sessions: Mapping[str, Session], keys: Mapping[str, Key], token: str, now: int
) -> Key | None:
    """The key of a session token, if both are valid. (The look-up is by digest, so its timing
    reveals nothing about the token.)"""
    session = sessions.get(digest_of(token))
    key = None if session is None or now >= session.until else keys.get(session.key_id)
    return key if key is not None and key.holds(now) else None


def csrf_token(token: str) -> str:
    """CSRF token that our pages send with every write of this session. A page of another site can
    make the browser send the cookie, but can read neither the cookie nor this token."""
    return hmac.new(token.encode(errors="replace"), b"csrf", sha256).hexdigest()


def is_csrf_token(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), csrf_token(token).encode())


def _clear(ctx: Context, key: Key, now: int) -> None:
    """Delete expired sessions, and the oldest of this key's if there would be too many."""
    sessions = read_each(ctx.ledger, SESSION, Session)
    over = [name for name, session in sessions.items() if now >= session.until]
    own = [
        name
        for name, session in sorted(sessions.items(), key=lambda entry: entry[1].at)
        if session.key_id == key.id and name not in over
    ]
    for name in over + own[: max(0, len(own) - MOST_SESSIONS + 1)]:
        ctx.ledger.write(SESSION, name, None)
