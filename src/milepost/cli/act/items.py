"""Acting on items: retry, skip, confirm, cancel, resend, rerun, replace, reschedule. Always with a name and a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

import click

from milepost.cli.config import CliSettings
from milepost.cli.filters import afford, any_given, choice_of, filters, yes_option
from milepost.cli.options import check_signed, dry_run_option, json_option, settings, signed
from milepost.cli.out import console, print_json, progress, safe, show_table, table

if TYPE_CHECKING:
    from milepost.engine.acts.bulk import ActReport
    from milepost.engine.context import Context
    from milepost.engine.resend import ResendSummary

F = TypeVar("F", bound=Callable[..., Any])
REFUSALS = 20


def _on_items(command: F) -> F:
    """What all verbs on items take: keys or filters, who and why, a preview, and the id of an act to go on with."""
    for option in (
        click.argument("route"),
        click.argument("keys", nargs=-1, metavar="[KEY]..."),
        filters,
        yes_option,
        signed,
        dry_run_option,
        click.option("--act", "act_id", metavar="ID", help="Go on with an act that was cut off (see 'milepost acts')."),
        json_option,
        settings,
    )[::-1]:
        command = option(command)
    return command


@click.command()
@click.option("--to", "to_stage", metavar="STAGE", help="Send the items back to this earlier stage.")
@click.option("--as-new", is_flag=True, help="With a new work_id: the partner is to do it afresh.")
@_on_items
def retry(given: CliSettings, **options: Any) -> int:
    """Start items again at their stage.

    Counts return to zero. Name keys, or choose by filter: 'milepost retry parcels --status failed --by ops --reason fixed'.
    """
    return _act(given, "retry", **options)


@click.command()
@_on_items
def skip(given: CliSettings, **options: Any) -> int:
    """Move items past their stage, its work undone."""
    return _act(given, "skip", **options)


@click.command()
@click.option("--output", metavar="JSON", help="What the stage answered; 'true' if not given.")
@click.option("--failed", metavar="ERROR", help="It failed: a counted try.")
@click.option("--rejected", metavar="ERROR", help="It failed for good.")
@click.option("--force", is_flag=True, help="Confirm although the answer does not cover what the stage was given; the history says so.")
@_on_items
def confirm(given: CliSettings, output: str | None, failed: str | None, rejected: str | None, **options: Any) -> int:
    """Confirm a stage by hand, as its partner would.

    --stage names the stage that is confirmed; without keys, all items at it are. An answer that does not confirm what the stage was
    given is refused, as the partner's would be; --force confirms it all the same.
    """
    from milepost.core.outcome import Done, Outcome, Reject, Retry

    if sum(value is not None for value in (output, failed, rejected)) > 1:
        raise click.UsageError("give one of --output, --failed and --rejected")
    if options["force"] and (failed is not None or rejected is not None):
        raise click.UsageError("--force confirms that the stage is done; leave out --failed and --rejected")
    stages: tuple[str, ...] = options["stages"]
    if options["act_id"] is not None and not stages and not options["keys"]:
        return _act(given, "confirm", **options)
    if len(stages) != 1:
        raise click.UsageError("name the stage that is confirmed: --stage STAGE")
    outcome: Outcome = Done(_json(output) if output is not None else True)
    if failed is not None:
        outcome = Retry(failed)
    elif rejected is not None:
        outcome = Reject(rejected)
    if options["keys"]:
        options["stages"] = ()
    return _act(given, "confirm", to_stage=stages[0], outcome=outcome, **options)


@click.command()
@_on_items
def cancel(given: CliSettings, **options: Any) -> int:
    """Take items off their route."""
    return _act(given, "cancel", **options)


@click.command()
@click.option("--from", "to_stage", metavar="STAGE", help="From this stage on; from the first if not given.")
@click.option("--as-new", is_flag=True, help="With a new work_id also at the last stage: the partner is to do it afresh.")
@click.option("--pace", metavar="RATE", help="So many at a time, such as 50/s, by the resender; else all at once. For filters.")
@_on_items
def rerun(given: CliSettings, pace: str | None, **options: Any) -> int:
    """Run completed items again.

    From the first stage, or from another. Name keys, or choose by filter: 'milepost rerun parcels --list march.csv --by ops --reason
    lost'; without a status all COMPLETED ones that match are meant. An item whose row has left is refused, unless the ledger can bring
    it back from its evidence.
    """
    from milepost.core.values.durations import rate_per_second

    return _act(given, "rerun", pace=None if pace is None else rate_per_second(pace, "--pace"), **options)


@click.command()
@click.argument("route")
@click.argument("key")
@click.option("--item", metavar="JSON", help="The content that the item is to have, whole, as it would be submitted.")
@click.option("--file", type=click.File("rb"), metavar="FILE", help="The same from a file of JSON, or - for standard input.")
@click.option("--here", is_flag=True, help="Start again at the item's own stage; at the first if not given.")
@click.option("--rerun", is_flag=True, help="Also if it is COMPLETED: run it again with the new content.")
@signed
@dry_run_option
@json_option
@settings
def replace(
    given: CliSettings,
    route: str,
    key: str,
    item: str | None,
    file: Any,
    here: bool,
    rerun: bool,
    by: str | None,
    reason: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Give an item other content.

    It starts again with it, as new work; a worker that holds it finds its outcome refused. Look at the difference first with
    --dry-run. The old content stays in the history. For many items: 'milepost submit … --replace-changed'.
    """
    if (item is None) == (file is None):
        raise click.UsageError("give the new content: --item JSON, or --file FILE")
    text = item if item is not None else file.read().decode(errors="replace")
    content = _json(text, "--item" if item is not None else file.name)
    options: dict[str, Any] = {"new": {"content": content, "here": here, "rerun": rerun}, "yes": False, "act_id": None}
    return _act(given, "replace", route=route, keys=(key,), by=by, reason=reason, dry_run=dry_run, as_json=as_json, **options)


