"""A login that DSpace refuses: one request for all DOIs, no try counted, the stage `submit` held;
once the password is right, each DOI is deposited once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.deposits.deposits_service import deposits_service
from tests.deposits.submit_scene import DSS, ENVIRONMENT, SubmitScene, second_worker, submit_scene

import milepost as mp
from milepost_deposits.commands import round_lines
from milepost_deposits.controls import PAUSED_BY, partner_waits
from milepost_deposits.dspace.errors import DSpaceLoginRefused
from milepost_deposits.dspace.login import FIRST_S, LONGEST_S, delay_s, probe_login, resume_command
from milepost_deposits.rounds import RoundReport, run_round
from milepost_deposits.standins.dspace import PASSWORD, USER
from milepost_deposits.stuck import find_late_deposits

DOIS = [f"10.1002/held.{number}" for number in range(8)]
LEDGERS = ["memory", "sqlite", pytest.param("aws", marks=pytest.mark.slow)]
LOGIN = "POST */authn/login"
ANN = {"by": "ann", "reason": "the password is right now"}


def logins(scene: SubmitScene) -> int:
    return scene.dspace.count(LOGIN)


def hold(scene: SubmitScene) -> mp.PauseView:
    [held] = scene.app.pauses("deposits")
    assert (held.scope, held.by, held.until) == ("deposits/submit", PAUSED_BY, None)
    return held


@pytest.mark.parametrize("kind", LEDGERS)
@pytest.mark.parametrize("dss", [None, DSS], ids=["direct", "service"])
def test_one_login_is_refused_and_all_dois_wait_until_a_person_resumes(
    tmp_path: Path, kind: str, dss: object
) -> None:
    with submit_scene(tmp_path, kind, dss=dss) as scene:
        scene.dspace.password = "new"
        scene.take_in(*DOIS[:5])
        for _ in range(6):
            scene.work("12h")
        scene.take_in(*DOIS[5:])
        assert logins(scene) == 1, "the first one is refused, and no DOI makes another"
        assert {scene.state(doi)[::2] for doi in DOIS} == {("submit", 0)}, (
            "the other stages are not held"
        )
        assert hold(scene).reason == (
            f"DSpace refused the login of {USER} (401): put the right password into DSPACE_PASSWORD for every process of Milepost, then run"
            " 'milepost resume deposits submit --by YOU --reason corrected'"
        )
        scene.dspace.password = PASSWORD
        assert scene.ledger.resume("deposits", "submit", **ANN)
        scene.work("30m")
        if dss is not None:
            scene.service.run()
            scene.apply()
        scene.work()  # on AWS: reads the stream to its end
        scene.check_deposited_once(DOIS)
        assert scene.app.pauses("deposits") == []


@pytest.mark.parametrize("status", [401, 403])
def test_a_stage_that_is_resumed_too_soon_is_held_again_after_one_login(
    tmp_path: Path, status: int
) -> None:
    with submit_scene(tmp_path, "sqlite") as scene:
        scene.dspace.fail("status", status, where=LOGIN, body={"message": "Authentication failed"})
        scene.take_in(*DOIS)
        first = hold(scene)
        for expected in (2, 3):
            scene.ledger.resume("deposits", "submit", **ANN)
            scene.work("1h")
            assert logins(scene) == expected
        assert hold(scene).since != first.since
        assert f"({status})" in first.reason
        assert {scene.state(doi)[2] for doi in DOIS} == {0}


def test_another_process_makes_no_login_while_the_stage_is_held(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "sqlite") as scene:
        scene.dspace.password = "new"
        scene.take_in(*DOIS)
        second_worker(scene, hours=3)
        assert logins(scene) == 1


def test_threads_that_log_in_at_the_same_time_make_one_request(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "sqlite") as scene:
        scene.dspace.password = "new"
        errors: list[str] = []

        def search() -> None:
            try:
                scene.submission.dspace.find(DOIS[0])
            except DSpaceLoginRefused as refusal:
                errors.append(str(refusal))

        dspace = scene.submission.dspace  # made once, before the threads ask for it
        threads = [threading.Thread(target=search) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert dspace is scene.submission.dspace
        assert (errors, logins(scene)) == ([hold(scene).reason] * 8, 1)


@pytest.mark.parametrize("kind", LEDGERS)
@pytest.mark.parametrize(
    "step", ["POST */core/items", "POST */bundles", "POST */bitstreams", "PATCH */core/items/*"]
)
def test_a_password_that_expires_in_the_middle_of_a_deposit_leaves_one_item(
    tmp_path: Path, kind: str, step: str
) -> None:
    with submit_scene(tmp_path, kind) as scene:
        scene.take_in(DOIS[0])
        scene.dspace.fail("status", 401, where=step)
        scene.dspace.fail("status", 401, where="DELETE *")
        scene.dspace.fail("status", 401, where=LOGIN)
        scene.take_in(*DOIS[1:])
        scene.work("12h")
        assert logins(scene) == 2
        assert {scene.state(doi)[::2] for doi in DOIS[1:]} == {("submit", 0)}
        scene.dspace.mend()
        scene.ledger.resume("deposits", "submit", **ANN)
        scene.work("1h")
        scene.check_deposited_once(DOIS)


def test_a_search_that_is_refused_the_login_leaves_the_result_unknown(tmp_path: Path) -> None:
    """`verify` meets the refusal: no try is counted, and no second item is made."""
    with submit_scene(tmp_path, "sqlite") as scene:
        # With an item in the index, DSpace's own list, which is never behind, is not read.
        scene.take_in("10.1002/first")
        scene.work("5m")
        scene.dspace.fail("reset", where="POST */core/items", times=1, acted=True)
        scene.take_in(DOIS[0])
        assert scene.state(DOIS[0]) == ("submit", "RETRY_SCHEDULED", 1)
        scene.dspace.end_logins()
        scene.dspace.password = "new"
        scene.work("2d")
        assert scene.state(DOIS[0])[::2] == ("submit", 1)
        hold(scene)
        scene.dspace.password = PASSWORD
        scene.ledger.resume("deposits", "submit", **ANN)
        scene.work("1h")
        assert scene.state(DOIS[0])[1] == "COMPLETED"
        assert len(scene.dspace.having(DOIS[0])) == 1


@pytest.mark.parametrize(
    ("fault", "category"),
    [
        (
            {"kind": "status", "status": 403, "body": {"message": "Invalid CSRF token"}},
            "DSPACE_UNAVAILABLE",
        ),
        ({"kind": "status", "status": 500}, "DSPACE_UNAVAILABLE"),
        ({"kind": "status", "status": 404}, "DSPACE_LOGIN"),
        ({"kind": "html"}, "DSPACE_LOGIN"),
        ({"kind": "reset"}, "DSPACE_UNAVAILABLE"),
    ],
)
def test_a_login_without_an_answer_about_the_password_holds_nothing(
    tmp_path: Path, fault: dict[str, object], category: str
) -> None:
    with submit_scene(tmp_path, "memory") as scene:
        scene.dspace.fail(**fault, where=LOGIN)  # type: ignore[arg-type]
        scene.take_in(DOIS[0])
        assert scene.state(DOIS[0]) == ("submit", "RETRY_SCHEDULED", 1)
        assert scene.view(DOIS[0])["error"]["category"] == category
        assert scene.app.pauses("deposits") == []


def test_a_pause_by_a_person_stays_and_a_pause_for_a_rate_limit_becomes_a_hold(
    tmp_path: Path,
) -> None:
    with submit_scene(tmp_path, "sqlite") as scene:
        scene.ledger.pause("deposits", "submit", by="ann", reason="DSpace moves house")
        with pytest.raises(DSpaceLoginRefused):
            scene.dspace.password = "new"
            scene.submission.dspace.find(DOIS[0])
        [held] = scene.app.pauses("deposits")
        assert (held.by, probe_login(scene.app, ENVIRONMENT)) == ("ann", False)
        scene.ledger.resume("deposits", "submit", **ANN)
        scene.controls.pause("submit", 600, "DSpace asks us to slow down")
        assert not probe_login(scene.app, ENVIRONMENT)
        with pytest.raises(DSpaceLoginRefused):
            scene.submission.dspace.find(DOIS[0])
        first = hold(scene)
        scene.controls.pause("submit", 60, "DSpace asks us to slow down")
        assert hold(scene) == first


# Probes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LEDGERS)
def test_a_probe_ends_the_hold_when_dspace_accepts_the_login(tmp_path: Path, kind: str) -> None:
    with submit_scene(tmp_path, kind) as scene:
        scene.dspace.password = "new"
        scene.take_in(*DOIS)
        assert not probe_login(scene.app, ENVIRONMENT)
        assert logins(scene) == 1, "it is too soon"
        scene.clock.advance(FIRST_S)
        assert not probe_login(scene.app, ENVIRONMENT)
        assert not probe_login(scene.app, ENVIRONMENT)
        assert logins(scene) == 2, "one login, and the next one later"
        hold(scene)
        scene.dspace.password = PASSWORD
        scene.clock.advance(FIRST_S)
        assert not probe_login(scene.app, ENVIRONMENT)
        scene.clock.advance(FIRST_S)
        assert probe_login(scene.app, ENVIRONMENT)
        assert scene.app.pauses("deposits") == []
        scene.work("30m")
        scene.check_deposited_once(DOIS)
        assert not probe_login(scene.app, ENVIRONMENT)


def test_the_delays_of_a_later_hold_begin_anew(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory") as scene:
        scene.dspace.password = "new"
        scene.take_in(*DOIS)
        for _ in range(5):
            scene.clock.advance(LONGEST_S)
            probe_login(scene.app, ENVIRONMENT)
        assert logins(scene) == 6
        scene.ledger.resume("deposits", "submit", **ANN)
        scene.work("1m")
        scene.clock.advance(FIRST_S)
        probe_login(scene.app, ENVIRONMENT)
        assert logins(scene) == 8


def test_two_processes_make_one_probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second process probes between the first one's look at the document and its write."""
    with submit_scene(tmp_path, "sqlite") as scene:
        scene.dspace.password = "new"
        scene.take_in(DOIS[0])
        scene.clock.advance(FIRST_S)
        app, documents = scene.app, scene.app.documents
        get: Callable[[str], object] = documents.get
        inner: list[bool] = []

        def get_then_other(name: str) -> object:
            found = get(name)
            inner.append(probe_login(scene.app, ENVIRONMENT))
            return found

        monkeypatch.setattr(documents, "get", get_then_other)
        monkeypatch.setattr(
            type(app),
            "documents",
            property(
                lambda one: documents if one is app else type(documents)(one.context, one.name)
            ),
        )
        assert (probe_login(app, ENVIRONMENT), inner, logins(scene)) == (False, [False], 2)


