"""Metrics as text: the format of Prometheus (0.0.4), and OpenMetrics 1.0, which differs in few words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from msgspec import Struct

from milepost.core.values.histogram import Histogram
from milepost.engine.metrics.collector import Labels

PLAIN = "text/plain; version=0.0.4; charset=utf-8"
OPEN = "application/openmetrics-text; version=1.0.0; charset=utf-8"


class Family(Struct, frozen=True):
    """Samples of one name. `kind` is gauge, counter or histogram; a counter's name is without `_total` here, which is added in the text."""

    name: str
    kind: str
    help: str
    labels: tuple[str, ...] = ()
    samples: Mapping[Labels, float | Histogram] = {}


def exposition(families: Iterable[Family], *, openmetrics: bool = False) -> str:
    """All families as text; one without samples is left out."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        total = "_total" if family.kind == "counter" else ""
        name = family.name if openmetrics else family.name + total
        lines.append(f"# HELP {name} {_escaped(family.help, quotes=openmetrics)}")
        lines.append(f"# TYPE {name} {family.kind}")
        for labels, value in sorted(family.samples.items(), key=lambda sample: sample[0]):
            pairs = list(zip(family.labels, labels, strict=True))
            if isinstance(value, Histogram):
                lines += _histogram(family.name, pairs, value)
            else:
                lines.append(f"{family.name}{total}{_labels(pairs)} {_number(value)}")
    if openmetrics:
        lines.append("# EOF")
    return "".join(f"{line}\n" for line in lines)


def _histogram(name: str, pairs: list[tuple[str, str]], found: Histogram) -> Iterable[str]:
    so_far = 0
    for bound, n in zip((*found.bounds, math.inf), found.counts, strict=True):
        so_far += n
        yield f"{name}_bucket{_labels([*pairs, ('le', _number(bound))])} {so_far}"
    yield f"{name}_sum{_labels(pairs)} {_number(found.total)}"
    yield f"{name}_count{_labels(pairs)} {so_far}"


def _labels(pairs: list[tuple[str, str]]) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value, quotes=True)}"' for name, value in pairs) + "}" if pairs else ""


def _escaped(text: str, *, quotes: bool) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quotes else text


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) and abs(value) < 1e15 and isinstance(value, int) else repr(float(value))
