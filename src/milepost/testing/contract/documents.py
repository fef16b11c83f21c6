"""Control documents: small, named, and written conditionally."""

from __future__ import annotations

from milepost.ports.ledger import Document, Ledger
from milepost.testing.contract.base import Promises


class Documents(Promises):
    def test_versions_start_at_one_and_rise_by_one(self, ledger: Ledger) -> None:
        assert ledger.read("hold") == {}
        for version in (1, 2, 3):
            assert ledger.write("hold", "parcels", {"n": version})
            assert ledger.read("hold") == {"parcels": Document({"n": version}, version)}

    def test_kinds_and_names_are_kept_apart(self, ledger: Ledger) -> None:
        ledger.write("hold", "a", 1)
        ledger.write("hold", "b", 2)
        ledger.write("limit", "a", 3)
        assert {name: document.value for name, document in ledger.read("hold").items()} == {"a": 1, "b": 2}
        assert {name: document.value for name, document in ledger.read("limit").items()} == {"a": 3}

    def test_a_write_that_expects_another_version_is_refused(self, ledger: Ledger) -> None:
        assert not ledger.write("cursor", "log", {"seq": 1}, expect=1)
        assert ledger.write("cursor", "log", {"seq": 1}, expect=0)
        assert not ledger.write("cursor", "log", {"seq": 2}, expect=0)
        assert ledger.write("cursor", "log", {"seq": 2}, expect=1)
        assert not ledger.write("cursor", "log", {"seq": 3}, expect=1)
        assert ledger.read("cursor")["log"] == Document({"seq": 2}, 2)

    def test_none_removes_and_is_conditional_too(self, ledger: Ledger) -> None:
        ledger.write("hold", "a", 1)
        assert not ledger.write("hold", "a", None, expect=7)
        assert ledger.write("hold", "a", None, expect=1)
        assert ledger.read("hold") == {}
        assert ledger.write("hold", "a", None)
        assert ledger.write("hold", "a", 2, expect=0)

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
        assert other.write("hold", "parcels", None, expect=1)
        assert ledger.read("hold") == {}

    def test_the_pulse_differs_after_every_write(self, ledger: Ledger) -> None:
        self.needs(ledger, "pulse")
        other = self.another(ledger)
        seen = {ledger.pulse()}
        for n in range(3):
            other.write("hold", "a", n)
            pulse = ledger.pulse()
            assert pulse not in seen
            seen.add(pulse)
        assert ledger.pulse() in seen

    def test_a_ledger_describes_itself(self, ledger: Ledger) -> None:
        assert isinstance(ledger.describe(), dict)
        assert isinstance(ledger.url, str)
