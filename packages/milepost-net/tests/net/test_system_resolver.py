"""Name resolution: one lookup for many callers, and a lookup that hangs holds up no other."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.net.partner import PATIENCE, StoppedClock

import milepost_net as net
from milepost_net.resolver import (
    SLOW_S,
    WAITING,
    LookupsBusy,
    SlowName,
    SystemResolver,
    may_look_up,
    next_share,
)


class Names:
    """Stands in for the system: names that begin with "slow" are answered when `go` is set,
    "nowhere" never is."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.go = threading.Event()

    def getaddrinfo(self, host: str, *rest: Any, **options: Any) -> list[Any]:
        self.asked[host] += 1
        if host.startswith("slow"):
            self.go.wait(PATIENCE)
        if host == "nowhere":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        if host == "odd":
            raise UnicodeError("label too long")
        found = [("192.0.2.1", 0), ("192.0.2.1", 0), ("2001:db8::1", 0, 0, 0)]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in found]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    yield names
    names.go.set()


def test_each_address_once_in_the_systems_order(names: Names) -> None:
    async def main() -> None:
        assert await SystemResolver()("office.example") == ["192.0.2.1", "2001:db8::1"]

    asyncio.run(main())


@pytest.mark.parametrize("host", ["nowhere", "odd"])
def test_a_name_without_an_address_is_an_error_each_time(names: Names, host: str) -> None:
    async def main() -> None:
        resolver = SystemResolver()
        for _ in range(2):
            with pytest.raises(OSError, match=r"known|resolved"):
                await resolver(host)

    asyncio.run(main())
    assert names.asked[host] == 2


def test_callers_share_a_lookup_and_one_that_gives_up_does_not_end_it(names: Names) -> None:
    async def main() -> None:
        resolver = SystemResolver()
        calls = [asyncio.ensure_future(resolver("slow")) for _ in range(10)]
        await asyncio.sleep(0)
        calls[0].cancel()
        await asyncio.sleep(0)
        assert await resolver("office.example"), "another name is resolved meanwhile"
        names.go.set()
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert isinstance(found[0], asyncio.CancelledError)
        assert found[1:] == [["192.0.2.1", "2001:db8::1"]] * 9
        await resolver("slow")

    asyncio.run(main())
    assert names.asked["slow"] == 2, "and nothing is remembered: an address may change"


def test_a_loop_that_ends_before_the_answer_is_no_error(names: Names) -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await SystemResolver()("slow")

    asyncio.run(main())
    names.go.set()
    for thread in threading.enumerate():
        if thread.name == "milepost-resolve":
            thread.join(PATIENCE)


# Slots --------------------------------------------------------------------------------------------
def many(resolver: SystemResolver, share: str, count: int) -> list[asyncio.Future[Any]]:
    return [
        asyncio.ensure_future(resolver(f"slow{number}.{share}", share)) for number in range(count)
    ]


def refused(calls: list[asyncio.Future[Any]]) -> int:
    """How many of these calls ended without a slot."""
    return sum(call.done() and isinstance(call.exception(), LookupsBusy) for call in calls)


def test_no_share_takes_all_slots_and_what_is_left_is_shared_fairly() -> None:
    running, free = {"one": 0, "two": 0, "three": 0}, []
    for share in running:
        while may_look_up(running[share], sum(running.values()), 100):
            running[share] += 1
        free.append(100 - sum(running.values()))
    assert (running, free) == ({"one": 50, "two": 25, "three": 13}, [50, 25, 12])
    assert next_share({"one": 5, "two": 1, "three": 0}, {"one": 3, "two": 2}) == "two"
    assert next_share({"one": 0}, {}) is None


def test_a_share_with_many_slow_names_leaves_slots_for_the_others(names: Names) -> None:
    async def main() -> None:
        clock = StoppedClock(asyncio.get_running_loop())
        resolver = SystemResolver()
        slow = many(resolver, "bob", 200)
        await clock.move(0)
        assert refused(slow) == 200 - 50 - WAITING, (
            "beyond those that wait, each is refused at once"
        )
        assert await resolver("office.example", "alice")
        await clock.move(1.01)
        assert refused(slow) == 150, "no call waits for long"
        names.go.set()
        await asyncio.gather(*slow, return_exceptions=True)
        assert await resolver("office.example", "bob")

    asyncio.run(main())
    assert sum(names.asked.values()) == 52


def test_a_free_slot_goes_to_the_share_with_the_fewest_lookups(names: Names) -> None:
    async def main() -> None:
        resolver = SystemResolver(lookups=3)
        first = many(resolver, "bob", 3)
        other = many(resolver, "alice", 1)
        await asyncio.sleep(0)
        assert sum(names.asked.values()) <= 3
        names.go.set()
        await asyncio.gather(*first, *other, return_exceptions=True)
        assert other[0].exception() is None

    asyncio.run(main())


def test_a_call_that_gives_up_while_it_waits_for_a_slot_loses_none(names: Names) -> None:
    async def main() -> None:
        resolver = SystemResolver(lookups=2)
        [running, waiting] = many(resolver, "bob", 2)
        await asyncio.sleep(0)
        waiting.cancel()
        names.go.set()
        await asyncio.gather(running, waiting, return_exceptions=True)
        for _ in range(3):
            assert await resolver("office.example", "bob")

    asyncio.run(main())


def test_a_name_that_was_too_slow_is_not_looked_up_again_for_a_while(names: Names) -> None:
    async def main() -> None:
        clock = StoppedClock(asyncio.get_running_loop())
        resolver = SystemResolver()
        call = asyncio.ensure_future(resolver("slow"))
        await clock.move(5)
        resolver.too_slow("slow")
        with pytest.raises(SlowName):
            await resolver("slow")
        assert await resolver("office.example"), "other names are looked up"
        await clock.move(SLOW_S)
        again = asyncio.ensure_future(resolver("slow"))
        await clock.move(0)
        assert not again.done(), "it shares the lookup that still runs"
        names.go.set()
        assert await call == await again

    asyncio.run(main())


def test_the_client_says_that_a_wait_for_a_slot_is_not_the_partners_fault() -> None:
    async def main() -> None:
        go = threading.Event()

        def lookup(host: str) -> list[str]:
            go.wait(PATIENCE)
            return ["192.0.2.1"]

        async with net.Client(resolver=SystemResolver(lookup, lookups=2)) as client:
            quick = net.Timeouts(connect=0.05, read=1, total=9)
            slow = asyncio.ensure_future(
                client.request_async("GET", "http://slow.example/", timeouts=quick, share="bob")
            )
            await asyncio.sleep(0)
            calls = [
                client.request_async(
                    "GET", f"http://h{number}.example/", timeouts=net.Timeouts(9, 9, 9), share="bob"
                )
                for number in range(12)
            ]
            errors = await asyncio.gather(*calls, return_exceptions=True)
            assert {(type(error), getattr(error, "kind", "")) for error in errors} == {
                (net.ConnectFailed, "lookup-waits")
            }
            assert {getattr(error, "sent", None) for error in errors} == {net.SendState.NOT_SENT}
            with pytest.raises(net.ConnectFailed, match=r"was not resolved within 0\.05 s"):
                await slow
            with pytest.raises(
                net.ConnectFailed, match="not resolved in time a moment ago"
            ) as caught:
                await client.request_async("GET", "http://slow.example/", share="alice")
            assert caught.value.kind == "name-not-resolved"
            go.set()

    asyncio.run(main())
