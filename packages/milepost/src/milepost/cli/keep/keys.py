"""`milepost keys`: API keys with their scopes."""

from __future__ import annotations

from collections.abc import Collection

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import check_signed, listing_group, shared_options, signed
from milepost.cli.output import print_json, print_table, printed

FIRST_KEY = """This is the first key: from now on every call needs a key, also from this machine, and the dashboard asks for one."""
ADMIN_KEY = """It may not see and do everything. To make a key for yourself:
  milepost keys new NAME --scope admin --by YOU --reason '…'"""
NO_KEYS = """No API keys: all calls from this machine are accepted, and no others. To create one:
  milepost keys new NAME --scope read --by YOU --reason '…'"""


@listing_group
def keys(given: CliSettings, as_json: bool) -> None:
    """API keys: who may call over HTTP, and with which scopes.

    Without any key the server accepts all calls from this machine and no others. As soon as a key
    exists, every call needs one.
    """
    from milepost.engine.auth import all_keys, key_view, last_uses, state_of
    from milepost.engine.views.items import when

    with given.context() as ctx:
        found, used, now = all_keys(ctx), last_uses(ctx), ctx.clock.now()
    if printed(
        found,
        {"keys": [key_view(key, now, used.get(key.id)) for key in found]},
        NO_KEYS,
        as_json=as_json,
    ):
        return
    marked = any(key.attributes for key in found)
    rows = [
        (
            key.name,
            key.id,
            state_of(key, now),
            ", ".join(key.scopes),
            "all" if key.routes is None else ", ".join(key.routes),
            *(
                [", ".join(f"{name}={value}" for name, value in key.attributes.items())]
                if marked
                else []
            ),
            "never" if key.expires_at is None else when(key.expires_at, now),
            when(used[key.id], now) if key.id in used else "never",
        )
        for key in found
    ]
    print_table(
        (
            "name",
            "id",
            "state",
            "scopes",
            "routes",
            *(["attributes"] if marked else []),
            "expires",
            "last used",
        ),
        rows,
    )


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    required=True,
    metavar="SCOPE",
    help="read, submit, work, operate or admin; may be repeated.",
)
@click.option(
    "--route",
    "only",
    multiple=True,
    metavar="ROUTE",
    help="Restrict the key to this route; may be repeated [all routes].",
)
@click.option("--expires", metavar="SPAN", help="Lifetime, such as 90d [unlimited].")
@click.option("--rate", metavar="RATE", help="Rate limit per server, such as 50/s [200/s].")
@click.option("--burst", type=click.IntRange(1), help="Burst limit in calls [two seconds' worth].")
@click.option(
    "--attribute",
    "given_attributes",
    multiple=True,
    metavar="NAME=VALUE",
    help="For applications, such as sender=shop; may be repeated.",
)
@signed
@shared_options
def new(
    given: CliSettings,
    name: str,
    scopes: tuple[str, ...],
    only: tuple[str, ...],
    expires: str | None,
    rate: str | None,
    burst: int | None,
    given_attributes: tuple[str, ...],
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Create a key. It is shown only once.

    Scopes: 'read' reads, 'submit' submits items, 'work' is for remote workers, 'operate' allows
    operator acts (retry, skip, pause, …), 'admin' allows everything. Callers send the header
    'Authorization: Bearer KEY'. An attribute is a name and a value that an application gives a
    meaning to.
    """
    from milepost.core.values.durations import rate_per_second, span_ms
    from milepost.engine.auth import all_keys, key_view, make_key

    who, why = check_signed(by, reason)
    lasts = None if expires is None else span_ms(expires, "--expires")
    pace = None if rate is None else rate_per_second(rate, "--rate")
    with given.context(create=True) as ctx:
        first = not all_keys(ctx)
        made, text = make_key(
            ctx, name, scopes, by=who, reason=why, routes=only or None, lasts_ms=lasts, rate=pace, burst=burst, attributes=_attributes(given_attributes)
        )  # fmt: skip
        now = ctx.clock.now()
    if as_json:
        print_json({"key": text, **key_view(made, now)})
        return
    click.echo(text)
    click.echo("Store it safely: it cannot be shown again.", err=True)
    for one in given.applications:
        note = _without_attribute(one.name, one.application.bound_by, scopes, made.attributes)
        if note is not None:
            click.echo(note, err=True)
    if first:
        click.echo(FIRST_KEY, err=True)
        if "admin" not in scopes:
            click.echo(ADMIN_KEY, err=True)


def _without_attribute(
    application: str, bound_by: str | None, scopes: Collection[str], attributes: Collection[str]
) -> str | None:
    """A note about a key without the attribute by which an application binds keys to some of its
    items; None: there is nothing to say."""
    if bound_by is None or bound_by in attributes or {"operate", "admin"} & set(scopes):
        return None
    if "submit" in scopes:
        return f"It can neither submit to nor read {application}: keys for that are made with --attribute {bound_by}=NAME."
    if "read" in scopes:
        return f"It reads everything of {application}; one with --attribute {bound_by}=NAME reads its own items there alone."
    return None


def _attributes(given: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or name in found:
            raise click.UsageError(
                f"--attribute {text!r}: {'it is given twice' if equals else 'use NAME=VALUE, such as sender=shop'}"
            )
        found[name] = value
    return found


@keys.command()
@click.argument("name")
@signed
@shared_options
def revoke(
    given: CliSettings, name: str, by: str | None, reason: str | None, as_json: bool
) -> None:
    """Revoke a key.

    Every server obeys within five seconds and ends the sessions that logged in with the key.
    """
    from milepost.engine.auth import key_view, last_uses, revoke_key

    who, why = check_signed(by, reason)
    with given.context() as ctx:
        revoked = revoke_key(ctx, name, by=who, reason=why)
        now, used_at = ctx.clock.now(), last_uses(ctx).get(revoked.id)
    if as_json:
        print_json(key_view(revoked, now, used_at))
    else:
        click.echo(f"Key {name} is revoked.")
