"""`milepost confirm`: confirm a stage by hand, as its partner would."""

from __future__ import annotations

from typing import Any

import click

from milepost.cli.act.item_acts import act_on_items, json_value, on_items
from milepost.cli.config import CliSettings


@click.command()
@click.option("--output", metavar="JSON", help="What the stage answered; 'true' if not given.")
@click.option("--failed", metavar="ERROR", help="It failed: a counted try.")
@click.option("--rejected", metavar="ERROR", help="It failed for good.")
@click.option("--force", is_flag=True, help="Confirm although the answer does not cover what the stage was given; the history says so.")
@on_items
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
        return act_on_items(given, "confirm", **options)
    if len(stages) != 1:
        raise click.UsageError("name the stage that is confirmed: --stage STAGE")
    outcome: Outcome = Done(json_value(output) if output is not None else True)
    if failed is not None:
        outcome = Retry(failed)
    elif rejected is not None:
        outcome = Reject(rejected)
    if options["keys"]:
        options["stages"] = ()
    return act_on_items(given, "confirm", to_stage=stages[0], outcome=outcome, **options)
