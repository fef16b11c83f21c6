"""Commands that act on items, selected by keys or by filters: retry, skip, confirm, cancel, resend,
rerun, replace, reschedule."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import (
    F,
    act_options,
    at_option,
    check_signed,
    confirm_cost,
    dry_run_option,
    filters,
    shared_options,
    signed,
    yes_option,
)
from milepost.cli.output import console, print_json, print_refused, progress, safe

if TYPE_CHECKING:
    from milepost.engine.act_log import ActReport, Selection
    from milepost.engine.acts.verbs import Verb
    from milepost.engine.context import Context
    from milepost.engine.resend import ResendSummary
    from milepost.engine.views.item_filter import ItemFilter


def on_items(command: F, *, need_route: bool = True) -> F:
    """Add the arguments and options of every act on items: keys or filters, name and reason, dry
    run, id of an act to continue."""
    for option in (
        click.argument("route", required=need_route),
        click.argument("keys", nargs=-1, metavar="[KEY]..."),
        filters,
        yes_option,
        signed,
        dry_run_option,
        click.option(
            "--act",
            "act_id",
            metavar="ID",
            help="Continue an interrupted act (see 'milepost acts').",
        ),
        shared_options,
    )[::-1]:
        command = option(command)
    return command


def act_on_items(
    given: CliSettings,
    verb: Verb,
    *,
    route: str,
    keys: tuple[str, ...],
    by: str | None,
    reason: str | None,
    dry_run: bool,
    act_id: str | None,
    as_json: bool,
    yes: bool,
    item_filter: ItemFilter,
) -> int:
    """Run the act on the items with these keys, or on those that the filters select, and print its
    report."""
    filtered = bool(item_filter.conditions())
    if keys and filtered:
        where_to = "; to send items back to a stage use --to" if verb.name == "retry" else ""
        raise click.UsageError(f"give either keys or filters{where_to}")
    if not keys and not filtered and act_id is None:
        raise click.UsageError(
            f"no items selected to {verb.name}: give keys, or filters such as --status failed or --stage STAGE"
        )
    by, reason = check_signed(by, reason, dry_run=dry_run)
    from milepost.core.values.durations import iso
    from milepost.engine.acts.bulk import act, go_on

    with (
        given.context(act=True, dry_run=dry_run) as ctx,
        progress(verb.name, quiet=as_json) as on_progress,
    ):
        began = ctx.clock.now()
        signed_by: dict[str, Any] = {"by": by, "reason": reason, "dry_run": dry_run}
        signed_by["on_progress"] = lambda done, whole: on_progress(done, done, whole)
        if act_id is not None and not keys and not filtered:
            report = go_on(ctx, verb.name, route, act_id, **signed_by)
        else:
            selection = _selection(ctx, route, keys, item_filter, yes, quiet=as_json)
            report = act(ctx, selection, verb, act_id=act_id, **signed_by)
    if as_json:
        print_json(report)
    else:
        _print_answer(report, keys, iso(began) or "")
    return 1 if report.refused_count > report.known or report.done_nothing else 0


def _selection(
    ctx: Context,
    route: str,
    keys: tuple[str, ...],
    item_filter: ItemFilter,
    yes: bool,
    *,
    quiet: bool,
) -> Selection:
    """The items with these keys, or without keys those that match."""
    from milepost.engine.act_log import select
    from milepost.engine.views.item_filter import filter_as_given, query_of

    if keys:
        return select(ctx, route, keys=keys)
    query = query_of(ctx, route, item_filter)
    confirm_cost(ctx, query, yes, quiet=quiet)
    return select(ctx, route, query=query, asked=filter_as_given(ctx, route, item_filter))


def _print_answer(report: ActReport, keys: tuple[str, ...], began: str) -> None:
    """Print the report, and say so if it is that of an act that had finished before `began`."""
    if report.finished_at is not None and report.finished_at < began:
        console().print(
            f"Act {safe(report.id)} finished at {report.finished_at}; nothing was changed now. Its result:",
            soft_wrap=True,
        )
    _print_report(report, keys[0] if len(keys) == 1 else None)


def _print_report(report: ActReport, only: str | None) -> None:
    """Print the report of an act; `only` is the key if the act was for one item."""
    to = console()
    for one in report.difference:
        to.print(safe(f"  {one}"), soft_wrap=True)
    if only is not None and report.refused:
        [(key, why)] = report.refused
        click.echo(f"milepost: {key}: {why}", err=True)
        return
    if report.pace_per_s is not None:
        _print_pace(report)
        return
    if not report.matched:
        to.print(
            "Nothing was changed." if report.left_out else "No item matches; nothing was changed."
        )
        _print_left_out(report)
        return
    from milepost.engine.views.items import counted

    done = (
        safe(only) if only is not None else f"{report.done:,} of {counted(report.matched, 'item')}"
    )
    if report.dry_run:
        to.print(f"Dry run: {report.verb} would apply to {done}. Nothing was changed.")
    else:
        to.print(f"{report.verb}: {done}" + (f" (act {report.id})" if only is None else ""))
        if only is None and report.done:
            to.print(f"What became of them: milepost acts --id {report.id}", soft_wrap=True)
    if report.skipped:
        to.print(f"{report.skipped:,} already handled by this act in an earlier run.")
    _print_left_out(report)
    print_refused("refused", report.refused, report.refused_count)


def _print_left_out(report: ActReport) -> None:
    """Print how many items match and were left out, and why."""
    to, since = console(), report.left_out - report.from_future
    if since:
        to.print(
            f"{since:,} more {'matches, but was' if since == 1 else 'match, but were'} changed after this act began."
        )
    if report.from_future:
        match = "matches, but is" if report.from_future == 1 else "match, but are"
        cure = f"'milepost redate {report.route}' dates them as of now"
        to.print(
            f"{report.from_future:,} more {match} dated in the future: a clock was ahead when they were written; {cure}."
        )


def _print_pace(report: ActReport) -> None:
    """Print the report of a paced rerun: the act only starts it, the resender runs it."""
    from milepost.core.values.durations import short_span
    from milepost.engine.views.items import counted

    about = (
        f"About {counted(report.matched, 'completed item')}"
        if report.matched
        else "The completed items that match"
    )
    takes = (
        f", in about {short_span(report.matched / (report.pace_per_s or 1) * 1000)}"
        if report.matched
        else ""
    )
    if report.dry_run:
        console().print(
            f"{about} would run again at {report.pace_per_s:,.6g} a second{takes}. Nothing was changed."
        )
        return
    console().print(
        f"{about} will run again at {report.pace_per_s:,.6g} a second{takes} (act {report.id})."
    )
    console().print(
        f"The resender ('milepost up') starts them; 'milepost routes back-fill {report.route}' shows the progress and can stop it."
    )


def json_value(text: str, option: str = "--output") -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(
            f"{option} is not JSON: {error}; a text needs quotes, as in {option} '\"yes\"'"
        ) from None


@click.command()
@click.option(
    "--to", "to_stage", metavar="STAGE", help="Send the items back to this earlier stage."
)
@click.option(
    "--as-new", is_flag=True, help="New work_id, so that the partner does the work again."
)
@on_items
def retry(given: CliSettings, to_stage: str | None, as_new: bool, **options: Any) -> int:
    """Start items again at their stage.

    Attempts start again at zero. Give keys, or select by filter: 'milepost retry parcels --status
    failed --by ops --reason fixed'.
    """
    from milepost.engine.acts.verbs import RetryVerb

    return act_on_items(given, RetryVerb(to_stage, as_new), **options)


@click.command()
@on_items
def skip(given: CliSettings, **options: Any) -> int:
    """Skip the items' current stage without running it."""
    from milepost.engine.acts.verbs import SkipVerb

    return act_on_items(given, SkipVerb(), **options)