def test_a_probe_without_an_answer_or_a_user_ends_no_hold(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory") as scene:
        scene.dspace.password = "new"
        scene.take_in(DOIS[0])
        scene.dspace.password = PASSWORD
        scene.dspace.fail("status", 503, where=LOGIN)
        scene.clock.advance(LONGEST_S)
        assert not probe_login(scene.app, ENVIRONMENT)
        scene.dspace.mend()
        scene.clock.advance(LONGEST_S)
        assert not probe_login(scene.app, {})
        hold(scene)


def test_the_delay_doubles_up_to_a_limit() -> None:
    assert [delay_s(times) / FIRST_S for times in range(4)] == [1, 2, 4, 8]
    assert delay_s(10_000) == LONGEST_S


# Rounds, the search for late deposits, and what people see ----------------------------------------


def one_round(scene: SubmitScene) -> RoundReport:
    return run_round(
        scene.app, lambda: scene.work("1m"), lambda seconds: scene.clock.advance(seconds)
    )


def test_a_week_of_rounds_makes_one_login_each_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "inbox").mkdir()
    with submit_scene(tmp_path, "sqlite", mode="rounds", inbox=str(tmp_path / "inbox")) as scene:
        scene.dspace.password = "new"
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS))
        for day in range(1, 8):
            report = one_round(scene)
            assert report.needs_people
            assert report.counts["Processing"] == len(DOIS)
            [wait] = report.waits
            assert wait.text == f"{hold(scene).reason}. 8 DOIs wait, and no try is counted"
            assert wait.text in list(round_lines(scene.app, report)), "the command prints it"
            assert logins(scene) == day
            scene.clock.advance(86_400 - 60)
        scene.dspace.password = PASSWORD
        report = one_round(scene)
        assert (report.needs_people, report.waits, report.counts["Success"]) == (
            False,
            [],
            len(DOIS),
        )
        scene.check_deposited_once(DOIS)


