"""Evidence of an item, as a file."""

from __future__ import annotations

import io
import re

from starlette.responses import Response

from milepost.core.errors import LedgerDamaged
from milepost.engine.evidence import records_of
from milepost.engine.heads.evidence_lines import entries, first_line
from milepost.engine.known_keys import known_key
from milepost.evidence.files import write_file
from milepost.http.protocol.endpoint import Answer, Call, attachment, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState

LONGEST_NAME = 80


@endpoint(
    "GET",
    "/api/v1/routes/{route}/evidence/{key:path}",
    scope="read",
    answers={200: str},
    summary="The evidence of an item, as a file that can be checked offline",
)
def evidence(state: ServerState, call: Call) -> Answer:
    """JSON Lines, as `milepost export ROUTE KEY --evidence` writes them; `milepost verify FILE`
    checks them without the ledger and without a network. The file is not signed: the signing key is
    available only on a machine with access to the ledger (`--sign`). For an item whose row has
    left, the file holds the kept evidence, or the seal; earlier lives of the key follow it. If the
    kept evidence is lost, the call fails. For a key that sees all routes, the file names the newest
    line of the ledger."""
    from milepost import __version__

    plan = state.plan(call)
    key = known_key(state.ctx, plan.name, call.path["key"])
    records = records_of(state.ctx, plan.name, key)
    if not records:
        raise problem_error("unknown-item", f"{plan.name} has no item {key!r}", field="key")
    lost = next((found.lost for found in records if found.lost), "")
    if lost:
        raise LedgerDamaged(f"{plan.name}/{key}: {lost}")
    first = first_line(
        state.ctx, plan.name, __version__, {"keys": [key]}, sees_all=call.caller.routes is None
    )
    out = io.BytesIO()
    write_file(out, first, entries(state.ctx, records, None, []), None)
    return Answer(
        Response(
            out.getvalue(), media_type="text/plain", headers=attachment(file_name(plan.name, key))
        )
    )


def file_name(route: str, key: str) -> str:
    """A file name that is valid on every file system and in every header, for any key."""
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '_', f'{route}-{key}')[:LONGEST_NAME]}.evidence.jsonl"
