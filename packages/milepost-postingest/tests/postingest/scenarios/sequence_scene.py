"""Oracle for notifications: which may be sent, in which order, and with which results; and
Hypothesis strategies for events."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import milepost.application as mpa
from milepost_postingest.dialects import COMPLETE, TEXTS, UPDATE, message_id

LAST = {"seed": "Scout", "today": "TC"}
INGESTED = "Asset has been ingested to the Preservation System."
KEYS = {
    "seed": ["asset-1#batch-1", "asset-2#batch-1", "asset-3#batch-2"],
    # Here a notification says of which batch it is.
    "today": ["asset-1#batch-1", "asset-1#batch-2", "asset-2#batch-1"],
}
FILES: list[Any] = [{"filePaths": ["a", "b"]}, {"filePaths": ["c"]}]
"""What confirms the first stage, in either dialect."""
VOLUMES: list[Any] = [
    {"a": ["L1"], "b": ["L2"]},
    {"c": ["L3"]},
    {"a": ["L1"]},
    {"a": ["L1"], "b": ["L2"], "c": ["L3"]},
]
"""What may confirm the last one; in today's dialect only if it has each of the files."""
NOTHING: list[Any] = ["", "no", "{}", [], 0]


def on_tape(payload: Any) -> dict[str, list[str]]:
    """The volumes of the files that the last stage was given."""
    return {path: ["L7"] for path in payload["filePaths"]}


def confirmations(keys: int = 3) -> st.SearchStrategy[tuple[Any, ...]]:
    """Of any asset: valid, invalid, early, again, different."""
    first = st.tuples(
        st.just("confirm"), st.integers(0, keys - 1), st.just(0), st.sampled_from(FILES + NOTHING)
    )
    last = st.tuples(
        st.just("confirm"), st.integers(0, keys - 1), st.just(1), st.sampled_from(VOLUMES + NOTHING)
    )
    return first | last


class Oracle:
    """Looks at everything that was heard, again and again."""

    def __init__(self, dialect: str) -> None:
        self.dialect, self.last = dialect, LAST[dialect]
        self.keys = KEYS[dialect]
        self.said: dict[tuple[str, str], list[Any]] = {}
        """What was said about a key's stage by anybody, and confirms it (or might)."""
        self.repeats = False
        """May something have been heard twice? (A relay died, or an answer was lost.)"""

    def say(self, key: str, stage: str, value: Any) -> None:
        if value not in NOTHING:
            self.said.setdefault((key, stage), []).append(value)

    def series(self, key: str) -> list[tuple[Any, ...]]:
        """What identifies each notification of a key, in the order in which they must come."""
        texts = [INGESTED, *TEXTS[self.dialect].values()]
        stages, kinds = ["", "CC", self.last], [UPDATE, UPDATE, COMPLETE]
        asset, _ = mpa.key_parts(key)
        if self.dialect == "seed":
            return [(asset, kind, text) for kind, text in zip(kinds, texts, strict=True)]
        return [
            (message_id(key, stage, kind), kind, text)
            for stage, kind, text in zip(stages, kinds, texts, strict=True)
        ]

    def check(self, heard: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> None:
        """`results`: each item's results on the ledger, as long as its row is there."""
        named = [self._name(one) for one in heard]
        assert self.repeats or len(set(named)) == len(named), f"something was told twice: {named}"
        bodies = dict(zip(named, heard, strict=True))
        assert all(bodies[name] == one for name, one in zip(named, heard, strict=True)), (
            "a repeat differs from the first"
        )
        known = {name for key in self.keys for name in self.series(key)}
        assert set(named) <= known, f"told of something else: {set(named) - known}"
        for key in self.keys:
            series = self.series(key)
            mine = [name for name in dict.fromkeys(named) if name in series]
            assert mine == series[: len(mine)], f"{key}: told {mine}, not in the order {series}"
            if key not in results:
                continue
            if len(mine) > 1:
                assert results[key]["CC"] in self.said.get((key, "CC"), []), (
                    f"{key}: nobody has confirmed its first stage"
                )
            if len(mine) == 3:
                given = results[key][self.last]
                assert given in self.said.get((key, self.last), []), (
                    f"{key}: complete, and nobody has confirmed its last stage"
                )
                if self.dialect == "today":
                    assert set(results[key]["CC"]["filePaths"]) <= given.keys(), (
                        f"{key}: complete with a part of its files"
                    )

    def check_end(self, heard: list[dict[str, Any]], results: dict[str, dict[str, Any]]) -> None:
        self.check(heard, results)
        missing = {name for key in self.keys for name in self.series(key)} - {
            self._name(one) for one in heard
        }
        assert not missing, f"never told: {missing}"

    def _name(self, one: dict[str, Any]) -> tuple[Any, ...]:
        body = one.get("body", one)
        properties, parameters = body["properties"], body["parameters"]
        first = parameters["assetId"] if self.dialect == "seed" else properties["messageId"]
        return first, properties["messageType"], parameters["status"]
