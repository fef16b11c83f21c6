"""Targets of acts: items, by keys or filters, or the scope of a control; with the options, the run and the report of an act."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from milepost.cli.config import CliSettings
from milepost.cli.options import F, check_signed, confirm_cost, dry_run_option, filters, query_of, shared_options, signed, yes_option
from milepost.cli.out import console, print_json, print_table, progress, safe

if TYPE_CHECKING:
    from milepost.engine.act_log import ActReport

REFUSALS = 20


def on_items(command: F, *, need_route: bool = True) -> F:
    """Add the arguments and options of every act on items: keys or filters, name and reason, dry run, id of an act to continue."""
    for option in (
        click.argument("route", required=need_route),
        click.argument("keys", nargs=-1, metavar="[KEY]..."),
        filters,
        yes_option,
        signed,
        dry_run_option,
        click.option("--act", "act_id", metavar="ID", help="Continue an interrupted act (see 'milepost acts')."),
        shared_options,
    )[::-1]:
        command = option(command)
    return command


def act_on_items(
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
    if keys and any(chosen.values()):
        raise click.UsageError("give either keys or filters" + ("; to send items back to a stage use --to" if verb == "retry" else ""))
    if not keys and not any(chosen.values()) and act_id is None:
        raise click.UsageError(f"no items selected to {verb}: give keys, or filters such as --status failed or --stage STAGE")
    by, reason = check_signed(by, reason, dry_run=dry_run)
    from milepost.engine.acts.bulk import act, go_on

    with given.context(act=True, dry_run=dry_run) as ctx, progress(verb, quiet=as_json) as on_progress:
        signed_by: dict[str, Any] = {"by": by, "reason": reason, "dry_run": dry_run}
        signed_by["on_progress"] = lambda done, whole: on_progress(done, done, whole)
        if act_id is not None and not keys and not any(chosen.values()):
            report = go_on(ctx, verb, route, act_id, **signed_by)
        else:
            query = None if keys else query_of(ctx, route, **chosen)
            if query is not None:
                confirm_cost(ctx, query, yes, quiet=as_json)
            options: dict[str, Any] = {"stage": to_stage, "as_new": as_new, "outcome": outcome, "force": force, "act_id": act_id}
            options |= {"pace": pace, "not_before": not_before, **new}
            report = act(ctx, verb, route, keys=keys or None, query=query, **options, **signed_by)
    if as_json:
        print_json(report)
    else:
        _print_report(report, keys[0] if len(keys) == 1 else None)
    return 1 if report.refused_count > report.known else 0


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
        to.print("No item matches; nothing was changed.")
        return
    from milepost.engine.views.items import counted

    done = safe(only) if only is not None else f"{report.done:,} of {counted(report.matched, 'item')}"
    if report.dry_run:
        to.print(f"Dry run: {report.verb} would apply to {done}. Nothing was changed.")
    else:
        to.print(f"{report.verb}: {done}" + (f" (act {report.id})" if only is None else ""))
    if report.skipped:
        to.print(f"{report.skipped:,} already handled by this act in an earlier run.")
    print_refused("refused", report.refused, report.refused_count)


def print_refused(title: str, refused: Sequence[tuple[str, str]], count: int) -> None:
    """Print the first items that were refused, each with the reason, and how many more there are."""
    if refused:
        print_table((title, "why"), refused[:REFUSALS])
        if count > REFUSALS:
            console().print(f"… and {count - REFUSALS:,} more.")


def _print_pace(report: ActReport) -> None:
    """Print the report of a paced rerun: the act only starts it, the resender runs it."""
    from milepost.core.values.durations import short_span
    from milepost.engine.views.items import counted

    about = f"About {counted(report.matched, 'completed item')}" if report.matched else "The completed items that match"
    takes = f", in about {short_span(report.matched / (report.pace_per_s or 1) * 1000)}" if report.matched else ""
    if report.dry_run:
        console().print(f"{about} would run again at {report.pace_per_s:,.6g} a second{takes}. Nothing was changed.")
        return
    console().print(f"{about} will run again at {report.pace_per_s:,.6g} a second{takes} (act {report.id}).")
    console().print(
        f"The resender ('milepost up') starts them; 'milepost routes back-fill {report.route}' shows the progress and can stop it."
    )


def json_value(text: str, option: str = "--output") -> Any:
    import msgspec

    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{option} is not JSON: {error}; a text needs quotes, as in {option} '\"yes\"'") from None


class ControlScope(NamedTuple):
    """Where a control applies, and who sets it why."""

    name: str
    place: tuple[str, str | None, str | None]
    signed: dict[str, Any]


def on_scope(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the arguments that name the scope (route, stage as argument or option, lane), --by and --reason; the command gets them as one
    ControlScope."""

    @functools.wraps(command)
    def with_scope(
        given: CliSettings,
        route: str,
        stage_word: str | None,
        stage: str | None,
        lane: str | None,
        by: str | None,
        reason: str | None,
        **options: Any,
    ) -> Any:
        if stage is not None and stage_word is not None and stage != stage_word:
            raise click.UsageError(f"two different stages given: {stage_word!r} and {stage!r}")
        from milepost.core.admission.controls import scope

        place = (route, stage or stage_word, lane)
        by, reason = check_signed(by, reason)
        return command(given, ControlScope(scope(*place), place, {"by": by, "reason": reason}), **options)

    wrapped: Callable[..., Any] = with_scope
    for option in (
        click.argument("route"),
        click.argument("stage_word", metavar="[STAGE]", required=False),
        click.option("--stage", metavar="STAGE", help="One stage of the route."),
        click.option("--lane", metavar="LANE", help="One lane of the stage."),
        signed,
        shared_options,
    )[::-1]:
        wrapped = option(wrapped)
    return wrapped
