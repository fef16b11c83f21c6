"""A strict reader of the text format of Prometheus (0.0.4) and of OpenMetrics 1.0, as far as
counters, gauges and histograms go."""

from __future__ import annotations

import math
import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
META = re.compile(rf"# (HELP|TYPE) ({NAME}) (.*)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\["\\n])*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
NUMBER = re.compile(r"[+-]?Inf|NaN|[+-]?\d+(\.\d+)?([eE][+-]?\d+)?")
SUFFIXES = {"gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
ESCAPED = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

Series = frozenset[tuple[str, str]]


class Exposition:
    """Every sample by name and labels; raises AssertionError at the first thing that is not as it
    must be."""

    def __init__(self, text: str, *, openmetrics: bool = False) -> None:
        self.kinds: dict[str, str] = {}
        self.samples: dict[str, dict[Series, float]] = {}
        assert text.endswith("\n")
        assert "\r" not in text
        lines = text[:-1].split("\n")
        if openmetrics:
            assert lines.pop() == "# EOF"
        assert "# EOF" not in lines
        helped: set[str] = set()
        family = ""
        for line in lines:
            assert line, "an empty line"
            if line.startswith("#"):
                found = META.fullmatch(line)
                assert found, line
                word, family, rest = found.groups()
                if word == "HELP":
                    assert family not in helped, f"HELP of {family} comes twice"
                    helped.add(family)
                else:
                    assert family in helped, f"HELP of {family} is missing"
                    assert family not in self.kinds, f"TYPE of {family} comes twice"
                    assert rest in ("counter", "gauge", "histogram"), line
                    self.kinds[family] = rest
            else:
                self._sample(line, family, openmetrics)
        assert helped == set(self.kinds)
        for name, kind in self.kinds.items():
            if kind == "histogram":
                self._check_histogram(name)

    def _sample(self, line: str, family: str, openmetrics: bool) -> None:
        found = SAMPLE.fullmatch(line)
        assert found, line
        name, inside, number = found.groups()
        assert NUMBER.fullmatch(number), line
        kind = self.kinds[family]
        suffixes = SUFFIXES.get(kind, ("_total",) if openmetrics else ("",))
        assert name in {family + suffix for suffix in suffixes}, f"{name} is not of {family}"
        if kind == "counter":
            assert name.endswith("_total"), line
            assert float(number) >= 0
        series = self.samples.setdefault(name, {})
        labels = read_labels(inside or "")
        assert labels not in series, f"{line} comes twice"
        series[labels] = float(number)

    def _check_histogram(self, name: str) -> None:
        by_series: dict[Series, list[tuple[float, float]]] = {}
        for labels, n in self.samples[f"{name}_bucket"].items():
            bound = float(dict(labels)["le"])
            by_series.setdefault(frozenset(pair for pair in labels if pair[0] != "le"), []).append(
                (bound, n)
            )
        assert (
            set(by_series) == set(self.samples[f"{name}_sum"]) == set(self.samples[f"{name}_count"])
        )
        for labels, buckets in by_series.items():
            assert buckets == sorted(buckets), "bounds in order, and counts that never fall"
            assert [n for _, n in buckets] == sorted(n for _, n in buckets)
            assert buckets[-1] == (math.inf, self.samples[f"{name}_count"][labels])

    def value(self, name: str, **labels: str) -> float:
        return self.samples[name][frozenset(labels.items())]


def read_labels(inside: str) -> Series:
    pairs, at = [], 0
    while at < len(inside):
        found = LABEL.match(inside, at)
        assert found, inside
        pairs.append((found[1], re.sub(r'\\[\\"n]', lambda escape: ESCAPED[escape[0]], found[2])))
        at = found.end()
    assert not inside.endswith(","), inside
    assert len({name for name, _ in pairs}) == len(pairs), inside
    return frozenset(pairs)