def test_after_a_resume_the_next_round_tries_all_at_once(tmp_path: Path) -> None:
    """The DOIs that were under way when the login was refused wait no longer than the others."""
    (tmp_path / "inbox").mkdir()
    with submit_scene(tmp_path, "sqlite", mode="rounds", inbox=str(tmp_path / "inbox")) as scene:
        scene.dspace.password = "new"
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS))
        one_round(scene)
        scene.dspace.password = PASSWORD
        scene.ledger.resume("deposits", "submit", **ANN)
        run_round(scene.app, lambda: scene.work("1s"), scene.clock.advance)
        scene.check_deposited_once(DOIS)


def test_the_search_for_late_deposits_shares_the_hold(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "sqlite", attempts=1) as scene:
        for doi in DOIS[:2]:
            scene.dspace.fail("reset", where="POST */core/items", times=1, acted=False)
            scene.take_in(doi)
            assert scene.state(doi)[1] == "MAX_RETRIES_EXCEEDED"
        scene.dspace.password = "new"
        before = logins(scene)
        for _ in range(3):
            assert find_late_deposits(scene.app, environment=ENVIRONMENT) == []
        assert logins(scene) == before + 1
        hold(scene)


def test_doctor_the_overview_the_page_and_the_digest_show_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with deposits_service(tmp_path, monkeypatch) as service:
        service.dspace.password = "new"
        service.deliver(*DOIS)
        assert service.round().needs_people
        [wait] = partner_waits(service.app)
        assert wait.text.endswith("8 DOIs wait, and no try is counted")
        for path in ("/deposits", "/"):
            with urlopen(f"{service.url}{path}", timeout=60) as answer:
                assert f"DSpace refused the login of {USER} (401)" in answer.read().decode(), path
        [mail] = service.mailbox.files
        assert "refused the login" in " ".join(mail.read_text().replace("=\n", "").split())
        assert resume_command(service.app.settings) in wait.reason
        assert (service.round().digests, len(service.mailbox.files)) == (0, 1), (
            "people have heard of it"
        )
