"""The HTTP API: its description, and what it answers about the golden ledger.

Sentences for people (summaries, descriptions, problem details) are in `prose/http/`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.golden import internals
from tests.golden.history import History, Served
from tests.golden.masks import masked, steady
from tests.golden.recording import Recorder, split_prose

ROUTE = "/api/v1/routes/parcels"
WRAP = f"{ROUTE}/stages/wrap/claims"
SIGNED = {"reason": "a golden test"}
DESCRIBED = frozenset({"summary", "description"})
SENTENCES = frozenset({"title", "detail", "expected", "what", "next", "sentence", "text"})
PROBLEM = "application/problem+json"
HEADERS = ("content-type", "location", "allow", "www-authenticate", "retry-after", "cache-control")

GETS: dict[str, str] = {
    "status": "/api/v1/status",
    "counts": f"{ROUTE}/counts",
    "items": f"{ROUTE}/items?limit=3",
    "items-by-status": f"{ROUTE}/items?status=failed&stage=weigh",
    "items-overdue": f"{ROUTE}/items?overdue=true",
    "items-nearest": f"{ROUTE}/items?nearest=true&limit=2",
    "item": f"{ROUTE}/items/raised",
    "item-with-odd-key": f"{ROUTE}/items/gr%C3%B6%C3%9Fe/%D0%96%231",
    "item-completed": f"{ROUTE}/items/wrapped",
    "item-in-hand": f"{ROUTE}/items/dropped",
    "item-sealed": f"{ROUTE}/items/done",
    "history": f"{ROUTE}/history/rerun",
    "story": f"{ROUTE}/story/raised",
    "story-waiting": f"{ROUTE}/story/waiting",
    "evidence": f"{ROUTE}/evidence/done",
    "volumes": f"{ROUTE}/volumes/V1?scan=true",
    "groups": f"{ROUTE}/groups",
    "lists": "/api/v1/lists",
    "acts": "/api/v1/acts",
    "acts-of-a-verb": "/api/v1/acts?verb=retry",
    "holds": f"{ROUTE}/holds",
    "limits": f"{ROUTE}/limits",
    "events": "/api/v1/events?limit=5",
    "events-of-a-kind": "/api/v1/events?kind=offered&limit=1",
    "subscribers": "/api/v1/subscribers",
    "quarantine": "/api/v1/quarantine",
    "processes": "/api/v1/processes",
    "doctor": "/api/v1/doctor",
    "healthz": "/healthz",
    "readyz": "/readyz",
}
PROBLEMS: dict[str, tuple[str, str, Any]] = {
    "unknown-path": ("GET", "/api/v1/nowhere", None),
    "unknown-route": ("GET", "/api/v1/routes/nowhere/items", None),
    "unknown-stage": ("POST", f"{ROUTE}/stages/nowhere/claims", {"worker": "w1"}),
    "unknown-item": ("GET", f"{ROUTE}/items/nowhere", None),
    "wrong-method": ("DELETE", "/api/v1/status", None),
    "wrong-value": ("GET", f"{ROUTE}/items?limit=many", None),
    "wrong-type": ("POST", f"{ROUTE}/items", b"<items/>"),
    "malformed": ("POST", f"{ROUTE}/items", {"id": ""}),
    "unsigned": ("POST", f"{ROUTE}/acts", {"verb": "cancel", "keys": ["unwrapped"]}),
    "unlisted": (
        "POST",
        f"{ROUTE}/confirmations",
        {"key": "unwrapped", "stage": "nowhere", "value": True},
    ),
}


@pytest.fixture(scope="module")
def served(shared_copy: Path, history: History) -> Iterator[Served]:
    """For calls that change nothing."""
    with history.opened() as ledger, internals.served(ledger) as port:
        yield Served(port, history.answers["key-chief"]["key"])


@pytest.fixture
def changing(copy: Path, history: History) -> Iterator[Served]:
    """For calls that change the ledger."""
    with history.opened() as ledger, internals.served(ledger) as port:
        yield Served(port, history.answers["key-chief"]["key"])


def shown(answer: tuple[int, dict[str, str], Any]) -> dict[str, Any]:
    """An answer as it is recorded."""
    status, headers, body = answer
    return {
        "status": status,
        "headers": {name: headers[name] for name in HEADERS if name in headers},
        "body": masked(body),
    }


def inlined(value: Any, schemas: dict[str, Any], within: tuple[str, ...] = ()) -> Any:
    """A description with each named schema put in where it is used: what schemas are called makes
    no difference. That of problems, which every operation has, is left out."""
    if isinstance(value, list):
        return [inlined(inner, schemas, within) for inner in value]
    if not isinstance(value, dict):
        return value
    name = str(value.get("$ref", "")).rpartition("/")[2]
    if name in schemas:
        return (
            {"again": len(within) - within.index(name)}
            if name in within
            else inlined(schemas[name], schemas, (*within, name))
        )
    found = {}
    for key, inner in value.items():
        if key == PROBLEM:
            found[key] = "(problem)"
        elif key != "title" or not isinstance(inner, str):
            found[key] = inlined(inner, schemas, within)
    return found


def test_the_description_is_as_recorded(served: Served, golden: Recorder) -> None:
    document = served.ok("GET", "/api/openapi.json")
    document["info"]["version"] = "VERSION"
    bare, prose = split_prose(document, DESCRIBED)
    schemas, paths = bare["components"].pop("schemas"), bare.pop("paths")
    golden.json("http/openapi/document.json", inlined(bare, schemas))
    [problem] = {
        answer["content"][PROBLEM]["schema"]["$ref"].rpartition("/")[2]
        for methods in paths.values()
        for operation in methods.values()
        for answer in operation["responses"].values()
        if PROBLEM in answer.get("content", {})
    }
    golden.json("http/openapi/problem.json", inlined(schemas[problem], schemas))
    ids = {
        f"{method.upper()} {path}": {
            "id": operation.pop("operationId"),
            "tags": operation.pop("tags"),
        }
        for path, methods in paths.items()
        for method, operation in methods.items()
    }
    golden.json("http/openapi/operation-ids.json", ids)
    golden.json("http/openapi/paths.json", inlined(paths, schemas))
    golden.text("http/openapi/schema-names.txt", "\n".join(sorted(schemas)))
    of_schemas = {
        place: text for place, text in prose.items() if place.startswith("/components/schemas/")
    }
    others = {place: text for place, text in prose.items() if place not in of_schemas}
    golden.json(
        "prose/http/openapi.json", {**others, "/components/schemas": sorted(of_schemas.values())}
    )


@pytest.mark.parametrize("name", GETS)
def test_an_answer_is_as_recorded(name: str, served: Served, golden: Recorder) -> None:
    names = SENTENCES | {"where", "why", "warnings"} if name.startswith("story") else SENTENCES
    found = shown(served.call("GET", GETS[name]))
    if name == "processes":
        found["body"]["processes"].sort(key=json.dumps)
    bare, prose = split_prose(found, names)
    golden.json(f"http/{name}.json", bare)
    if prose:
        golden.json(f"prose/http/{name}.json", prose)


def test_the_stream_of_events_is_as_recorded(served: Served, golden: Recorder) -> None:
    """Server-sent events: the first two of them."""
    golden.text(
        "http/events-stream.txt",
        steady(served.first_of_stream("/api/v1/events?after=0&route=parcels", 2)),
    )


def test_one_list_and_one_act_are_answered_as_recorded(served: Served, golden: Recorder) -> None:
    listed = served.ok("GET", "/api/v1/lists")["lists"][0]["id"]
    act = served.ok("GET", "/api/v1/acts?verb=retry")["acts"][0]["id"]
    golden.json("http/list.json", shown(served.call("GET", f"/api/v1/lists/{listed}")))
    golden.json("http/act.json", shown(served.call("GET", f"/api/v1/acts/{act}")))


def test_problems_are_told_as_recorded(served: Served, golden: Recorder) -> None:
    found = {name: shown(served.call(*asked)) for name, asked in PROBLEMS.items()}
    found["no-key"] = shown(Served(served.port).call("GET", "/api/v1/status"))
    bare, prose = split_prose(found, SENTENCES)
    golden.json("http/problems.json", bare)
    golden.json("prose/http/problems.json", prose)


def test_changes_are_answered_as_recorded(changing: Served, golden: Recorder) -> None:
    """One call after the other, each as it is answered."""
    calls: dict[str, tuple[str, str, Any]] = {
        "submit": (
            "POST",
            f"{ROUTE}/items",
            [{"id": "new"}, {"id": "wrapped"}, {"id": "torn"}, {"no": "key"}],
        ),
        "submit-one": ("POST", f"{ROUTE}/items", {"id": "single"}),
        "claim": ("POST", WRAP, {"worker": "w9", "want": 1, "lease": "10m"}),
        "confirm": (
            "POST",
            f"{ROUTE}/confirmations",
            {"key": "rerun", "stage": "deliver", "value": {"step": "back"}},
        ),
        "confirm-again": (
            "POST",
            f"{ROUTE}/confirmations",
            {"key": "rerun", "stage": "deliver", "value": {"step": "back"}},
        ),
        "act": (
            "POST",
            f"{ROUTE}/acts",
            {"verb": "cancel", "keys": ["unwrapped", "nowhere"], "id": "golden-act", **SIGNED},
        ),
        "act-preview": (
            "POST",
            f"{ROUTE}/acts",
            {"verb": "retry", "filter": {"status": ["failed"]}, "dry_run": True},
        ),
        "hold": ("PUT", f"{ROUTE}/holds/weigh", SIGNED),
        "resume": ("DELETE", f"{ROUTE}/holds/weigh?reason=a+golden+test", None),
        "limit": (
            "PUT",
            f"{ROUTE}/limits/weigh/north",
            {"rate": "5/s", "concurrency": 2, **SIGNED},
        ),
        "unlimit": ("DELETE", f"{ROUTE}/limits/weigh/north?reason=a+golden+test", None),
        "prune": (
            "POST",
            f"{ROUTE}/prune",
            {"older_than": "1d", "statuses": ["CANCELLED"], "dry_run": True, **SIGNED},
        ),
        "release": ("POST", "/api/v1/subscribers/office/release", SIGNED),
        "replay": ("POST", "/api/v1/subscribers/log/replay", {"since": "2d", **SIGNED}),
        "forget": ("POST", "/api/v1/subscribers/log/forget", SIGNED),
    }
    found = {name: shown(changing.call(*asked)) for name, asked in calls.items()}
    status, headers, body = changing.call(
        "POST",
        f"{ROUTE}/items?name=monday&full=true",
        b'{"id": "l1"}\n{"id": 7,\n',
        {"Content-Type": "application/x-ndjson"},
    )
    found["submit-list"] = shown((status, headers, body))
    assert [name for name, answer in found.items() if answer["status"] >= 400] == []
    bare, prose = split_prose(found, SENTENCES)
    golden.json("http/changes.json", bare)
    golden.json("prose/http/changes.json", prose)


def test_calls_of_remote_workers_are_answered_as_recorded(
    history: History, golden: Recorder
) -> None:
    names = (
        "claims",
        "claims-again",
        "extend",
        "settle",
        "give-back",
        "late",
        "confirm",
        "in-hand",
    )
    golden.json("http/remote-work.json", masked({name: history.answers[name] for name in names}))


def test_metrics_are_as_recorded(changing: Served, golden: Recorder) -> None:
    """Names, labels and types; values only where they come from the ledger."""
    changing.ok("POST", f"{ROUTE}/items", {"id": "counted"})
    _, headers, text = changing.call("GET", "/metrics")
    lines = [_sample(line) for line in text.splitlines() if not line.startswith("# HELP")]
    golden.text(
        "metrics/exposition.txt", "\n".join([headers["content-type"], *dict.fromkeys(lines)])
    )
    golden.text(
        "prose/metrics.txt",
        "\n".join(line for line in text.splitlines() if line.startswith("# HELP")),
    )
    _, headers, text = changing.call(
        "GET", "/metrics", headers={"Accept": "application/openmetrics-text"}
    )
    lines = [_sample(line) for line in text.splitlines() if not line.startswith("# HELP")]
    golden.text(
        "metrics/openmetrics.txt", "\n".join([headers["content-type"], *dict.fromkeys(lines)])
    )


def _sample(line: str) -> str:
    if line.startswith("#"):
        return line
    name, _, value = line.rpartition(" ")
    known = name.startswith(
        ("milepost_items", "milepost_subscriber", "milepost_submits", "milepost_processes")
    )
    name = (
        steady(name)
        if "build_info" not in name
        else name.partition("{")[0] + '{version="VERSION",python="PYTHON"}'
    )
    return f"{name} {value if known else 'N'}"


def test_metric_families_are_as_recorded(golden: Recorder) -> None:
    """Those too that have no samples yet."""
    families = internals.metric_families()
    golden.json(
        "metrics/families.json",
        [{name: value for name, value in family.items() if name != "help"} for family in families],
    )
    golden.json(
        "prose/metric-families.json", {family["name"]: family["help"] for family in families}
    )
