"""The secret of a ledger by which the keys of forgotten items stay known, and the names that stand
for these keys."""

from __future__ import annotations

import secrets

from milepost.core.errors import LedgerBusy
from milepost.core.forgetting import forgotten_name
from milepost.core.values.durations import short_span
from milepost.engine.context import Context
from milepost.ports.documents import FORGET, SECRET, ForgetSecret, read_versioned, update

SECRET_BYTES = 32


def name_of(ctx: Context, route: str, key: str) -> str | None:
    """The name that stands for this key if its item was forgotten; None: this ledger has forgotten
    no item."""
    held, _ = read_versioned(ctx.ledger, FORGET, SECRET, ForgetSecret)
    return None if held is None else forgotten_name(bytes.fromhex(held.secret), route, key)


def make_secret(ctx: Context) -> None:
    """Make the secret if there is none. LedgerBusy until every process must have read it: one that
    does not know it would take a forgotten key for a new one."""
    now = ctx.clock.now()

    def made(present: ForgetSecret | None) -> ForgetSecret:
        return present or ForgetSecret(secrets.token_hex(SECRET_BYTES), now)

    secret = update(ctx.ledger, FORGET, SECRET, ForgetSecret, made).after
    wait_ms = secret.at + ctx.ledger.timing.notice_ms - now
    if 0 < wait_ms <= ctx.ledger.timing.notice_ms:
        raise LedgerBusy(
            f"the first 'milepost forget' on {ctx.ledger.url} makes the secret by which forgotten keys stay known, and other processes read"
            f" it only now; nothing was removed; run this again in {short_span(wait_ms)}"
        )
