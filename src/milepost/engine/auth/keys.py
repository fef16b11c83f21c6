"""Keys: who may call over HTTP, and what. A key is shown once, when it is made; the ledger holds only the digest of its secret.

A plain SHA-256 is enough: the secret is 32 random bytes, which nobody guesses however fast the hash is. (Slow hashes protect what
people choose.) So a key can be checked at every call.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import Any

from msgspec.structs import replace

from milepost.core.errors import LedgerError, UsageError
from milepost.core.values.durations import iso
from milepost.engine.act_log import record, signed
from milepost.engine.context import Context
from milepost.engine.views.items import check_route
from milepost.ports.documents import KEY, Key, read_as

SCOPES = ("read", "submit", "work", "operate", "admin")
"""What a key may do. Each endpoint needs one of them; "admin" may do everything."""
PREFIX = "mp"
LONGEST_NAME = 64
USED_MS = 600_000
"""That a key was used is written at most this often."""

log = logging.getLogger(__name__)


def any_keys(ctx: Context) -> bool:
    """Has a key ever been made? From then on the door asks for one, even if all of them have been revoked or have expired."""
    return bool(ctx.ledger.read(KEY))


def all_keys(ctx: Context) -> list[Key]:
    """Every key, by name."""
    return [read_as(Key, document.value) for _, document in sorted(ctx.ledger.read(KEY).items())]


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
    random: Callable[[int], str] = secrets.token_urlsafe,
) -> tuple[Key, str]:
    """A new key, and the text to be given to whoever is to use it: nobody can get that again. A name can be given again once the
    key that had it is revoked or has expired."""
    signed(by, reason)
    _check_name(name)
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
    )
    while True:
        held = ctx.ledger.read_one(KEY, name)
        if held is not None and read_as(Key, held.value).holds(now):
            raise UsageError(f"there is a key {name!r} already; take another name, or revoke that one first: milepost keys revoke {name}")
        if ctx.ledger.write(KEY, name, key, expect=0 if held is None else held.version):
            break
    about = {"scope": f"key {name}", "id": key.id, "scopes": chosen, "routes": seen, "expires_at": iso(key.expires_at)}
    record(ctx, "new-key", "", by, reason, about)
    return key, f"{PREFIX}_{key.id}_{secret}"


def revoke_key(ctx: Context, name: str, *, by: str, reason: str) -> Key:
    """It opens nothing any more: here at once, in other processes within five seconds. Whoever has logged in with it is out, too."""
    signed(by, reason)
    while True:
        held = ctx.ledger.read_one(KEY, name)
        if held is None:
            raise UsageError(f"there is no key {name!r}; 'milepost keys' names them")
        key = read_as(Key, held.value)
        if key.revoked_at is not None:
            return key
        revoked = replace(key, revoked_at=ctx.clock.now(), revoked_by=by, revoked_why=reason)
        # A lost race here is most likely the note that it was just used.
        if ctx.ledger.write(KEY, name, revoked, expect=held.version):
            record(ctx, "revoke-key", "", by, reason, {"scope": f"key {name}", "id": key.id})
            return revoked


def match(keys: Mapping[str, Key], text: str, now: int) -> Key | None:
    """The key that this text is, of these (by id), if it holds now."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    key = keys.get(key_id)
    if prefix != PREFIX or key is None or not compare_digest(digest_of(secret), key.digest):
        return None
    return key if key.holds(now) else None


def digest_of(secret: str) -> str:
    return sha256(secret.encode(errors="replace")).hexdigest()


def note_use(ctx: Context, key: Key, now: int) -> None:
    """Write that a key is in use. Only for people to see, so that it never stops a call: if it cannot be written, it is not."""
    try:
        held = ctx.ledger.read_one(KEY, key.name)
        if held is None:
            return
        there = read_as(Key, held.value)
        # Another process may have said so meanwhile, and a key that is being revoked must stay so: hence the version.
        if there.id == key.id and there.holds(now) and is_news(there.used_at, now):
            ctx.ledger.write(KEY, key.name, replace(there, used_at=now), expect=held.version)
    except LedgerError as error:
        log.warning("that the key %s was used cannot be written: %s", key.name, error)


def is_news(used_at: int | None, now: int) -> bool:
    """Is it worth writing that a key is used now, if the last time was then?"""
    return used_at is None or now - used_at >= USED_MS


def key_view(key: Key, now: int) -> dict[str, Any]:
    """A key for programs; nothing in it opens anything."""
    return {
        "name": key.name,
        "id": key.id,
        "state": state_of(key, now),
        "scopes": key.scopes,
        "routes": key.routes,
        "made_by": key.by,
        "made_at": iso(key.at),
        "expires_at": iso(key.expires_at),
        "used_at": iso(key.used_at),
        "rate": key.rate,
        "burst": key.burst,
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
    if not name.strip() or name != name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(f"a key cannot be called {name!r}; give it a printable name of at most {LONGEST_NAME} characters")


def _checked_scopes(scopes: Iterable[str]) -> list[str]:
    chosen = set(scopes)
    if not chosen or chosen - set(SCOPES):
        wrong = f"{sorted(chosen - set(SCOPES))[0]!r} is no scope" if chosen else "a key needs a scope"
        raise UsageError(f"{wrong}; there are {', '.join(SCOPES)}")
    return [scope for scope in SCOPES if scope in chosen]
