"""Static files of the pages: style sheets, scripts and the icon. Their URL contains a version, so
that a browser caches them until they change, and then loads all of the new ones (scripts refer to
each other by relative URLs)."""

from __future__ import annotations

from hashlib import sha256
from importlib import resources

from starlette.responses import Response

from milepost.http.protocol.endpoint import Answer, Call, endpoint
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState

KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FILES = {
    file.name: file.read_bytes()
    for file in sorted(
        (resources.files(__package__) / "static").iterdir(), key=lambda file: file.name
    )
    if file.name.rpartition(".")[2] in KINDS
}
"""By name: a name that is not in this table never reaches the disk."""
VERSION = sha256(
    b"".join(sha256(name.encode() + b"\0" + content).digest() for name, content in FILES.items())
).hexdigest()[:12]
KEPT = "public, max-age=31536000, immutable"


@endpoint(
    "GET",
    "/static/{version}/{name}",
    scope=None,
    page=True,
    summary="Style sheets, scripts and the icon",
)
def file(state: ServerState, call: Call) -> Answer:
    name = call.path["name"]
    if name not in FILES:
        raise problem_error("unknown-path", f"there is no file {name!r}")
    # A page that was opened before an upgrade may still ask for the version it knows.
    kept = KEPT if call.path["version"] == VERSION else "no-cache"
    return Answer(
        Response(
            FILES[name], media_type=KINDS[name.rpartition(".")[2]], headers={"Cache-Control": kept}
        )
    )