@click.command()
@click.option("--output", metavar="JSON", help="Output of the stage [default: true].")
@click.option("--failed", metavar="ERROR", help="The stage failed: counts as an attempt.")
@click.option("--rejected", metavar="ERROR", help="The stage failed permanently: no more attempts.")
@click.option(
    "--force",
    is_flag=True,
    help="Confirm even if the answer does not cover the stage's whole payload; the history says so.",
)
@on_items
def confirm(
    given: CliSettings,
    output: str | None,
    failed: str | None,
    rejected: str | None,
    force: bool,
    **options: Any,
) -> int:
    """Confirm a stage by hand, as its partner would.

    --stage names the stage to confirm; without keys, all items at that stage are confirmed. An
    answer that does not cover the stage's whole payload is refused, as from the partner; --force
    accepts it.
    """
    import msgspec

    from milepost.core.outcome import Done, Outcome, Reject, Retry
    from milepost.engine.acts.verbs import ConfirmVerb

    if sum(value is not None for value in (output, failed, rejected)) > 1:
        raise click.UsageError("give only one of --output, --failed and --rejected")
    if force and (failed is not None or rejected is not None):
        raise click.UsageError(
            "--force confirms that the stage is done: it cannot be combined with --failed or --rejected"
        )
    item_filter: ItemFilter = options["item_filter"]
    stages = item_filter.stages
    if options["act_id"] is not None and not stages and not options["keys"]:
        return act_on_items(given, ConfirmVerb(), **options)
    if len(stages) != 1:
        raise click.UsageError("name the stage to confirm: --stage STAGE")
    outcome: Outcome = Done(json_value(output) if output is not None else True)
    if failed is not None:
        outcome = Retry(failed)
    elif rejected is not None:
        outcome = Reject(rejected)
    if options["keys"]:
        options["item_filter"] = msgspec.structs.replace(item_filter, stages=())
    return act_on_items(given, ConfirmVerb(stages[0], outcome, force), **options)


