"""Login sessions: a cookie stands for a key for twelve hours, in every process and across restarts.

The ledger stores the digest of the cookie's token, so that a reader of the ledger cannot take over a session. A session has the
scopes of its key and ends with it.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from hashlib import sha256

from milepost.engine.auth.keys import digest_of
from milepost.engine.context import Context
from milepost.ports.documents import SESSION, Key, Session, read_all

LASTS_MS = 12 * 3_600_000
MOST = 50
"""Sessions per key; beyond that the oldest ends. Session documents stay few."""


def open_session(ctx: Context, key: Key) -> str:
    """Start a session with this key and return its token. Expired sessions are deleted."""
    now, token = ctx.clock.now(), secrets.token_urlsafe(32)
    _clear(ctx, key, now)
    ctx.ledger.write(SESSION, digest_of(token), Session(key.id, now, now + LASTS_MS))
    return token


def end_session(ctx: Context, token: str) -> None:
    """Delete the session with this token."""
    ctx.ledger.write(SESSION, digest_of(token), None)


def session_key(sessions: Mapping[str, Session], keys: Mapping[str, Key], token: str, now: int) -> Key | None:
    """The key of a session token, if both are valid. (The look-up is by digest, so its timing reveals nothing about the token.)"""
    session = sessions.get(digest_of(token))
    key = None if session is None or now >= session.until else keys.get(session.key_id)
    return key if key is not None and key.holds(now) else None


def csrf_token(token: str) -> str:
    """CSRF token that our pages send with every write of this session. A page of another site can make the browser send the cookie, but
    can read neither the cookie nor this token."""
    return hmac.new(token.encode(errors="replace"), b"csrf", sha256).hexdigest()


def is_csrf_token(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), csrf_token(token).encode())


def _clear(ctx: Context, key: Key, now: int) -> None:
    """Delete expired sessions, and the oldest of this key's if there would be too many."""
    sessions = read_all(ctx.ledger, SESSION, Session)
    over = [name for name, session in sessions.items() if now >= session.until]
    own = [
        name for name, session in sorted(sessions.items(), key=lambda entry: entry[1].at) if session.key_id == key.id and name not in over
    ]
    for name in over + own[: max(0, len(own) - MOST + 1)]:
        ctx.ledger.write(SESSION, name, None)
