"""Plan: a route prepared for one ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256

from msgspec.structs import replace

from milepost.core.errors import RouteMistake
from milepost.core.routes.route import Route, Stage

EXTERNAL_RESEND = 14 * 86_400_000


class Plan:
    """A route prepared for one ledger: frozen stages, fast look-ups, and the version in the ledger."""

    __slots__ = ("by_name", "digest", "first", "following", "name", "position", "route", "shape", "stages", "version")

    def __init__(
        self, route: Route, *, grace_ms: int = 0, offer_life_ms: int = 0, external_grace_ms: int | None = None, version: int = 1
    ) -> None:
        if not route.stages:
            raise RouteMistake(f"route {route.name!r} has no stages; add one with @{route.name}.stage('…')")
        self.route = route
        self.name = route.name
        self.version = version
        self._arrange(
            replace(
                stage,
                grace_ms=external_grace_ms if stage.external and external_grace_ms is not None else grace_ms,
                offer_life_ms=(stage.resend_after_ms or offer_life_ms or EXTERNAL_RESEND) if stage.external else offer_life_ms,
            )
            for stage in route.stages
        )
        self.position = {stage.name: index for index, stage in enumerate(self.stages)}
        self.shape = tuple((stage.name, "external" if stage.external else "handler") for stage in self.stages)
        self.digest = shape_digest(self.shape)

    def _arrange(self, stages: Iterable[Stage]) -> None:
        self.stages = tuple(stages)
        self.by_name = {stage.name: stage for stage in self.stages}
        self.first = self.stages[0]
        self.following: dict[str, Stage | None] = {
            stage.name: self.stages[index + 1] if index + 1 < len(self.stages) else None for index, stage in enumerate(self.stages)
        }

    def at_version(self, version: int) -> Plan:
        """The same plan with the version number that the ledger gave it."""
        self.version = version
        return self

    def with_offer_lives(self, lives: Mapping[str, int]) -> Plan:
        """The same plan with the time for which each stage's queue keeps an offer, in ms, where known. A stage with its own `resend_after`
        keeps that."""
        self._arrange(
            replace(stage, offer_life_ms=stage.resend_after_ms or lives.get(stage.name, stage.offer_life_ms)) for stage in self.stages
        )
        return self


def shape_digest(shape: Sequence[Sequence[str]]) -> str:
    """Digest of the stages' names, kinds and order: these must not change silently while items are in progress."""
    return sha256("\x1e".join("\x1f".join(pair) for pair in shape).encode()).hexdigest()[:16]
