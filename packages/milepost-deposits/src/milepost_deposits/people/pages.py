"""Pages of deposits: runs and digests, one DOI, and the worklist of manual deposits with its forms;
and the endpoints of the API."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Meta, Struct

import milepost as mp
import milepost.application as mpa
from milepost_deposits.acts import FAILED, abandon, keys_of, mark_deposited, requeue, search_first
from milepost_deposits.application import application
from milepost_deposits.controls import partner_waits
from milepost_deposits.digest.mail import TWINS_ADVICE, Digest, advice_of, recipients_of, subject_of
from milepost_deposits.doi import DoiMistake, normalise
from milepost_deposits.files import FileStore
from milepost_deposits.people.doi_view import doing, fields_of, files_of, links_of, moments_of
from milepost_deposits.people.worklist import (
    PAGE,
    WorklistPage,
    claim,
    claim_in,
    person_name,
    release,
    title_of,
    whole_worklist,
    worklist_csv,
    worklist_page,
)
from milepost_deposits.runs import RunRecord, runs
from milepost_deposits.settings import DepositsApp
from milepost_deposits.status_names import FAILED as NEEDS_PEOPLE
from milepost_deposits.status_names import METADATA, handle_in, result_in, word_counts, word_of
from milepost_deposits.twins import twins, twins_of

HOME = "/deposits"
SHOWN_RUNS, SHOWN_DIGESTS, SHOWN_WORK = 30, 30, 25
DIGESTS_READ = 10_000
COLOURS = {"Success": "done", "Failed and will retry": "work", NEEDS_PEOPLE: "fail"}


Back = Annotated[str, Meta(pattern=r"^(doi|worklist(\?[!-~]{1,3000})?)\Z")]
"""The page to which a form returns: that of the DOI, or a page of the worklist."""


class FindDoi(Struct, frozen=True):
    doi: str = ""


class WorklistQuery(Struct, frozen=True):
    """Selection of DOIs of the worklist: those that hold `search`, after or before a place that
    another page names."""

    search: str = ""
    after: str = ""
    before: str = ""


class ClaimForm(Struct, frozen=True):
    doi: str
    name: str = ""
    back: Back = "worklist"


class DepositedForm(Struct, frozen=True):
    """The handle that a librarian enters."""

    doi: str
    handle: str
    reason: str
    name: str = ""
    back: Back = "worklist"


class DoiActForm(Struct, frozen=True):
    doi: str
    reason: str
    name: str = ""
    back: Back = "worklist"


class DigestForm(Struct, frozen=True):
    key: str
    reason: str


@application.page(HOME, title="Deposits")
def home(app: DepositsApp, call: mpa.Call) -> mpa.Page:
    counts = word_counts(app)
    return mpa.Page(
        "deposits.html",
        {
            "counts": [(word, count, COLOURS.get(word, "")) for word, count in counts.items()],
            "manual": counts[NEEDS_PEOPLE] + len(twins(app)),
            "waits": partner_waits(app),
            "runs": runs(app)[:SHOWN_RUNS],
            "rounds": app.settings.mode == "rounds",
            "digests": _digests(app),
            "mail": app.settings.mail,
        },
    )


@application.page(f"{HOME}/find", query=FindDoi)
def find_doi(app: DepositsApp, call: mpa.Call) -> mpa.Redirect:
    try:
        return mpa.Redirect(_doi_path(normalise(call.query.doi)))
    except DoiMistake as mistake:
        raise mp.UsageError(str(mistake)) from None


@application.page(f"{HOME}/digests/{{key}}")
def digest(app: DepositsApp, call: mpa.Call) -> mpa.Page:
    key = call.path["key"]
    view = None if app.settings.mail is None else app.show(app.settings.digests_route, key)
    if view is None or not view["input"]:
        raise mp.NotFound(f"there is no digest {key!r}")
    content = msgspec.convert(view["input"]["digest"], Digest)
    sections = [
        ("Needs a manual deposit", "manual", content.manual),
        ("Two items in DSpace", "twins", content.twins),
        ("Will be retried", "retries", content.retries),
        ("Deposited", "deposited", content.deposited),
        ("Were in DSpace already", "present", content.present),
    ]
    return mpa.Page(
        "digest.html",
        {
            "here": HOME,
            "key": key,
            "subject": subject_of(content),
            "content": content,
            "sections": [section for section in sections if section[2]],
            "mailed": _mailed(view),
            "to": ()
            if app.settings.mail is None
            else recipients_of(content.owner, app.settings.mail),
            "links": {
                entry.doi: links_of(entry.doi, entry.handle, app.settings.submit.site).item
                for entry in (*content.deposited, *content.present)
            },
        },
    )


@application.page(f"{HOME}/send-again", scope="operate", form=DigestForm)
def send_again(app: DepositsApp, call: mpa.Call) -> mpa.Redirect:
    body: DigestForm = call.body
    route = app.settings.digests_route
    refused = app.act(
        "retry", route, keys=[body.key], by=call.caller.name, reason=body.reason
    ).refused
    for why in dict(refused).values():
        raise mp.ActRefused(why)
    return mpa.Redirect(f"{HOME}/digests/{quote(body.key, safe='')}")


@application.page(f"{HOME}/worklist", query=WorklistQuery)
def work(app: DepositsApp, call: mpa.Call) -> mpa.Page:
    query: WorklistQuery = call.query
    found = worklist_page(
        app, search=query.search, after=query.after, before=query.before, most=SHOWN_WORK
    )
    site = app.settings.submit.site
    return mpa.Page(
        "worklist.html",
        {
            "here": HOME,
            "search": query.search.strip(),
            "page": found,
            "found": [(one, links_of(one.doi, None, site)) for one in found.deposits],
            "back": worklist_path(query),
        },
    )


def worklist_path(query: WorklistQuery) -> str:
    """The page of the worklist that this query asks for, to which a form returns."""
    given = urlencode({name: value for name, value in msgspec.to_builtins(query).items() if value})
    return f"worklist?{given}" if given else "worklist"


@application.page(f"{HOME}/worklist.csv", query=WorklistQuery)
def export(app: DepositsApp, call: mpa.Call) -> mpa.Download:
    return mpa.Download(
        "manual-deposits.csv",
        worklist_csv(whole_worklist(app, call.query.search)),
        "text/csv; charset=utf-8",
    )


@application.page(f"{HOME}/dois/{{doi:path}}")
def doi_page(app: DepositsApp, call: mpa.Call) -> mpa.Page:
    return _doi_page(app, call.path["doi"])


@application.page(f"{HOME}/claim", scope="operate", form=ClaimForm)
def claim_doi(app: DepositsApp, call: mpa.Call) -> mpa.Redirect | mpa.Page:
    name = call.body.name or call.caller.name
    return _act(app, call, lambda: claim(app, call.body.doi, name=name, by=_signature(call, name)))


@application.page(f"{HOME}/release", scope="operate", form=ClaimForm)
def release_doi(app: DepositsApp, call: mpa.Call) -> mpa.Redirect | mpa.Page:
    return _act(app, call, lambda: release(app, call.body.doi, by=_signature(call, call.body.name)))


@application.page(f"{HOME}/deposited", scope="operate", form=DepositedForm)
def deposited(app: DepositsApp, call: mpa.Call) -> mpa.Redirect | mpa.Page:
    body: DepositedForm = call.body
    return _act(
        app,
        call,
        lambda: mark_deposited(
            app, body.doi, body.handle, by=_signature(call, body.name), reason=body.reason
        ),
    )


@application.page(f"{HOME}/requeue", scope="operate", form=DoiActForm)
def requeue_doi(app: DepositsApp, call: mpa.Call) -> mpa.Redirect | mpa.Page:
    return _act(
        app,
        call,
        lambda: _accepted(
            requeue(
                app, [call.body.doi], by=_signature(call, call.body.name), reason=call.body.reason
            )
        ),
    )


@application.page(f"{HOME}/abandon", scope="operate", form=DoiActForm)
def abandon_doi(app: DepositsApp, call: mpa.Call) -> mpa.Redirect | mpa.Page:
    return _act(
        app,
        call,
        lambda: _accepted(
            abandon(
                app, [call.body.doi], by=_signature(call, call.body.name), reason=call.body.reason
            )
        ),
    )


def _act(app: DepositsApp, call: mpa.Call, act: Any) -> mpa.Redirect | mpa.Page:
    """Carry out an act. If it is refused, the DOI's page says why, with the form as it was filled
    in."""
    try:
        act()
    except (mp.UsageError, mp.ActRefused) as refusal:
        return _doi_page(app, call.body.doi, str(refusal), msgspec.to_builtins(call.body))
    back = call.body.back
    return mpa.Redirect(
        _doi_path(keys_of([call.body.doi])[0]) if back == "doi" else f"{HOME}/{back}"
    )


def _signature(call: mpa.Call, name: str) -> str:
    """The author of an act's line: the caller, and the person for whom it acts, if that is another
    one."""
    person = person_name(name) if name.strip() else call.caller.name
    return person if person == call.caller.name else f"{call.caller.name} for {person}"


def _accepted(refused: dict[str, str]) -> None:
    for why in refused.values():
        raise mp.ActRefused(why)


def _doi_path(doi: str) -> str:
    return f"{HOME}/dois/{quote(doi, safe='')}"


def _doi_page(
    app: DepositsApp, doi: str, problem: str = "", typed: dict[str, Any] | None = None
) -> mpa.Page:
    [key] = keys_of([doi])
    settings = app.settings
    view = app.show(settings.route, key)
    if view is None:
        raise mp.NotFound(f"{key} is not known here; take it in with a list first")
    handle, status, failed = (
        handle_in(view),
        view["status"],
        view["status"] in FAILED and not view["sealed"],
    )
    word = word_of(status)
    two = twins_of(app, key)
    return mpa.Page(
        "doi.html",
        {
            "here": HOME,
            "route": settings.route,
            "doi": key,
            "view": view,
            "word": word,
            "colour": COLOURS.get(word, ""),
            "doing": doing(view),
            "title": title_of(view),
            "handle": handle,
            "links": links_of(key, handle, settings.submit.site),
            "files": files_of(view),
            "fields": _metadata_fields(app, view),
            "moments": moments_of(view),
            "advice": advice_of(view["error"], view["stage"]) if failed else "",
            "search_first": failed and search_first(view["error"], view["stage"]),
            "claim": claim_in(view) if failed or two is not None else None,
            "twins": "" if two is None else two.text,
            "twins_advice": TWINS_ADVICE,
            "may_deposit": (status != "COMPLETED" or two is not None) and not view["sealed"],
            "may_requeue": (failed or status == "CANCELLED") and not view["sealed"],
            "may_abandon": status not in ("COMPLETED", "CANCELLED") and not view["sealed"],
            "failed": failed,
            "problem": problem,
            "typed_handle": (typed or {}).get("handle", ""),
            "typed_remark": typed["reason"] if typed and "handle" in typed else "deposited by hand",
            "error": (view["error"] or {}).get("message") or "no error is recorded",
        },
        status=409 if problem else 200,
    )


def _metadata_fields(app: DepositsApp, view: dict[str, Any]) -> list[tuple[str, list[str]]]:
    """The fields of the metadata file, if it is still in the store. A store that does not answer
    leaves them out."""
    if not result_in(view, METADATA).get("file"):
        return []
    try:
        content = FileStore(app.settings.files).find(view["key"], ".json")
        return [] if content is None else fields_of(msgspec.json.decode(content))
    except (OSError, msgspec.DecodeError):
        return []


def _digests(app: DepositsApp) -> list[dict[str, Any]]:
    """The latest digests: what each said, and whether it was mailed."""
    if app.settings.mail is None:
        return []
    route = app.settings.digests_route
    rows = sorted(
        app.items(route, limit=DIGESTS_READ), key=lambda row: str(row["created_at"]), reverse=True
    )[:SHOWN_DIGESTS]
    found = []
    for row in rows:
        view = app.show(route, row["key"])
        if view is not None and view["input"]:
            content = msgspec.convert(view["input"]["digest"], Digest)
            found.append(
                {
                    "key": row["key"],
                    "at": row["created_at"],
                    "subject": subject_of(content),
                    "mailed": _mailed(view),
                }
            )
    return found


def _mailed(view: dict[str, Any]) -> dict[str, Any]:
    """The state of a digest's mail: `colour` and `word` for a table, and the addresses, the error
    and the next try."""
    result = result_in(view, "mail")
    status = view["status"]
    word, colour = (
        ("mailed", "done")
        if status == "COMPLETED"
        else ("not mailed", "fail")
        if status in FAILED
        else ("waits", "work")
    )
    return {
        "word": "not sent" if status == "CANCELLED" else word,
        "colour": colour,
        "at": view["ended_at"],
        "accepted": result.get("accepted") or [],
        "refused": result.get("refused") or [],
        "error": "" if status == "COMPLETED" else (view["error"] or {}).get("message", ""),
        "next_at": view["due_at"] if status == "RETRY_SCHEDULED" else None,
        "failed": status in FAILED,
    }


# The API ------------------------------------------------------------------------------------------
BASE = "/api/v1/deposits"


class WorklistCall(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A page of the worklist: DOIs that hold `search`, at most `limit` of them, after or before a
    place that another page has given."""

    search: Annotated[str, Meta(max_length=4000)] = ""
    after: Annotated[str, Meta(max_length=4000)] = ""
    before: Annotated[str, Meta(max_length=4000)] = ""
    limit: Annotated[int, Meta(ge=1, le=1000)] = PAGE


@application.endpoint(
    "GET", f"{BASE}/worklist", scope="read", query=WorklistCall, answers={200: WorklistPage},
    summary="The DOIs that need a manual deposit, the latest failure first",
)  # fmt: skip
def read_worklist(app: DepositsApp, call: mpa.Call) -> mpa.Answer:
    query: WorklistCall = call.query
    return mpa.Answer(
        worklist_page(
            app, search=query.search, after=query.after, before=query.before, most=query.limit
        )
    )


class RunList(Struct, frozen=True):
    """The latest runs, the last one first."""

    runs: list[RunRecord]


@application.endpoint(
    "GET",
    f"{BASE}/runs",
    scope="read",
    answers={200: RunList},
    summary="The latest runs: running, finished, failed or interrupted",
)
def read_runs(app: DepositsApp, call: mpa.Call) -> mpa.Answer:
    return mpa.Answer(RunList(runs(app)))
