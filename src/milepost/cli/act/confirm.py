"""`milepost confirm`: confirm a stage by hand, as its partner would."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.targets import act_on_items, json_value, on_items
from milepost.cli.config import CliSettings


@click.command()
@click.option("--output", metavar="JSON", help="Output of the stage [default: true].")
@click.option("--failed", metavar="ERROR", help="The stage failed: counts as an attempt.")
@click.option("--rejected", metavar="ERROR", help="The stage failed permanently: no more attempts.")
@click.option("--force", is_flag=True, help="Confirm even if the answer does not cover the stage's whole payload; the history says so.")
@on_items
def confirm(given: CliSettings, output: str | None, failed: str | None, rejected: str | None, **options: Any) -> int:
    """Confirm a stage by hand, as its partner would.

    --stage names the stage to confirm; without keys, all items at that stage are confirmed. An answer that does not cover the
    stage's whole payload is refused, as from the partner; --force accepts it.
    """
    from milepost.core.outcome import Done, Outcome, Reject, Retry

    if sum(value is not None for value in (output, failed, rejected)) > 1:
        raise click.UsageError("give only one of --output, --failed and --rejected")
    if options["force"] and (failed is not None or rejected is not None):
        raise click.UsageError("--force confirms that the stage is done: it cannot be combined with --failed or --rejected")
    stages: tuple[str, ...] = options["stages"]
    if options["act_id"] is not None and not stages and not options["keys"]:
        return act_on_items(given, "confirm", **options)
    if len(stages) != 1:
        raise click.UsageError("name the stage to confirm: --stage STAGE")
    outcome: Outcome = Done(json_value(output) if output is not None else True)
    if failed is not None:
        outcome = Retry(failed)
    elif rejected is not None:
        outcome = Reject(rejected)
    if options["keys"]:
        options["stages"] = ()
    return act_on_items(given, "confirm", to_stage=stages[0], outcome=outcome, **options)
