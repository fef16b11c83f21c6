"""Commands of notifications: `milepost notifications send`, `list`, `show`, `replay`,
`destinations`, `outage` and others."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import click
import msgspec
from msgspec.structs import replace

import milepost as mp
import milepost.application as mpa
from milepost_client import MessageRefused
from milepost_notifications.application import application
from milepost_notifications.destinations import SIGNED
from milepost_notifications.operate.collector import figures_of
from milepost_notifications.operate.dead_letters import causes, dead_letters, replay_all
from milepost_notifications.operate.figures import SENDER_COUNTS
from milepost_notifications.operate.messages import (
    MessageFilter,
    cancel_message,
    find_key,
    is_repeat,
    message_page,
    next_try,
    read_message,
    read_record,
    replay_message,
    waits_for_time,
    what_next,
)
from milepost_notifications.operate.record import MessageMoment, timeline_of
from milepost_notifications.operate.registry import (
    begin_outage,
    destination_views,
    ended_text,
    is_known,
    keep_fresh,
    known_destination,
    lanes_of,
    left_pause,
    pause_destination,
    pause_of,
    remove_destination,
    resume_destination,
)
from milepost_notifications.operate.senders import sender_views
from milepost_notifications.settings import App

dry_run_option = click.option(
    "--dry-run", is_flag=True, help="Show what would happen, without changing anything."
)
sender_option = click.option("--sender", metavar="NAME", help="Messages of this sender.")
destination_option = click.option(
    "--destination",
    metavar="NAME",
    help="Messages to this destination, or SENDER@HOST:PORT if it is unregistered.",
)
from_option = click.option(
    "--from",
    "created_from",
    metavar="TIME",
    help="Messages accepted at this time or later: 8:00 (local), a time with a date, or 2h (ago).",
)
before_option = click.option(
    "--before", "created_before", metavar="TIME", help="Messages accepted before this time."
)
cause_option = click.option(
    "--cause",
    metavar="GROUP",
    help="Messages that failed for this cause, as 'dead-letters' names it.",
)
drain_option = click.option(
    "--drain",
    metavar="RATE",
    help="Rate for the messages that have waited, such as 10/s [as fast as usual].",
)

HELD = ("outage", "paused", "open", "half-open")
"""States of a destination in which its messages wait."""
SAID = {
    "new": "is accepted.",
    "known": "was accepted before, and is not sent twice.",
    "changed": "is refused: it was accepted before with another method, headers or body; send the new one with an --id of its own.",
}
"""Result of `send`, by the answer of the ledger."""
CANCELLED = f"was accepted before, and cancelled. To send it all the same: milepost notifications replay {{key}} {SIGNED}"
"""The same for a message that was cancelled."""


@application.command(ledger="write")
@click.argument("url")
@click.option(
    "--sender", default="command-line", show_default=True, metavar="NAME", help="The sender."
)
@click.option("--id", "message_id", metavar="ID", help="The messageId [a new one].")
@click.option(
    "--timestamp",
    metavar="TIME",
    help="The sender's time; part of the identity, so repeat it with the same --id [now].",
)
@click.option("--method", default="POST", show_default=True, help="The HTTP method.")
@click.option(
    "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="A header; may be repeated."
)
@click.option(
    "--body", metavar="TEXT", help="The body as text; '-' reads standard input, '@FILE' a file."
)
@click.option(
    "--at",
    "deliver_at",
    metavar="TIME",
    help="Not to be delivered before: 18:00 (local), a time with a date, or a span such as 2h.",
)
@mpa.json_option
def send(
    app: App,
    url: str,
    sender: str,
    message_id: str | None,
    timestamp: str | None,
    method: str,
    headers: tuple[str, ...],
    body: str | None,
    deliver_at: str | None,
    as_json: bool,
) -> int:
    """Hand over a message to be delivered to a URL.

    A message is known by its id, timestamp, sender and URL together: with all four, the command may
    be repeated, and the message is delivered once. 'milepost up' or 'milepost work' delivers it.
    """
    now = datetime.now(UTC)
    given: dict[str, Any] = {
        "messageId": message_id or str(uuid4()),
        "timestamp": timestamp or mpa.iso(_ms(now)),
        "senderId": sender,
        "targetUrl": url,
        "method": method,
        "headers": dict(_header(text) for text in headers),
        "body": None if body is None else _text(body),
        "deliverAt": None
        if deliver_at is None
        else mpa.iso(mpa.moment_ms(deliver_at, _ms(now), "--at", mpa.local_zone())),
    }
    try:
        message = read_message(msgspec.json.encode(given), app.settings.largest_body)
    except MessageRefused as refused:
        raise mp.UsageError(refused.text) from None
    keep_fresh(app)
    reason = app.state.destinations.refusal(message.content["targetUrl"])
    if reason is not None:
        raise mp.UsageError(
            f"{url}: requests to its address are refused ({reason}); to allow them, add its network to allow_cidrs"
        )
    if app.state.destinations.of(message.content["targetUrl"]) is None:
        raise mp.UsageError(
            f"{url} belongs to no destination, and unregistered targets are refused; see 'milepost notifications destinations'"
        )
    [receipt] = app.submit(
        app.settings.route, message.content, by=sender, not_before=message.deliver_at
    )
    answer, error = ("known", "") if is_repeat(receipt) else (receipt.answer, receipt.error)
    cancelled = answer == "known" and receipt.status is mp.Status.CANCELLED
    if as_json:
        found = {
            "answer": answer,
            "key": receipt.key,
            "messageId": message.message_id,
            "status": receipt.status,
            "error": error or None,
        }
        mpa.print_json(found)
    else:
        said = (
            CANCELLED.format(key=shlex.quote(receipt.key))
            if cancelled
            else SAID.get(answer, f"is refused: {error}")
        )
        click.echo(f"{message.message_id} {said}")
        if answer in ("new", "known") and not cancelled:
            _say_held(app, lanes_of(app, message.sender_id, message.content["targetUrl"]))
    return 0 if answer in ("new", "known") else 1


@application.command("list")
@sender_option
@destination_option
@click.option(
    "--status",
    multiple=True,
    metavar="STATUS",
    help="A status, 'failed' or 'live'; may be repeated.",
)
@cause_option
@from_option
@before_option
@click.option(
    "--oldest-first",
    is_flag=True,
    help="The message that was accepted first comes first [the last one].",
)
@click.option(
    "--limit",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many at most.",
)
@click.option(
    "--after", metavar="TOKEN", help="The next page, by the token that the page before has printed."
)
@mpa.json_option
def list_command(
    app: App,
    status: tuple[str, ...],
    oldest_first: bool,
    limit: int,
    after: str | None,
    as_json: bool,
    **chosen: str | None,
) -> None:
    """List messages, newest first, by sender, destination, status and time."""
    found = message_page(
        app, _filter(chosen, status), limit=limit, after=after, oldest_first=oldest_first
    )
    if as_json:
        mpa.print_json(found)
        return
    if not found.messages:
        click.echo(f"No message matches.{_hint(app, chosen)}")
        return
    columns = ("messageId", "senderId", "destination", "status", "createdAt")
    rows = [
        (*(one[name] for name in columns), one["blocked"] or next_try(one), _error(one["error"]))
        for one in found.messages
    ]
    mpa.print_table((*columns, "next try", "error"), rows)
    mpa.print_next_page(found.next, found.ordered)


@application.command()
@click.argument("message")
@sender_option
@mpa.json_option
def show(app: App, message: str, sender: str | None, as_json: bool) -> None:
    """Show the record of a message, by its key or its messageId.

    'attempts' counts the failed tries that the schedule has counted since the message was last sent
    again, 'tries' the finished HTTP tries since then, the successful one too; 'totalAttempts' and
    'totalTries' count all.

    'dlqBound' is a field of the original design, and always false: a dead letter
    (MAX_RETRIES_EXCEEDED or REJECTED) goes to no queue but stays in the ledger; 'milepost
    notifications dead-letters' shows them.
    """
    key = find_key(app, message, sender)
    shown, found = app.show(app.settings.route, key), read_record(app, key)
    assert shown is not None
    assert found is not None
    if as_json:
        mpa.print_json(found)
        return
    simple = [
        (name, value)
        for name, value in found.items()
        if value is not None and not isinstance(value, (dict, list))
    ]
    plain = [
        (name, str(value).lower() if isinstance(value, bool) else value) for name, value in simple
    ]
    mpa.print_table(("field", "value"), [*plain, *_result(found)])
    if found["status"] in ("PENDING", "QUEUED", "WAITING", "RETRY_SCHEDULED"):
        names = [found["destination"], *lanes_of(app, found["senderId"], found["targetUrl"])[1:]]
        for view in destination_views(app, names, in_shell=True):
            if view["state"] in HELD:
                click.echo(f"\nIt waits for {found['destination']}: {_why(view)}")
    if not found.get("removed"):
        _show_timeline(timeline_of(shown))
    if found.get("nextRetryAt") is not None or waits_for_time(
        found["status"], found.get("deliverAt")
    ):
        said = what_next(app, shown)
        click.echo(f"\n{said[0].upper()}{said[1:]}")
    if found["status"] in ("MAX_RETRIES_EXCEEDED", "REJECTED"):
        click.echo(
            "\nIt is a dead letter. When its cause is mended, send it again (--body TEXT: with another body):"
        )
        click.echo(f"  milepost notifications replay {shlex.quote(found['key'])} {SIGNED}")


@application.command(ledger="write")
@click.argument("message")
@sender_option
@mpa.signed
@mpa.json_option
def cancel(
    app: App, message: str, sender: str | None, by: str | None, reason: str | None, as_json: bool
) -> None:
    """Cancel a message that has had no try."""
    name, why = mpa.check_signed(by, reason)
    key = find_key(app, message, sender)
    cancel_message(app, key, by=name, reason=why)
    _said(f"{message} is cancelled.", {"key": key, "status": "CANCELLED"}, as_json)


@application.command(ledger="write")
@click.argument("messages", nargs=-1)
@sender_option
@destination_option
@cause_option
@from_option
@before_option
@click.option("--all", "everything", is_flag=True, help="All dead letters.")
@click.option(
    "--pace", metavar="RATE", help="Rate for each destination, such as 10/s [its own limits alone]."
)
@click.option(
    "--body",
    metavar="TEXT",
    help="Another body for a single message; '-' reads standard input, '@FILE' a file.",
)
@dry_run_option
@mpa.signed
@mpa.json_option
def replay(
    app: App,
    messages: tuple[str, ...],
    everything: bool,
    pace: str | None,
    body: str | None,
    dry_run: bool,
    by: str | None,
    reason: str | None,
    as_json: bool,
    **chosen: str | None,
) -> None:
    """Send messages again: those named, or all dead letters that match.

    Each gets a new series of tries, and its earlier history is kept. With --dry-run the command
    counts what would be sent.
    """
    name, why = mpa.check_signed(by, reason, dry_run=dry_run)
    if messages:
        if dry_run or (body is not None and len(messages) > 1):
            raise mp.UsageError("--dry-run is for a filter, and --body for a single message")
        keys: list[str] = []
        for one in messages:
            key = find_key(app, one, chosen["sender"])
            replay_message(
                app,
                key,
                by=name,
                reason=why,
                changes=None if body is None else {"body": _text(body)},
            )
            keys.append(key)
        _said(f"{len(messages)} sent again.", {"replayed": len(messages)}, as_json)
        if not as_json:
            _say_scheduled(app, keys)
        return
    if not everything and not any(chosen.values()):
        raise mp.UsageError(
            "name messages, give a filter (--sender, --destination, --cause, --from, --before), or --all"
        )
    report = replay_all(app, _filter(chosen), by=name, reason=why, dry_run=dry_run, pace=pace)
    if as_json:
        mpa.print_json(report)
        return
    done = (
        f"{report.matched:,} would be sent again"
        if dry_run
        else f"{report.replayed:,} of {report.matched:,} sent again"
    )
    more = ", and there are more: repeat the command" if report.more else ""
    click.echo(f"{done}{more}.{'' if report.matched else _hint(app, chosen)}")
    for title, counts in (
        (("sender", report.senders), ("destination", report.destinations)) if report.matched else ()
    ):
        mpa.print_table((title, "messages"), list(counts.items())[:20], right=("messages",))
    _say_held(app, list(report.destinations))


@application.command("dead-letters")
@mpa.json_option
def dead_letters_command(app: App, as_json: bool) -> None:
    """Show dead letters by destination and error; faults of the pipeline come first."""
    found = dead_letters(app)
    if as_json:
        mpa.print_json(found)
        return
    about = (
        ""
        if found.exact
        else " Those of all destinations are counted together, with messages that are tried again."
    )
    click.echo(f"{found.total:,} dead {'letter' if found.total == 1 else 'letters'}.{about}")
    rows = [
        (
            one.messages,
            one.destination or "all",
            one.fault,
            one.category,
            one.sample,
            one.last_at,
            one.cause,
        )
        for one in causes(found)
    ]
    if rows:
        mpa.print_table(
            ("messages", "destination", "fault", "category", "error", "last", "cause"),
            rows,
            right=("messages",),
        )
        one_alone = "" if found.exact else "; --destination NAME: one destination alone"
        click.echo(
            f"\nWhen a cause is mended, send its messages again (--dry-run instead of --by and --reason: only count them{one_alone}):"
        )
        for one in causes(found):
            click.echo(f"  {one.command} {SIGNED}")


@application.command()
@click.argument("names", metavar="[NAME]...", nargs=-1)
@mpa.json_option
def destinations(app: App, names: tuple[str, ...], as_json: bool) -> None:
    """Show destinations, all or those named, with their state, backlog, success rate and times of
    the last hour."""
    found = destination_views(
        app, [known_destination(app, one) for one in names] or None, in_shell=True
    )
    if as_json:
        mpa.print_json({"destinations": found})
        return
    rows = [
        (
            one["name"],
            one["state"],
            f"{one['waiting']:,}{'+' if one['waiting_more'] else ''}",
            None if one["tries"]["success_rate"] is None else f"{one['tries']['success_rate']:.1%}",
            _seconds(one["tries"]["p50_s"]),
            _seconds(one["tries"]["p95_s"]),
            "; ".join(filter(None, (_why(one), _ended_outage(one)))),
        )
        for one in found
    ]
    mpa.print_table(
        ("name", "state", "waiting", "success", "p50", "p95", "why"),
        rows,
        right=("waiting", "success", "p50", "p95"),
    )


@application.command(ledger="write")
@click.argument("destination")
@click.option(
    "--until",
    required=True,
    metavar="TIME",
    help="When it ends: 18:00 (local), a time with a date, or a span such as 2h.",
)
@drain_option
@mpa.signed
@mpa.json_option
def outage(
    app: App,
    destination: str,
    until: str,
    drain: str | None,
    by: str | None,
    reason: str | None,
    as_json: bool,
) -> None:
    """Say that a partner is down until a time: its messages wait, uncounted.

    The outage ends by itself, and the messages that have waited are sent at the rate --drain. Every
    page shows the reason. Given again, it changes the end. A pause without an end stays.
    """
    name, why = mpa.check_signed(by, reason)
    end = begin_outage(app, destination, until=until, drain=drain, by=name, reason=why)
    [found] = destination_views(app, [destination], in_shell=True)
    _said(
        f"{destination} is down until {mpa.full_time(_ms(end), mpa.local_zone())}: {why}",
        found,
        as_json,
    )


@application.command(ledger="write")
@click.argument("destination")
@mpa.signed
@mpa.json_option
def pause(app: App, destination: str, by: str | None, reason: str | None, as_json: bool) -> None:
    """Pause a destination until it is resumed: its messages wait, uncounted.

    A pause takes over from an outage, and lets nothing out. A second pause changes nothing.
    """
    name, why = mpa.check_signed(by, reason)
    done = pause_destination(app, destination, by=name, reason=why)
    held = done.pause
    before = f"{destination} was paused before, by {held.by} since {_local(str(held.since))}: {held.reason}. Nothing was changed."
    view = destination_views(app, [destination], in_shell=True)[0]
    _said(
        f"{destination} is paused." if done.changed else before,
        {**view, "changed": done.changed},
        as_json,
    )


@application.command(ledger="write")
@click.argument("destination")
@drain_option
@mpa.signed
@mpa.json_option
def resume(
    app: App, destination: str, drain: str | None, by: str | None, reason: str | None, as_json: bool
) -> int:
    """End a pause or an outage of a destination, and close its breaker."""
    name, why = mpa.check_signed(by, reason)
    done = resume_destination(app, destination, by=name, reason=why, drain=drain)
    said = (
        f"{destination} is resumed."
        if done
        else f"{destination} was neither paused nor stopped by its breaker."
    )
    _said(said, {"destination": destination, "resumed": done}, as_json)
    return 0 if done else 1


@application.command(ledger="write")
@click.argument("destination")
@click.option(
    "--force",
    is_flag=True,
    help="Although messages wait for it: they go where their URLs then belong.",
)
@mpa.signed
@mpa.json_option
def remove(
    app: App, destination: str, force: bool, by: str | None, reason: str | None, as_json: bool
) -> None:
    """Remove a destination that was added over the API.

    The act is recorded, with --by and --reason if they are given. A pause of the destination stays.
    """
    remove_destination(app, destination, force=force, by=by or "command line", reason=reason or "")
    left = left_pause(app, destination, pause_of(app, destination))
    _said(
        f"{destination} is removed.{'' if left is None else f' {left}'}",
        {"removed": destination, "left_pause": left},
        as_json,
    )


@application.command(ledger="write")
@mpa.json_option
def senders(app: App, as_json: bool) -> None:
    """Show the figures of each sender."""
    app.state.collector.turn(app, hold=False)
    found = sender_views(figures_of(app))
    if as_json:
        mpa.print_json({"senders": found})
        return
    columns = ("sender", *SENDER_COUNTS)
    rows = [
        (
            *(one[name] for name in columns),
            _seconds(one["first_try_p50_s"]),
            _seconds(one["first_try_p95_s"]),
        )
        for one in found
    ]
    mpa.print_table((*columns, "first try p50", "p95"), rows, right=columns[1:])


def _filter(chosen: dict[str, str | None], status: tuple[str, ...] = ()) -> MessageFilter:
    """The options as a filter; times without a zone are local."""
    return replace(msgspec.convert(chosen, MessageFilter), status=status, zone=mpa.local_zone())


def _hint(app: App, chosen: dict[str, str | None]) -> str:
    """The name in a filter that is not known, as a sentence; empty if each of its names is
    known."""
    name, cause = chosen["destination"], chosen["cause"]
    if name is not None and not is_known(app, name):
        known = ", ".join(sorted(app.state.destinations.all)) or "none"
        return f" There is no destination {name!r}; known are {known}, and HOST:PORT or SENDER@HOST:PORT of unregistered targets."
    if cause is not None and all(one["group"] != cause for one in app.groups(app.settings.route)):
        return f" There is no cause {cause!r}; 'milepost notifications dead-letters' names those there are."
    return ""


def _ms(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _say_held(app: App, names: list[str]) -> None:
    """Say which of these destinations hold their messages back, and why."""
    for view in destination_views(app, names, in_shell=True) if names else []:
        if view["state"] in HELD:
            click.echo(f"{view['name']} holds its messages back: {_why(view)}")


def _say_scheduled(app: App, keys: list[str]) -> None:
    """Say which of these messages wait for the time that their sender gave, and how they are sent
    now."""
    for key in keys:
        shown = app.show(app.settings.route, key)
        if shown is not None and waits_for_time(shown["status"], shown["not_before"]):
            click.echo(f"{mpa.key_parts(key)[0]} waits for its time: {what_next(app, shown)}")


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise mp.UsageError(f"--header {text!r}: write 'NAME: VALUE'")
    return name.strip(), value.strip()


def _text(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if given.startswith("@"):
        try:
            return Path(given[1:]).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise mp.UsageError(
                f"--body {given}: {getattr(error, 'strerror', None) or 'it is not text in UTF-8'}"
            ) from None
    return given


def _said(text: str, value: Any, as_json: bool) -> None:
    if as_json:
        mpa.print_json(value)
    else:
        click.echo(text)


def _error(error: dict[str, Any] | None) -> str:
    return "" if error is None else f"{error['category']}: {error['message']}"


def _pause(view: dict[str, Any]) -> str:
    paused = view["paused"]
    if paused is None:
        return ""
    until = "" if paused["until"] is None else f", until {_local(paused['until'])}"
    return f"{paused['reason']} (by {paused['by']}{until})"


def _local(at: str) -> str:
    """A time of a view for people, in the zone of this machine."""
    return mpa.full_time(_ms(datetime.fromisoformat(at)), mpa.local_zone())


def _result(record: dict[str, Any]) -> list[tuple[str, str]]:
    """The partner's last answer as a row of a table; none if it has not answered."""
    result = record.get("deliveryResult")
    if result is None or result["statusCode"] is None:
        return []
    return [
        (
            "lastAnswer",
            f"{result['statusCode']} {result['statusText']} after {result['responseTime']} ms",
        )
    ]


