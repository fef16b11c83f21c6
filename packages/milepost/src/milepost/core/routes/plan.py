"""Plan: a route prepared for one ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from msgspec.structs import replace

from milepost.core.errors import RouteMistake
from milepost.core.routes.route import Route, Stage

EXTERNAL_RESEND = 14 * 86_400_000


class Plan:
    """A route prepared for one ledger: its stages, fast look-ups, and the version in the ledger. A
    plan never changes: `at_version`, `at_epoch` and `with_offer_lives` return another one."""

    __slots__ = (
        "by_name",
        "digest",
        "epoch",
        "first",
        "following",
        "name",
        "position",
        "route",
        "shape",
        "stages",
        "version",
    )

    route: Route
    name: str
    version: int
    epoch: int
    stages: tuple[Stage, ...]
    first: Stage
    by_name: Mapping[str, Stage]
    following: Mapping[str, Stage | None]
    position: Mapping[str, int]
    shape: tuple[tuple[str, str], ...]
    digest: str

    def __init__(
        self,
        route: Route,
        *,
        grace_ms: int = 0,
        offer_life_ms: int = 0,
        external_grace_ms: int | None = None,
        version: int = 1,
    ) -> None:
        if not route.stages:
            raise RouteMistake(
                f"route {route.name!r} has no stages; add one with @{route.name}.stage('…')"
            )
        stages = tuple(
            replace(
                stage,
                grace_ms=external_grace_ms
                if stage.external and external_grace_ms is not None
                else grace_ms,
                offer_life_ms=(stage.resend_after_ms or offer_life_ms or EXTERNAL_RESEND)
                if stage.external
                else offer_life_ms,
            )
            for stage in route.stages
        )
        shape = tuple((stage.name, "external" if stage.external else "handler") for stage in stages)
        position = {stage.name: index for index, stage in enumerate(stages)}
        self._set(
            route=route,
            name=route.name,
            version=version,
            epoch=0,
            shape=shape,
            digest=shape_digest(shape),
            position=position,
        )
        self._set(**_lookups(stages))

    def _set(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"a plan never changes; {name!r} cannot be set")

    def _with(self, **fields: Any) -> Plan:
        made = object.__new__(Plan)
        made._set(**({name: getattr(self, name) for name in self.__slots__} | fields))
        return made

    def unknown_stage(self, stage: str | None) -> str:
        """Says that the route has no such stage, and which it has."""
        return (
            f"route {self.name!r} has no stage {stage!r}; its stages are {', '.join(self.by_name)}"
        )

    def at_version(self, version: int) -> Plan:
        """This plan at the version number that the ledger gave it. Shares its stages with this
        one."""
        return self if version == self.version else self._with(version=version)

    def at_epoch(self, epoch: int) -> Plan:
        """This plan in the epoch of its ledger, for the first lines of new items. Shares its stages
        with this one."""
        return self if epoch == self.epoch else self._with(epoch=epoch)

    def with_offer_lives(self, lives: Mapping[str, int]) -> Plan:
        """This plan with the time for which each stage's queue keeps an offer, in ms, where the
        ledger knows it. A stage with a `resend_after` of its own keeps that."""
        stages = tuple(
            replace(
                stage,
                offer_life_ms=stage.resend_after_ms or lives.get(stage.name, stage.offer_life_ms),
            )
            for stage in self.stages
        )
        return self._with(**_lookups(stages))


def _lookups(stages: tuple[Stage, ...]) -> dict[str, Any]:
    """The fields of a plan that hold its stages themselves."""
    return {
        "stages": stages,
        "first": stages[0],
        "by_name": {stage.name: stage for stage in stages},
        "following": dict(zip((stage.name for stage in stages), (*stages[1:], None), strict=True)),
    }


def shape_digest(shape: Sequence[Sequence[str]]) -> str:
    """Digest of the stages' names, kinds and order: these must not change silently while items are
    in progress."""
    return sha256("\x1e".join("\x1f".join(pair) for pair in shape).encode()).hexdigest()[:16]
