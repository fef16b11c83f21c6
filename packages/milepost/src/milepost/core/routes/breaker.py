"""Circuit breaker of a stage's lanes, as a route declares it."""

from __future__ import annotations

from msgspec import Struct

from milepost.core.errors import UsageError
from milepost.core.values.durations import Span, span_ms


class Breaker(Struct, frozen=True, kw_only=True):
    """Stops calls to a lane whose partner is down. It opens when `failures` tries in a row have
    failed `within` this span; a try that succeeds in between starts the count anew. After
    `cooldown` it lets `probes` items through: if all of them succeed it closes, if one fails it
    stays open for another `cooldown`."""

    failures: int = 5
    within: Span = "1m"
    cooldown: Span = "30s"
    probes: int = 1

    def __post_init__(self) -> None:
        for name in ("failures", "probes"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise UsageError(f"Breaker({name}={value!r}): give a whole number from 1 up")
        for name in ("within", "cooldown"):
            if span_ms(getattr(self, name), f"Breaker({name}=…)") <= 0:
                raise UsageError(
                    f"Breaker({name}={getattr(self, name)!r}): give a span above 0, such as '30s'"
                )

    @property
    def within_ms(self) -> int:
        """`within` in milliseconds."""
        return span_ms(self.within, "within")

    @property
    def cooldown_ms(self) -> int:
        """`cooldown` in milliseconds."""
        return span_ms(self.cooldown, "cooldown")