def _why(view: dict[str, Any]) -> str:
    """The reason of a destination's state, and the secret that this shell lacks; none for one that
    is well."""
    well = view["state"] in ("healthy", "draining")
    reason = "" if well else _pause(view) or _breaker(view["breaker"]) or view["last_error"] or ""
    return "; ".join(filter(None, (reason, view["left_pause"], view["fault"])))


def _breaker(breaker: dict[str, Any] | None) -> str:
    if breaker is None:
        return ""
    probe = (
        f", no probe before {_local(breaker['retry_at'])}"
        if breaker["state"] == "open" and breaker["retry_at"]
        else ""
    )
    return f"its breaker is {breaker['state']}{probe}; the last failure: {breaker['error']}"


def _ended_outage(view: dict[str, Any]) -> str:
    """How the last outage of a destination has ended, for a day."""
    ended = view["ended_outage"]
    return "" if ended is None else ended_text(ended, _local(ended["ended_at"]))


def _show_timeline(timeline: list[MessageMoment]) -> None:
    """The timeline, one line for each entry, and the body of the partner's last answer."""
    click.echo()
    rows = [
        (
            one.at,
            None if one.took_ms is None else f"{one.took_ms:,} ms",
            one.next_at,
            one.by,
            f"{one.what}: {one.why}" if one.why else one.what,
        )
        for one in timeline
    ]
    mpa.print_table(("at", "took", "next try", "by", "what happened"), rows, right=("took",))
    answer = next((one.answer for one in reversed(timeline) if one.answer is not None), None)
    if answer is not None and answer.body:
        click.echo(
            f"\nThe last answer of the partner:\n{answer.body}{'… (cut off)' if answer.cut else ''}"
        )


def _seconds(value: float | None) -> str | None:
    """The upper bound of a histogram's bucket."""
    return None if value is None else f"≤ {value * 1000:g} ms" if value < 1 else f"≤ {value:g} s"
