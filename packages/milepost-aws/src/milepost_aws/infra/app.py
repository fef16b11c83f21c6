"""Command: reads route files and writes a CloudFormation template. Needs neither a network nor an
account."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from milepost.application.declaration import ConfiguredApplication
from milepost.core.errors import MilepostError
from milepost.core.values.durations import span_ms
from milepost.route_files import load_application, load_routes
from milepost_aws.infra.settings import RELAY_AT_ONCE, Settings
from milepost_aws.ledger.tables.documents import KNOWN_FORMAT

DEFAULT_CODE = "build/code"
DEFAULT_OUT = "build/synth"
ALERTS_MS = 60_000
"""Interval between two checks of alerts: the shortest one that the scheduler allows."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0: the template is written, and its name printed. 2: the arguments are wrong, and the error
    is printed."""
    asked = _parser().parse_args(arguments)
    try:
        applications = [load_application(spec).configured() for spec in asked.application]
        settings = Settings(
            prefix=asked.prefix,
            routes=tuple(
                load_routes(asked.routes, [route for one in applications for route in one.routes])
            ),
            routes_in_code=places_in_code(asked.routes),
            applications_in_code=places_in_code(asked.application),
            variables=variables_of([one.name for one in applications], os.environ),
            services=services_of(applications),
            access=tuple(access for one in applications for access in one.aws),
            secrets={
                variable: secret
                for variable, _, secret in (one.partition("=") for one in asked.secret)
            },
            endpoints=tuple(
                (part.method, part.path) for one in applications for part in one.accepting
            ),
            code=Path(asked.code),
            alarm_emails=tuple(asked.alarm_email),
            alarm_topic=asked.alarm_topic,
            key=asked.key,
            reserve=asked.reserve,
            relay_at_once=asked.relay_at_once,
            stream_window_s=asked.stream_window,
            warm_units=asked.warm_throughput,
            tables_format=asked.tables_format,
            repair_within_ms=None
            if asked.repair_within is None
            else span_ms(asked.repair_within, "--repair-within"),
        )
        print(synth(settings, Path(asked.out)))
    except MilepostError as error:
        print(f"infra: {error}", file=sys.stderr)
        return 2
    return 0


def services_of(applications: Iterable[ConfiguredApplication[Any]]) -> dict[str, int]:
    """The services of applications that a schedule calls, and the watches for their alerts, with
    the milliseconds between two calls."""
    found: dict[str, int] = {}
    for one in applications:
        found |= {
            f"{one.name}-{part.name}": part.every_ms
            for part in one.application.services
            if not part.per_process
        }
        found |= {rule.watch_name: ALERTS_MS for rule in one.alert_rules}
    return found


def synth(settings: Settings, out: Path) -> Path:
    """Write the template and its assets; returns the template's path."""
    # Import only now: node takes a second to start, and a mistake in the arguments should be
    # reported at once.
    import aws_cdk as cdk

    from milepost_aws.infra.nag import check
    from milepost_aws.infra.stack import MilepostStack

    app = cdk.App(outdir=str(out), analytics_reporting=False, tree_metadata=False)
    stack = MilepostStack(app, settings)
    check(app, stack)
    app.synth()
    return out / stack.template_file


def places_in_code(specs: Sequence[str]) -> str:
    """The same routes or applications as the functions name them: files are in the folder `routes`
    of the code, modules are installed."""
    return ",".join(
        f"routes/{Path(place).name}{colon}{name}" if is_file(place) else spec
        for spec in specs
        for place, colon, name in [spec.partition(":")]
    )


def variables_of(applications: Sequence[str], environment: Mapping[str, str]) -> dict[str, str]:
    """The applications' settings in this environment, which the functions get too."""
    beginnings = tuple(f"MILEPOST_{name}_".upper().replace("-", "_") for name in applications)
    return (
        {name: value for name, value in environment.items() if name.startswith(beginnings)}
        if beginnings
        else {}
    )


def is_file(place: str) -> bool:
    return place.endswith(".py") or "/" in place or os.sep in place


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m milepost_aws.infra",
        description="Make a CloudFormation template from route files and applications.",
    )
    parser.add_argument(
        "--routes",
        action="append",
        default=[],
        metavar="FILE.py[:NAME]",
        help="a route file or module; may be repeated",
    )
    parser.add_argument(
        "--application",
        action="append",
        default=[],
        metavar="NAME|FILE.py",
        help="an application, with its settings from the environment (MILEPOST_NAME_FIELD); may be repeated",
    )
    parser.add_argument(
        "--secret",
        action="append",
        default=[],
        metavar="VARIABLE=NAME",
        help="a variable of the functions' environment with the value of a secret in Secrets Manager (its name or ARN); may be repeated",
    )
    parser.add_argument("--prefix", required=True, help="prefix of all names, such as 'prod'")
    parser.add_argument(
        "--alarm-email",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="receiver of alarms; may be repeated",
    )
    parser.add_argument(
        "--key",
        metavar="new|ARN",
        help="encrypt with a customer-managed key: a new one, or the one with this ARN",
    )
    parser.add_argument(
        "--no-reserve",
        dest="reserve",
        action="store_false",
        help="reserve no concurrency for relay and resender (a new account's limit of 10 functions at once leaves no room for it)",
    )
    parser.add_argument(
        "--relay-at-once",
        type=int,
        default=RELAY_AT_ONCE,
        metavar="N",
        help=f"instances of the relay for each route, reserved for it and its maximum [{RELAY_AT_ONCE}]",
    )
    parser.add_argument(
        "--stream-window",
        type=int,
        default=0,
        metavar="SECONDS",
        help="how long a stream waits until a call of the relay is full [0]",
    )
    parser.add_argument(
        "--warm-throughput",
        type=int,
        metavar="UNITS",
        help="write units a second for which the tables of rows and their indexes are prepared; charged once",
    )
    parser.add_argument(
        "--tables-format",
        type=int,
        default=KNOWN_FORMAT,
        metavar="N",
        help=f"1: until 'milepost upgrade' is run on a deployment of an earlier version, workers may write what its tables need [{KNOWN_FORMAT}]",
    )
    parser.add_argument(
        "--repair-within",
        metavar="SPAN",
        help="time in which the daily repair scan should end, such as 12h [6h]",
    )
    parser.add_argument(
        "--alarm-topic", metavar="ARN", help="a topic of your own for alarms, in place of addresses"
    )
    parser.add_argument(
        "--code",
        default=DEFAULT_CODE,
        metavar="FOLDER",
        help=f"the functions' code, as milepost_aws.infra.bundle makes it [{DEFAULT_CODE}]",
    )
    parser.add_argument(
        "--out",
        default=os.environ.get("CDK_OUTDIR", DEFAULT_OUT),
        metavar="FOLDER",
        help=f"where to write [{DEFAULT_OUT}]",
    )
    return parser
