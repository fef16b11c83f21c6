"""Random delivery, parking, release and replay by two processes that die now and then: in the end
the subscriber has every event, each item's in order at first delivery and at the last."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
from tests.engine.events.recording_subscribers import Envelope
from tests.engine.world import ROUTE, Faulty, World
from tests.seeds import seeds

from milepost.core.errors import EventRefused
from milepost.core.outcome import Done, Outcome, Retry
from milepost.engine.events import deliver as relaying
from milepost.engine.events.cursors import live_cursors
from milepost.engine.events.deliver import LEASE_MS, EventRelay
from milepost.engine.events.feed import feed_events
from milepost.engine.events.parked_events import parked_for, release
from milepost.engine.events.replay import replay
from milepost.ports.documents import CURSOR, PARKED

STEPS = 100
SIGNED = {"by": "ops", "reason": "a test"}


class Killed(BaseException):
    """The process dies here; nothing in it can hold that up."""


class Office:
    """One receiver for all processes. It takes what its mood lets it, and after a call, as before
    one, anything may happen."""

    name = "office"

    def __init__(self, chance: random.Random, meanwhile: Callable[[], None]) -> None:
        self.heard: list[Envelope] = []
        self.batch = chance.choice((1, 3, 10))
        self.well = False
        self.out = False
        self._chance, self._meanwhile = chance, meanwhile

    def tell(self, envelopes: Sequence[Envelope]) -> list[Exception | None]:
        answers = [self._answer() for _ in envelopes]
        self.heard += [
            envelope for envelope, error in zip(envelopes, answers, strict=True) if error is None
        ]
        if not self.well:
            self._meanwhile()
            if self._chance.random() < 0.1:
                raise ConnectionError("nobody knows which of them it took")
        return answers

    def _answer(self) -> Exception | None:
        if self.well:
            return None
        if self.out:
            return ConnectionError("away")
        return self._chance.choices(
            (None, ConnectionError("not now"), EventRefused("never")), (12, 2, 1)
        )[0]


class Story:
    """What happens, from a seed."""

    def __init__(self, world: World, faulty: Faulty, seed: int) -> None:
        self.world, self.faulty = world, faulty
        self.chance = random.Random(seed)
        self.office = Office(self.chance, self.meanwhile)
        self.others = world.beside().registered()
        self.relays = [self.born(0), self.born(1)]
        self.items = 0
        self.calm = False

    def born(self, place: int) -> EventRelay:
        return EventRelay((self.world, self.others)[place].ctx, self.office, f"p{place}")

    def step(self) -> None:
        act = self.chance.choices(
            (
                self.tell,
                self.work,
                self.submit,
                self.wait,
                self.again,
                self.let_go,
                self.weather,
                self.trip,
            ),
            (10, 4, 3, 4, 2, 2, 1, 2),
        )[0]
        act()

    def tell(self) -> None:
        place = self.chance.randrange(2)
        try:
            self.relays[place].run_once()
        except Killed:
            self.relays[place] = self.born(place)

    def meanwhile(self) -> None:
        """While a process waits for the answer: people act, items move on, it is so slow that the
        other one takes over, or it dies."""
        if self.calm or self.chance.random() > 0.3:
            return
        self.calm = True
        try:
            self.chance.choice((self.again, self.let_go, self.work, self.take_over, self.die))()
        finally:
            self.calm = False

    def take_over(self) -> None:
        self.world.clock.advance(LEASE_MS / 1000 + 1)
        EventRelay(self.others.ctx, self.office, "p3").run_once()

    def die(self) -> None:
        raise Killed

    def trip(self) -> None:
        """The next write to a cursor, or of what is parked, is the last that its process makes, or
        the first that it does not."""
        kind = self.chance.choice((CURSOR, PARKED))
        moment = self.chance.choice((self.faulty.before, self.faulty.after))
        moment("write", self.die, lambda written, *args, **options: written == kind)
        self.tell()
        self.faulty._plans.clear()

    def submit(self) -> None:
        self.items += 1
        self.world.add(f"item-{self.items}")

    def work(self) -> None:
        outcome: Outcome = self.chance.choice((Done(), Done(), Retry("busy")))
        self.world.work(
            self.chance.choice(("weigh", "stamp")), outcome, want=self.chance.randint(1, 3)
        )

    def wait(self) -> None:
        self.world.clock.advance(self.chance.choice((0.001, 1, 20, 70)))

    def again(self) -> None:
        told = live_cursors(self.world.ctx).get("office")
        if told is not None:
            replay(self.world.ctx, "office", after=self.chance.randint(0, told.seq), **SIGNED)

    def let_go(self) -> None:
        if "office" in live_cursors(self.world.ctx):
            route = self.chance.choice((None, ROUTE))
            release(self.world.ctx, "office", route, **SIGNED)

    def weather(self) -> None:
        self.office.out = not self.office.out

    def end(self) -> None:
        """All is well from now on, and nobody dies."""
        self.office.well = True
        for _ in range(20):
            self.let_go()
            self.world.clock.advance("2h")
            for relay in self.relays:
                relay.run_once()


@pytest.mark.parametrize("seed", seeds(40, quick=8))
def test_everything_is_told_and_each_item_in_order_at_first_and_at_last(
    faulty: World, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relaying, "PAGE", 7)
    story = Story(faulty, faulty.ledger, seed)  # type: ignore[arg-type]
    for _ in range(STEPS):
        story.step()
    story.end()

    heard = [envelope["id"] for envelope in story.office.heard]
    lines = faulty.ledger.feed(0, 10_000)
    wanted = [entry.event for entry in feed_events(lines)]
    last = {id: place for place, id in enumerate(heard)}
    first = {id: -place for place, id in enumerate(reversed(heard))}
    assert [event.id for event in wanted if event.id not in last] == [], "nothing is lost"
    for key in {event.key for event in wanted}:
        for when in (first, last):
            places = [when[event.id] for event in wanted if event.key == key]
            assert places == sorted(places), (
                f"{key} was told out of turn: {[id for id in heard if f'/{key}/' in id]}"
            )
    assert live_cursors(faulty.ctx)["office"].seq == faulty.ledger.last_seq()
    assert parked_for(faulty.ctx, "office") == {}
