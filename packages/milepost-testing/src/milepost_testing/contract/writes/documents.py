"""Control documents: small, named, and written conditionally."""

from __future__ import annotations

import pytest

from milepost.ports.documents import Document
from milepost.ports.ledger import Ledger
from milepost_testing.contract.base import Promises
from milepost_testing.contract.world import World


def version(ledger: Ledger, kind: str, name: str) -> int:
    """The document's version now; 0: there is none."""
    document = ledger.read_one(kind, name)
    return 0 if document is None else document.version


class DocumentsContract(Promises):
    def test_each_write_raises_the_version_by_one(self, ledger: Ledger) -> None:
        assert ledger.read("hold") == {}
        assert ledger.write("hold", "parcels", {"n": 0})
        first = ledger.read("hold")["parcels"].version
        assert first > 0
        for n in (1, 2, 3):
            assert ledger.write("hold", "parcels", {"n": n})
            assert ledger.read("hold") == {"parcels": Document({"n": n}, first + n)}

    def test_one_document_is_read_by_its_name(self, ledger: Ledger) -> None:
        assert ledger.read_one("hold", "a") is None
        ledger.write("hold", "a", {"n": 1})
        ledger.write("hold", "ab", {"n": 2})
        ledger.write("limit", "a", {"n": 3})
        assert ledger.read_one("hold", "a") == ledger.read("hold")["a"]
        assert [version(ledger, "hold", "b"), version(ledger, "limit", "ab")] == [0, 0]
        ledger.write("hold", "a", None)
        assert ledger.read_one("hold", "a") is None

    def test_kinds_and_names_are_kept_apart(self, ledger: Ledger) -> None:
        ledger.write("hold", "a", 1)
        ledger.write("hold", "b", 2)
        ledger.write("limit", "a", 3)
        assert {name: document.value for name, document in ledger.read("hold").items()} == {
            "a": 1,
            "b": 2,
        }
        assert {name: document.value for name, document in ledger.read("limit").items()} == {"a": 3}

    def test_a_write_that_expects_another_version_is_refused(self, ledger: Ledger) -> None:
        assert not ledger.write("cursor", "log", {"seq": 1}, expect=1)
        assert ledger.write("cursor", "log", {"seq": 1}, expect=0)
        first = version(ledger, "cursor", "log")
        assert not ledger.write("cursor", "log", {"seq": 2}, expect=0)
        assert ledger.write("cursor", "log", {"seq": 2}, expect=first)
        assert not ledger.write("cursor", "log", {"seq": 3}, expect=first)
        assert ledger.read("cursor")["log"] == Document({"seq": 2}, first + 1)

    def test_none_removes_and_is_conditional_too(self, ledger: Ledger) -> None:
        ledger.write("hold", "a", 1)
        first = version(ledger, "hold", "a")
        assert not ledger.write("hold", "a", None, expect=first + 6)
        assert ledger.write("hold", "a", None, expect=first)
        assert ledger.read("hold") == {}
        assert ledger.write("hold", "a", None)
        assert ledger.write("hold", "a", 2, expect=0)

    @pytest.mark.parametrize("expected", [True, False])
    def test_a_version_does_not_come_again_after_a_removal(
        self, ledger: Ledger, expected: bool
    ) -> None:
        other, seen = self.another(ledger), set[int]()
        for life in range(3):
            assert ledger.write("parked", "a", {"life": life}, expect=0)
            for change in range(2):
                at = version(ledger, "parked", "a")
                seen.add(at)
                assert ledger.write("parked", "a", {"life": life, "change": change}, expect=at)
            seen.add(version(ledger, "parked", "a"))
            assert other.write(
                "parked", "a", None, expect=version(ledger, "parked", "a") if expected else None
            )
        assert len(seen) == 9
        assert other.write("parked", "a", {"life": "last"}, expect=0)
        for old in seen:
            assert not ledger.write("parked", "a", None, expect=old)
            assert not ledger.write("parked", "a", {"life": "wrong"}, expect=old)
        assert ledger.read("parked")["a"].value == {"life": "last"}

    def test_a_version_does_not_come_again_by_a_renaming(self, world: World) -> None:
        ledger = world.ledger
        world.add("p1")
        for value in (1, 2, 3):
            world.limit("parcels/press", concurrency=value)
        old = version(ledger, "limit", "parcels/press")
        ledger.write("limit", "parcels/press", None)
        world.limit("parcels/stamp", concurrency=7)
        ledger.rename_stage("parcels", "stamp", "press")
        document = ledger.read_one("limit", "parcels/press")
        assert document is not None
        assert document.value["concurrency"] == 7
        assert not any(
            ledger.write("limit", "parcels/press", None, expect=at)
            for at in range(old - 2, old + 1)
        )
        gone = version(ledger, "limit", "parcels/press")
        ledger.rename_stage("parcels", "press", "stamp")
        assert ledger.write(
            "limit", "parcels/press", {"by": "ops", "reason": "test", "at": 0}, expect=0
        )
        assert not ledger.write("limit", "parcels/press", None, expect=gone)

    def test_a_document_is_a_copy(self, ledger: Ledger) -> None:
        value = {"list": [1]}
        ledger.write("act", "a", value)
        value["list"].append(2)
        ledger.read("act")["a"].value["list"].append(3)
        assert ledger.read("act")["a"].value == {"list": [1]}

    def test_another_process_sees_it_at_once(self, ledger: Ledger) -> None:
        other = self.another(ledger)
        ledger.write("hold", "parcels", {"by": "ops"})
        assert other.read("hold")["parcels"].value == {"by": "ops"}
        assert other.write("hold", "parcels", None, expect=version(ledger, "hold", "parcels"))
        assert ledger.read("hold") == {}

    def test_the_change_counter_differs_after_every_write(self, ledger: Ledger) -> None:
        self.needs(ledger, "change counter")
        other = self.another(ledger)
        seen = {ledger.change_counter()}
        for n in range(3):
            other.write("hold", "a", n)
            change_counter = ledger.change_counter()
            assert change_counter not in seen
            seen.add(change_counter)
        assert ledger.change_counter() in seen

    def test_a_ledger_describes_itself(self, ledger: Ledger) -> None:
        assert isinstance(ledger.describe(), dict)
        assert isinstance(ledger.url, str)
