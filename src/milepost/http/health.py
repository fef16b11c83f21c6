"""Is the server alive, and is it ready? Open to all, and without anything that not everybody may know."""

from __future__ import annotations

from msgspec import Struct

from milepost.http.calls import Answer, Call, Endpoints
from milepost.http.desk import Desk
from milepost.http.problems import trouble

ENDPOINTS = Endpoints()


class Healthy(Struct, frozen=True):
    status: str


@ENDPOINTS.add("GET", "/healthz", scope=None, answers={200: Healthy}, summary="Is the server alive?")
async def alive(desk: Desk, call: Call) -> Answer:
    """Answers as long as the server takes calls, whatever the ledger does: who gets no answer may start it again."""
    return Answer(Healthy("alive"))


@ENDPOINTS.add("GET", "/readyz", scope=None, answers={200: Healthy}, problems=("not-ready",), summary="Is the server ready for work?")
async def ready(desk: Desk, call: Call) -> Answer:
    """Ready: the ledger can be reached and written to within a second, the routes are those in force, somebody is at work, and the
    resender has run lately. Otherwise 503, and `parts` names what is missing and what to do about it."""
    missing = await desk.eyes.unready()
    if missing:
        parts = [{"part": found.part, "why": found.why} for found in missing]
        raise trouble("not-ready", "; ".join(f"{found.part}: {found.why}" for found in missing), parts=parts)
    return Answer(Healthy("ready"))
