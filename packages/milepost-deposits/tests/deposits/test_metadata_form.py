"""The form of the metadata file: that of today's submission service, and a wrong one is named as
the common cause of all failures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.deposits.submit_scene import DSS, SubmitScene, submit_scene

from milepost_deposits.application import form_check
from milepost_deposits.common_cause import common_cause
from milepost_deposits.metadata_form import in_form
from milepost_deposits.rounds import RoundReport, run_round

DOIS = tuple(f"10.1002/form.{number}" for number in range(4))


def service_run(scene: SubmitScene) -> None:
    scene.service.run()
    scene.apply()


def test_todays_service_reads_the_default_form(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory", dss=DSS) as scene:
        assert scene.service.form == "dspace8"
        scene.take_in(*DOIS)
        service_run(scene)
        assert {scene.state(doi)[1] for doi in DOIS} == {"COMPLETED"}


def test_a_service_of_an_older_version_reads_the_old_form_that_its_settings_name(
    tmp_path: Path,
) -> None:
    with submit_scene(tmp_path, "memory", dss=replace(DSS, metadata="old")) as scene:
        scene.take_in(*DOIS)
        service_run(scene)
        assert {scene.state(doi)[1] for doi in DOIS} == {"COMPLETED"}


@pytest.mark.parametrize(("written", "read"), [("old", "dspace8"), ("dspace8", "old")])
def test_a_round_in_which_every_doi_fails_for_the_form_says_so(
    tmp_path: Path, written: Any, read: Any
) -> None:
    with submit_scene(tmp_path, "memory", dss=replace(DSS, metadata=written)) as scene:
        scene.service.form = read
        scene.take_in(*DOIS)
        service_run(scene)
        cause = common_cause(scene.app, 0)
        assert cause is not None
        assert cause.text.startswith(
            "4 of 4 DOIs failed at submit with the same cause: Error occurred while creating item from file"
        )
        assert cause.text.endswith(
            f'; probably metadata = "{written}" is not the form that this version of the submission service reads: try "{read}"'
        )


def test_different_errors_or_a_success_are_no_common_cause(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory", dss=DSS) as scene:
        scene.plan(DOIS[0], "no-metadata")
        for doi in DOIS[1:]:
            scene.plan(doi, "no-item")
        scene.take_in(*DOIS)
        service_run(scene)
        assert common_cause(scene.app, 0) is None
    (tmp_path / "second").mkdir()
    with submit_scene(tmp_path / "second", "memory", dss=DSS) as scene:
        for doi in DOIS[1:]:
            scene.plan(doi, "no-item")
        scene.take_in(*DOIS)
        service_run(scene)
        assert common_cause(scene.app, 0) is None


def test_a_corrected_form_is_that_of_the_next_message(tmp_path: Path) -> None:
    """Files that were written before are written again in the right form."""
    with submit_scene(tmp_path, "memory", dss=replace(DSS, metadata="old")) as scene:
        scene.service.form = "dspace8"
        scene.take_in(DOIS[0])
        service_run(scene)
        scene.submission._dss = DSS  # type: ignore[union-attr]
        scene.work("90m")
        service_run(scene)
        assert scene.state(DOIS[0])[1] == "COMPLETED"


def test_a_file_of_one_form_becomes_one_of_the_other() -> None:
    old = {
        "metadata": [
            {"key": "dc.title", "value": "T"},
            {"key": "a.b", "value": "1"},
            {"key": "a.b", "value": "2"},
        ]
    }
    new = {"dc.title": [{"value": "T"}], "a.b": [{"value": "1"}, {"value": "2"}]}
    assert (in_form(old, "dspace8"), in_form(new, "old")) == (new, old)
    assert (in_form(old, "old"), in_form(new, "dspace8")) == (old, new)


def test_doctor_says_which_form_a_setting_that_is_left_out_has(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory", dss=DSS) as scene:
        [finding] = form_check(scene.app)
        assert (finding.level, 'metadata = "old"' in finding.what) == ("ok", True)
    with submit_scene(tmp_path, "memory", dss=replace(DSS, metadata="old")) as scene:
        assert list(form_check(scene.app)) == []


def test_the_report_of_a_round_begins_with_the_common_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with submit_scene(
        tmp_path, "memory", dss=replace(DSS, metadata="old"), mode="rounds", inbox=str(tmp_path)
    ) as scene:
        scene.service.form = "dspace8"
        monkeypatch.setattr("milepost_deposits.rounds.apply_results", lambda app: scene.apply())
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS))

        def one_round() -> RoundReport:
            scene.clock.advance("1d")
            return run_round(scene.app, lambda: scene.work("1s"), lambda seconds: None)

        assert one_round().cause is None
        scene.service.run()
        cause = one_round().cause
        assert cause is not None
        assert cause.dois == len(DOIS)
