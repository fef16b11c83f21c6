"""Services and their roles in a station: what a role reports is what its service says."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from milepost.application.installation import AppService
from milepost.engine.alerts.watch import AlertWatch
from milepost.engine.clock_watch import ClockWatch
from milepost.engine.events.deliver import EventRelay
from milepost.engine.heads.daily import HeadKeeper
from milepost.engine.presence import Heartbeat
from milepost.engine.resend import Resender
from milepost.engine.retention import Retention
from milepost.engine.time_share import SharedTurns
from milepost.engine.work.worker import Worker
from milepost.ports.service import Service
from milepost.station import Every, Role
from milepost_aws.ledger.upkeep import StreamReader, Sweeper
from milepost_testing.clock import VirtualClock

SERVICES = [
    AlertWatch,
    AppService,
    ClockWatch,
    EventRelay,
    Every,
    HeadKeeper,
    Heartbeat,
    Resender,
    Retention,
    Role,
    SharedTurns,
    StreamReader,
    Sweeper,
    Worker,
]
MEMBERS = {
    "failed": st.booleans(),
    "quiet": st.booleans(),
    "stands_still": st.sampled_from(["", "its clock differs"]),
}


class DuckService:
    """A service as it was before there was a base class: it has the members that it needs."""

    name = "duck"

    def __init__(self, members: dict[str, Any]) -> None:
        vars(self).update(members)


def reported_before(service: DuckService) -> tuple[bool, bool, bool]:
    """What a role asked of a service without a base class: whether the turn was a good run, whether
    it is quiet, whether it follows other processes."""
    good = not getattr(service, "stands_still", "") and not getattr(service, "failed", False)
    return good, bool(getattr(service, "quiet", True)), hasattr(service, "quiet")


def service_with(members: dict[str, Any]) -> Service:
    """A service that overrides these members alone. One that tells when it is quiet follows
    others."""

    class Declared(Service):
        name = "declared"
        follows_others = "quiet" in members

        def turn(self) -> float:
            return 1.0

    for name, value in members.items():
        setattr(Declared, name, value)
    return Declared()


@given(st.fixed_dictionaries({}, optional=MEMBERS))
def test_a_role_reports_the_same_with_and_without_a_base_class(members: dict[str, Any]) -> None:
    role = Role(service_with(members), VirtualClock(), lambda: False)
    role.turn()
    reported = bool(role.last_good_run), role.quiet, role.follows_others
    assert reported == reported_before(DuckService(members))
    role.stop()


def test_every_service_is_a_service_and_those_that_can_be_unquiet_follow_others() -> None:
    assert all(issubclass(service, Service) for service in SERVICES)
    followers = {service.__name__ for service in SERVICES if service.follows_others}
    assert followers == {"AlertWatch", "AppService", "StreamReader"}


def test_a_role_stops_its_service() -> None:
    stopped: list[str] = []

    class Stopping(Service):
        name = "stopping"

        def stop(self) -> None:
            stopped.append(self.name)

    Role(Stopping(), VirtualClock(), lambda: False).stop()
    assert stopped == ["stopping"]
