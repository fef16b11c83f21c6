"""A stand-in for ScoutAM with a client and a tape check, on a virtual clock."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from milepost_postingest.scoutam.api import ScoutAM
from milepost_postingest.standins.scoutam import StandIn
from milepost_postingest.tape import Tape

QUICK = 0.25
"""Seconds after which an answer is given up, where one never comes."""


class Hands:
    """A clock's hands: they move when somebody pauses, or when they are moved."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.paused: list[float] = []

    def __call__(self) -> float:
        return self.now

    def pause(self, seconds: float) -> None:
        self.paused.append(seconds)
        self.now += seconds


class Scene:
    """What a test needs of the tape library: `standin` is it, `client` asks it, `tape` checks
    assets, `hands` are the client's time."""

    def __init__(self, standin: StandIn, hands: Hands, **client: Any) -> None:
        self.standin = standin
        self.hands = hands
        settings = {
            "user": standin.user,
            "password": standin.password,
            "ticks": hands,
            "pause": hands.pause,
            **client,
        }
        self.client = ScoutAM(settings.pop("url", standin.url), **settings)
        self.tape = Tape(self.client, standin.root or "/")

    def on_tape(self, *paths: str) -> None:
        for number, path in enumerate(paths):
            self.standin.put(path, f"L{number:05d}")

    def check(self, *paths: str) -> Any:
        return self.tape.check({"filePaths": list(paths)})


@contextmanager
def scene_of(*, client: dict[str, Any] | None = None, **standin: Any) -> Iterator[Scene]:
    hands = Hands()
    with StandIn(clock=hands, **standin) as library:
        scene = Scene(library, hands, **(client or {}))
        with scene.client:
            yield scene
