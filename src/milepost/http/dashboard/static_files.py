"""What the pages are made of: style sheets, scripts and the icon. Their address says which version they are, so that a browser keeps
them for as long as they stay the same, and has all of the new ones at once when they do not (scripts name each other relatively)."""

from __future__ import annotations

from hashlib import sha256
from importlib import resources

from starlette.responses import Response

from milepost.http.protocol.endpoint import Answer, Call, Endpoints
from milepost.http.protocol.problems import problem_error
from milepost.http.state.state import ServerState

ENDPOINTS = Endpoints(pages=True)
KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
FILES = {
    file.name: file.read_bytes()
    for file in sorted((resources.files(__package__) / "static").iterdir(), key=lambda file: file.name)
    if file.name.rpartition(".")[2] in KINDS
}
"""By the names that there are: one that somebody has made up is never given to the disk."""
VERSION = sha256(b"".join(sha256(name.encode() + b"\0" + content).digest() for name, content in FILES.items())).hexdigest()[:12]
KEPT = "public, max-age=31536000, immutable"


@ENDPOINTS.add("GET", "/static/{version}/{name}", scope=None, summary="What the pages are made of")
def file(state: ServerState, call: Call) -> Answer:
    name = call.path["name"]
    if name not in FILES:
        raise problem_error("unknown-path", f"there is no file {name!r}")
    # A page that was opened before an upgrade may still ask for the version it knows.
    kept = KEPT if call.path["version"] == VERSION else "no-cache"
    return Answer(Response(FILES[name], media_type=KINDS[name.rpartition(".")[2]], headers={"Cache-Control": kept}))