@click.command()
@on_items
def cancel(given: CliSettings, **options: Any) -> int:
    """Cancel items: no further stage runs."""
    from milepost.engine.acts.verbs import CancelVerb

    return act_on_items(given, CancelVerb(), **options)


@click.command()
@functools.partial(on_items, need_route=False)
def resend(given: CliSettings, route: str | None, **options: Any) -> int:
    """Offer items to their stage again, or run the resender once.

    With a route and keys or filters: offer an external stage to its partner again, or run a handler
    again at once instead of at its due time. This counts no attempt. Without arguments the resender
    runs once: it finds the items of all routes whose due time has passed, and offers them again.
    """
    if route is not None:
        from milepost.engine.acts.verbs import ResendVerb

        return act_on_items(given, ResendVerb(), route=route, **options)
    with given.context(act=True) as ctx:
        done = _run_resender(ctx)
    if options["as_json"]:
        print_json(done)
    else:
        click.echo(f"Resender run: {done}")
    return 0


def _run_resender(ctx: Context) -> ResendSummary:
    """Run the resender to the end and write its heartbeat, so that `doctor` sees a resender that
    runs by schedule."""
    import os
    import platform

    from milepost.engine.resend import Resender
    from milepost.ports.documents import PROCESS, Process

    began, host = ctx.clock.now(), platform.node()
    done = Resender(ctx).run_once(pages=1_000_000)
    now = ctx.clock.now()
    ctx.ledger.write(
        PROCESS,
        f"{host}-resend",
        Process(f"{host}-resend", host, os.getpid(), began, now, {"resender": now}),
    )
    return done


@click.command()
@click.option(
    "--from", "to_stage", metavar="STAGE", help="Start at this stage instead of the first."
)
@click.option(
    "--as-new",
    is_flag=True,
    help="New work_id also at the last stage, so that the partner does the work again.",
)
@click.option(
    "--pace",
    metavar="RATE",
    help="Let the resender start them at this rate, such as 50/s [default: all at once]. Only with filters.",
)
@on_items
def rerun(
    given: CliSettings, to_stage: str | None, as_new: bool, pace: str | None, **options: Any
) -> int:
    """Run completed items again.

    They start at the first stage, or at --from. Give keys, or select by filter: 'milepost rerun
    parcels --list march.csv --by ops --reason lost'; without --status all matching COMPLETED items
    are selected. An item whose row has been removed is refused, unless the ledger can restore it
    from its evidence.
    """
    from milepost.core.values.durations import rate_per_second
    from milepost.engine.acts.verbs import RerunVerb

    rate = None if pace is None else rate_per_second(pace, "--pace")
    return act_on_items(given, RerunVerb(to_stage, as_new, rate), **options)


@click.command()
@click.argument("route")
@click.argument("key")
@click.option("--item", metavar="JSON", help="The complete new content, as for 'milepost submit'.")
@click.option(
    "--file",
    type=click.File("rb"),
    metavar="FILE",
    help="Read the content from a JSON file, or - for standard input.",
)
@click.option("--here", is_flag=True, help="Start again at the current stage instead of the first.")
@click.option("--rerun", is_flag=True, help="Also replace a COMPLETED item: run it again.")
@act_options
def replace(
    given: CliSettings,
    key: str,
    item: str | None,
    file: Any,
    here: bool,
    rerun: bool,
    **options: Any,
) -> int:
    """Replace the content of an item.

    The item starts again with the new content, as new work; an outcome from a worker that still
    holds it is refused. See the difference first with --dry-run. The history keeps the old content.
    For many items: 'milepost submit … --replace-changed'.
    """
    from milepost.engine.acts.verbs import ReplaceVerb
    from milepost.engine.views.item_filter import ItemFilter

    if (item is None) == (file is None):
        raise click.UsageError("give the new content: --item JSON, or --file FILE")
    text = item if item is not None else file.read().decode(errors="replace")
    content = json_value(text, "--item" if item is not None else file.name)
    verb = ReplaceVerb(content, here, rerun)
    return act_on_items(
        given, verb, keys=(key,), item_filter=ItemFilter(), yes=False, act_id=None, **options
    )


@click.command()
@click.option(
    "--at",
    required=True,
    metavar="TIME",
    help="Earliest start: 2027-01-31T08:00, a span from now such as 2h, or 'now'.",
)
@on_items
def reschedule(given: CliSettings, at: str, **options: Any) -> int:
    """Change the start time of items that have not started yet."""
    from milepost.engine.acts.verbs import RescheduleVerb

    return act_on_items(given, RescheduleVerb(at_option(at)), **options)