@click.command()
@click.option("--at", required=True, metavar="TIME", help="Not before this time: 2027-01-31T08:00, or a span from now such as 2h; 'now'.")
@_on_items
def reschedule(given: CliSettings, at: str, **options: Any) -> int:
    """Set items for another time, until they start."""
    return _act(given, "reschedule", not_before=at_option(at), **options)


def at_option(text: str) -> datetime | timedelta:
    """The moment that --at names; a time without a zone is local, as all times are that the command line shows."""
    from milepost.core.values.durations import moment_ms

    now = datetime.now(UTC)
    if text.strip().lower() == "now":
        return now
    zone = datetime.now().astimezone().tzinfo
    assert zone is not None, "a local time has a zone"
    return datetime.fromtimestamp(moment_ms(text, round(now.timestamp() * 1000), "--at", zone) / 1000, UTC)


@click.command()
@click.argument("route", required=False)
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@filters
@yes_option
@signed
@dry_run_option
@click.option("--act", "act_id", metavar="ID", help="Go on with an act that was cut off (see 'milepost acts').")
@json_option
@settings
def resend(given: CliSettings, route: str | None, **options: Any) -> int:
    """Offer items' stages again now; alone: run the resender once.

    With a route and keys or filters: an external stage is offered to its partner again, and a stage of ours is called or tried again
    at once, without waiting for its time. No try is counted. 'milepost resend' by itself finds whatever is due and quiet and offers
    it again.
    """
    if route is not None:
        return _act(given, "resend", route=route, **options)
    with given.context(act=True) as ctx:
        done = _run_resender(ctx)
    if options["as_json"]:
        print_json(done)
    else:
        click.echo(f"The resender has had its run: {done}")
    return 0


def _run_resender(ctx: Context) -> ResendSummary:
    """One run to the end, and a heartbeat that says so: `doctor` then knows that a resender runs by schedule."""
    import os
    import platform

    from milepost.engine.resend import Resender
    from milepost.ports.documents import PROCESS, Process

    began, host = ctx.clock.now(), platform.node()
    done = Resender(ctx).run_once(pages=1_000_000)
    now = ctx.clock.now()
    ctx.ledger.write(PROCESS, f"{host}-resend", Process(f"{host}-resend", host, os.getpid(), began, now, {"resender": now}))
    return done


