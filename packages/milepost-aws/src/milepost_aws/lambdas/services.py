"""Services function: gives each application's service one turn, on a schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from milepost.application.installation import services
from milepost.core.errors import MilepostError
from milepost_aws.lambdas.start import LambdaContext, called, log, opened


def handler(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
    """Run all services for {}, one of them for {"service": "APPLICATION-NAME"}. A failing service
    stops no other; the call then fails at the end, which triggers the function's error alarm."""
    with called(context):
        ready = opened()
        wanted = event.get("service")
        found = [
            one
            for one in services(ready.ctx, ready.applications, per_process=False)
            if wanted in (None, one.name)
        ]
        seconds = {one.name: one.turn() for one in found}
        failed = [one.name for one in found if one.failed]
        ready.beat(
            context,
            {one.name: one.stands_still for one in found if one.name not in failed},
            seconds,
        )
        if failed:
            raise MilepostError(f"these services failed; the log says why: {', '.join(failed)}")
        log.info("services", extra={"ran": [one.name for one in found]})
        return {"ran": [one.name for one in found]}