def _act(
    given: CliSettings,
    verb: str,
    *,
    route: str,
    keys: tuple[str, ...],
    by: str | None,
    reason: str | None,
    dry_run: bool,
    act_id: str | None,
    as_json: bool,
    yes: bool,
    to_stage: str | None = None,
    as_new: bool = False,
    outcome: Any = None,
    pace: float | None = None,
    not_before: datetime | timedelta | None = None,
    new: Mapping[str, Any] = {},
    force: bool = False,
    **chosen: Any,
) -> int:
    if keys and any_given(chosen):
        raise click.UsageError("give keys or filters, not both" + ("; to send items back to a stage use --to" if verb == "retry" else ""))
    if not keys and not any_given(chosen) and act_id is None:
        raise click.UsageError(f"say which items to {verb}: keys, or filters such as --status failed or --stage STAGE")
    by, reason = check_signed(by, reason, dry_run=dry_run)
    from milepost.core.confirmations import SaidBefore
    from milepost.engine.acts.bulk import act, go_on

    with given.context(act=True, dry_run=dry_run) as ctx, progress(verb, quiet=as_json) as told:
        signed_by: dict[str, Any] = {"by": by, "reason": reason, "dry_run": dry_run}
        signed_by["on_progress"] = lambda done, whole: told(done, done, whole)
        if act_id is not None and not keys and not any_given(chosen):
            report = go_on(ctx, verb, route, act_id, **signed_by)
        else:
            query = None if keys else choice_of(ctx, route, **chosen)
            if query is not None:
                afford(ctx, query, yes, quiet=as_json)
            options: dict[str, Any] = {"stage": to_stage, "as_new": as_new, "outcome": outcome, "force": force, "act_id": act_id}
            options |= {"pace": pace, "not_before": not_before, **new}
            report = act(ctx, verb, route, keys=keys or None, query=query, **options, **signed_by)
    if as_json:
        print_json(report)
    else:
        _tell(report, keys[0] if len(keys) == 1 else None)
    known = sum(isinstance(why, SaidBefore) for _, why in report.refused)
    return 1 if report.refused_count > known else 0


def _tell(report: ActReport, only: str | None) -> None:
    """Say what an act came to; `only` is the key, if it was for one item."""
    to = console()
    for one in report.difference:
        to.print(safe(f"  {one}"), soft_wrap=True)
    if only is not None and report.refused:
        [(key, why)] = report.refused
        click.echo(f"milepost: {key}: {why}", err=True)
        return
    if report.pace_per_s is not None:
        _tell_pace(report)
        return
    if not report.matched:
        to.print("No item matches; nothing was done.")
        return
    from milepost.engine.views.items import counted

    done = safe(only) if only is not None else f"{report.done:,} of {counted(report.matched, 'item')}"
    if report.dry_run:
        to.print(f"{report.verb} would be done to {done}. Nothing was changed.")
    else:
        to.print(f"{report.verb}: done to {done}" + (f" (act {report.id})" if only is None else ""))
    if report.skipped:
        to.print(f"{report.skipped:,} had been dealt with by this act before.")
    if not report.refused:
        return
    shown = table("refused", "why")
    for key, why in report.refused[:REFUSALS]:
        shown.add_row(safe(key), safe(why))
    show_table(shown)
    if report.refused_count > REFUSALS:
        to.print(f"… and {report.refused_count - REFUSALS:,} more.")


def _tell_pace(report: ActReport) -> None:
    """A rerun at a pace is only begun here."""
    from milepost.core.values.durations import short_span
    from milepost.engine.views.items import counted

    about = f"About {counted(report.matched, 'completed item')}" if report.matched else "The completed items that match"
    takes = f", in about {short_span(report.matched / (report.pace_per_s or 1) * 1000)}" if report.matched else ""
    if report.dry_run:
        console().print(f"{about} would be run again, {report.pace_per_s:,.6g} a second{takes}. Nothing was changed.")
        return
    console().print(f"{about} are run again, {report.pace_per_s:,.6g} a second{takes} (act {report.id}).")
    console().print(
        f"The resender does that ('milepost up'); 'milepost routes back-fill {report.route}' shows how far it is, and stops it."
    )


def _json(text: str, option: str = "--output") -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{option} is not JSON: {error}; text needs quotes, as in {option} '\"yes\"'") from None
