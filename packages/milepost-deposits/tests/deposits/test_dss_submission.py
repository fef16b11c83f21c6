"""Deposits through the DSpace Submission Service: one message, one item, and the result is the
outcome."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.deposits.submit_scene import DSS, RETENTION_S, SubmitScene, pdf_of, submit_scene

import milepost as mp
import milepost.application as mpa
from milepost_aws.aws_model import Faults
from milepost_deposits.acts import mark_deposited, may_be_deposited, requeue
from milepost_deposits.controls import partner_waits
from milepost_deposits.dspace.record import ANSWER, SUFFIX, SubmissionRecord, SubmissionRecords
from milepost_deposits.dss.results import ResultListener, drop_set_aside, set_aside
from milepost_deposits.dss.submission import DssSubmission
from milepost_deposits.files import FileStore, StoreFault
from milepost_deposits.stuck import find_late_deposits, stuck_deposits

DOI = "10.1002/abcd.20417"


@pytest.fixture(params=["sqlite", "aws"])
def scene(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SubmitScene]:
    with submit_scene(tmp_path, request.param, dss=DSS) as made:
        yield made


@pytest.fixture
def quick(tmp_path: Path) -> Iterator[SubmitScene]:
    """On the ledger in memory, for tests that no ledger makes a difference to."""
    with submit_scene(tmp_path, "memory", dss=DSS) as made:
        yield made


def test_a_new_doi_is_handed_over_with_one_message(scene: SubmitScene) -> None:
    """Scenario 1, as far as the submission goes: the row is handed over, files are stored, one
    message has the exact body."""
    scene.take_in(DOI)
    view = scene.view(DOI)
    assert (view["stage"], view["status"], view["handed_over"]) == ("submit", "WAITING", True)
    [message] = scene.model.queue(scene.urls["dss-input"]).messages.values()
    assert sorted(message.attributes) == ["OutputQueue", "PackageID", "SubmissionSource"]
    body = json.loads(message.body)
    assert list(body) == ["SubmissionSystem", "CollectionHandle", "MetadataLocation", "Files"]
    assert json.loads(Path(body["MetadataLocation"]).read_bytes())["dc.title"] == [
        {"value": f"On {DOI}"}
    ]
    assert Path(body["Files"][0]["FileLocation"]).read_bytes().startswith(b"%PDF")


def test_a_success_completes_the_doi_and_its_facts_are_kept(scene: SubmitScene) -> None:
    """Scenario 17."""
    scene.take_in(DOI)
    scene.service.run()
    tally = scene.apply()
    assert (tally.deposited, scene.messages("dss-output")) == (1, 0)
    view = scene.view(DOI)
    [item] = scene.dspace.having(DOI)
    assert view["status"] == "COMPLETED"
    result = view["results"]["submit"]
    assert (result["handle"], result["last_modified"]) == (item.handle, item.last_modified)
    assert result["files"][0]["checksum"] == view["results"]["content"]["file"]["md5"]


def test_what_is_done_or_handed_over_is_not_sent_again(scene: SubmitScene) -> None:
    """Scenarios 2 to 5: the same list comes again, with one DOI in each state."""
    done, waits, failed, retried = "10.1/done", "10.1/waits", "10.1/failed", "10.1/retried"
    scene.plan(failed, "refused", "refused", "refused")
    scene.take_in(done, failed)
    for _ in range(3):
        scene.service.run()
        scene.apply()
        scene.work("3h")
    assert scene.state(failed)[1] == "MAX_RETRIES_EXCEEDED"
    scene.plan(retried, "no-metadata")
    scene.take_in(retried)
    scene.service.run()
    scene.apply()
    scene.take_in(waits)
    sent = len(scene.service.received) + scene.messages()
    scene.ledger.submit("deposits", *({"doi": doi} for doi in (done, waits, failed, retried)))
    scene.work("1m")
    assert len(scene.service.received) + scene.messages() == sent
    assert scene.state(done)[1] == "COMPLETED"
    assert scene.state(failed) == ("submit", "MAX_RETRIES_EXCEEDED", 3), "not sent again, not reset"
    assert scene.state(retried) == ("submit", "RETRY_SCHEDULED", 1)
    scene.work("1h")
    scene.service.run()
    scene.apply()
    assert scene.state(retried)[1] == "COMPLETED", (
        "one that is to be retried is sent without any list"
    )
    assert scene.service.received.count(retried) == 2


def test_error_results_are_counted_tries_until_the_threshold(scene: SubmitScene) -> None:
    """Scenario 18: after the last one it is final, and no further message is sent."""
    scene.plan(DOI, "no-metadata", "no-metadata", "no-metadata", "success")
    scene.take_in(DOI)
    for attempt in (1, 2):
        scene.service.run()
        scene.apply()
        assert scene.state(DOI) == ("submit", "RETRY_SCHEDULED", attempt)
        scene.work("1h")
    scene.service.run()
    scene.apply()
    assert scene.state(DOI) == ("submit", "MAX_RETRIES_EXCEEDED", 3)
    scene.work("12h")
    assert len(scene.service.received) == 3
    assert scene.dspace.having(DOI) == []
    assert scene.reasons(DOI)[-1] == "exhausted"


def test_an_unknown_collection_pauses_the_stage_and_counts_no_try(quick: SubmitScene) -> None:
    dois = [f"10.1/{number}" for number in range(5)]
    for doi in dois:
        quick.plan(doi, "no-collection")
    quick.take_in(*dois)
    quick.service.run()
    assert quick.apply().failed == len(dois)
    [wait] = partner_waits(quick.app)
    assert "does not find the collection" in wait.text
    assert "check [deposits.submit] collection" in wait.text
    assert wait.needs_people
    quick.work("2h")
    assert quick.messages() == 0, "nothing is sent meanwhile"
    quick.ledger.resume("deposits", "submit", by="ann", reason="corrected")
    quick.work("5m")
    quick.service.run()
    quick.apply()
    assert {(quick.state(doi)[1], quick.view(doi)["total_attempts"]) for doi in dois} == {
        ("COMPLETED", 0)
    }


def test_a_success_that_names_no_file_is_checked_in_dspace(scene: SubmitScene) -> None:
    scene.plan(DOI, "success-bare")
    scene.take_in(DOI)
    scene.service.run()
    assert scene.apply().deposited == 1
    result = scene.view(DOI)["results"]["submit"]
    [item] = scene.dspace.having(DOI)
    assert (result["handle"], result["files"][0]["checksum"]) == (
        item.handle,
        scene.view(DOI)["results"]["content"]["file"]["md5"],
    )


def test_a_success_whose_item_has_no_file_is_for_people(scene: SubmitScene) -> None:
    scene.plan(DOI, "success-empty")
    scene.take_in(DOI)
    scene.service.run()
    assert scene.apply().failed == 1
    assert scene.state(DOI)[1] == "REJECTED"
    message = scene.view(DOI)["error"]["message"]
    assert message.startswith(
        f"DSpace has the item {scene.dspace.having(DOI)[0].handle}, but not with the file that was sent"
    )


def test_a_success_of_an_item_that_dspace_does_not_have_is_for_people(quick: SubmitScene) -> None:
    quick.take_in(DOI)
    quick.sqs.send_message(
        QueueUrl=quick.urls["dss-output"],
        MessageBody=json.dumps(
            {"ResultType": "success", "ItemHandle": "1721.1/999", "Bitstreams": []}
        ),
        MessageAttributes={"PackageID": {"DataType": "String", "StringValue": DOI}},
    )
    assert quick.apply().failed == 1
    assert "the item 1721.1/999" in quick.view(DOI)["error"]["message"]


def test_a_success_that_cannot_be_checked_now_stays_in_the_queue(quick: SubmitScene) -> None:
    quick.plan(DOI, "success-bare")
    quick.take_in(DOI)
    quick.service.run()
    quick.dspace.fail("status", 500, where="GET */pid/find", times=1)
    assert quick.apply().left == 1
    assert quick.state(DOI)[1] == "WAITING"
    quick.clock.advance("5m")
    assert quick.apply().deposited == 1


@pytest.mark.parametrize("behaviour", ["maybe", "no-type", "empty", "no-attributes"])
def test_a_message_that_is_no_result_is_set_aside_and_the_others_are_applied(
    quick: SubmitScene, behaviour: Any
) -> None:
    """Scenarios 20 and 21: it is set aside once, with its content, and is not read again."""
    quick.plan(DOI, behaviour)
    quick.take_in(DOI, "10.1/b")
    quick.service.run()
    tally = quick.apply()
    assert (tally.deposited, tally.set_aside, quick.messages("dss-output")) == (1, 1, 0)
    assert quick.state("10.1/b")[1] == "COMPLETED"
    assert quick.state(DOI)[1] == "WAITING", "an unknown result is no success"
    [(id, kept)] = set_aside(quick.app).items()
    assert kept["reason"]
    assert json.loads(kept["body"]) is not None
    assert quick.apply().received == 0
    assert drop_set_aside(quick.app, id)
    assert set_aside(quick.app) == {}


def test_a_result_for_a_doi_that_is_not_ours_is_set_aside(quick: SubmitScene) -> None:
    quick.sqs.send_message(
        QueueUrl=quick.urls["dss-output"],
        MessageBody=json.dumps({"ResultType": "success", "ItemHandle": "1/2"}),
        MessageAttributes={"PackageID": {"DataType": "String", "StringValue": "10.1/unknown"}},
    )
    assert quick.apply().set_aside == 1
    assert "no such deposit" in next(iter(set_aside(quick.app).values()))["reason"]


def test_a_bare_string_is_a_counted_try(quick: SubmitScene) -> None:
    """Scenario 21."""
    quick.plan(DOI, "refused")
    quick.take_in(DOI)
    quick.service.run()
    assert quick.apply().failed == 1
    assert (quick.state(DOI), quick.view(DOI)["error"]["category"]) == (
        ("submit", "RETRY_SCHEDULED", 1),
        "DSS_REJECTED",
    )
    quick.work("1h")
    quick.service.run()
    quick.apply()
    assert quick.state(DOI)[1] == "COMPLETED"
    assert not [
        path.name
        for path in Path(quick.settings.files).iterdir()
        if path.name.endswith((SUFFIX, ANSWER))
    ]


def test_a_result_that_could_not_be_written_stays_in_the_queue(tmp_path: Path) -> None:
    """Scenario 22: the ledger first, then the message."""
    faults = Faults()
    with submit_scene(tmp_path, "aws", faults, dss=DSS) as scene:
        scene.take_in(DOI)
        scene.service.run()
        faults.clear()
        for operation in ("UpdateItem", "TransactWriteItems"):
            faults.plan(operation, "denied", times=50)
        tally = scene.apply()
        assert (tally.received, tally.left, scene.messages("dss-output")) == (1, 1, 1)
        assert scene.state(DOI)[1] == "WAITING"
        faults.clear()
        scene.clock.advance("5m")
        assert scene.apply().deposited == 1
        assert scene.state(DOI)[1] == "COMPLETED"


def test_a_message_whose_delete_failed_is_applied_once(quick: SubmitScene) -> None:
    class DeletesNothing:
        def __getattr__(self, name: str) -> Any:
            return getattr(quick.sqs, name)

        def delete_message(self, **_: Any) -> None:
            raise OSError("gone away")

    quick.plan(DOI, "no-metadata")
    quick.take_in(DOI)
    quick.service.run()
    assert ResultListener(quick.app, DeletesNothing()).turn().left == 1
    quick.clock.advance("3m")
    quick.apply()
    assert quick.state(DOI) == ("submit", "RETRY_SCHEDULED", 1)


def test_a_worker_that_dies_after_sending_sends_no_second_message(scene: SubmitScene) -> None:
    """Scenario 23: the record was written first, and DSpace is asked before anything is sent
    again."""

    def lost(self: Any, deposit: Any, item: mp.Item) -> mp.Outcome:
        DssSubmission._send(scene.submission, deposit, item)  # type: ignore[arg-type]
        return mp.Retry("the process died", unknown=True, category="LOST")

    scene.submission._send = lost.__get__(scene.submission)  # type: ignore[method-assign,union-attr]
    scene.take_in(DOI)
    del scene.submission._send  # type: ignore[union-attr]
    scene.work("1h")
    assert (len(scene.service.received), scene.messages()) == (0, 1), (
        "the first message can still be read"
    )
    scene.service.run()
    assert scene.apply().deposited == 1
    assert scene.state(DOI)[1] == "COMPLETED"
    scene.work("12h")
    assert len(scene.dspace.having(DOI)) == 1
    assert scene.service.received == [DOI]


def test_a_worker_that_is_stopped_after_sending_sends_no_second_message(tmp_path: Path) -> None:
    """Scenario 23, with a process that ends while its handler hangs: the item is given back with an
    unknown result."""
    sent, released = threading.Event(), threading.Event()
    send = DssSubmission._send

    def send_and_hang(self: DssSubmission, deposit: Any, item: mp.Item) -> mp.Outcome:
        outcome = send(self, deposit, item)
        sent.set()
        released.wait(120)
        return outcome

    with submit_scene(tmp_path, "sqlite", dss=DSS) as scene:
        dying = scene.new_submission()
        dying._send = send_and_hang.__get__(dying)  # type: ignore[method-assign,union-attr]
        other = mp.open(scene.url, routes=[scene.route(dying)], clock=scene.clock)
        scene.ledger.submit("deposits", {"doi": DOI})
        other.start()
        assert sent.wait(120)
        other.stop(grace=0)
        released.set()
        other.close()
        scene.work("1h")
        assert "given-back" in scene.reasons(DOI)
        assert scene.messages() == 1, "the message can still be read"
        scene.service.run()
        scene.apply()
        assert scene.state(DOI)[1] == "COMPLETED"
        scene.work("12h")
        assert (len(scene.dspace.having(DOI)), scene.service.received) == (1, [DOI])


def test_a_result_that_is_faster_than_the_hand_over(scene: SubmitScene) -> None:
    """Scenario 24: the result is applied while the worker still has the item; it wins."""
    sent = DssSubmission._send

    def send_and_be_answered(self: DssSubmission, deposit: Any, item: mp.Item) -> mp.Outcome:
        outcome = sent(self, deposit, item)
        scene.service.run()
        scene.apply()
        return outcome

    scene.submission._send = send_and_be_answered.__get__(scene.submission)  # type: ignore[method-assign,union-attr]
    scene.take_in(DOI)
    assert scene.state(DOI)[1] == "COMPLETED"
    assert scene.view(DOI)["results"]["submit"]["handle"] == scene.dspace.having(DOI)[0].handle


def test_two_workers_and_one_doi(tmp_path: Path) -> None:
    """Scenario 25: one claim wins, and one message is sent."""
    with submit_scene(tmp_path, "sqlite", dss=DSS) as scene:
        other = mp.open(scene.url, routes=[scene.route()], clock=scene.clock)
        scene.ledger.submit("deposits", *({"doi": f"10.1/{n}"} for n in range(20)))
        workers = [
            threading.Thread(target=one.run, kwargs={"until_idle": 0})
            for one in (scene.ledger, other)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        other.close()
        assert scene.messages() == 20
        assert {scene.state(f"10.1/{n}") for n in range(20)} == {("submit", "WAITING", 0)}


def test_a_late_error_after_a_success_changes_only_the_history(scene: SubmitScene) -> None:
    """Scenario 26."""
    scene.plan(DOI, "success-twice")
    scene.take_in(DOI)
    scene.service.run()
    assert scene.apply().deposited == 2
    before = scene.reasons(DOI)
    scene.sqs.send_message(
        QueueUrl=scene.urls["dss-output"],
        MessageBody=json.dumps({"ResultType": "error", "ErrorInfo": "late"}),
        MessageAttributes={"PackageID": {"DataType": "String", "StringValue": DOI}},
    )
    assert scene.apply().noted == 1
    assert scene.state(DOI)[1] == "COMPLETED"
    assert scene.reasons(DOI) == [*before, "noted"]
    assert scene.messages("dss-output") == 0


def test_an_error_that_comes_twice_counts_once(scene: SubmitScene) -> None:
    scene.plan(DOI, "error-twice")
    scene.take_in(DOI)
    scene.service.run()
    scene.apply()
    assert scene.state(DOI) == ("submit", "RETRY_SCHEDULED", 1)


def test_an_answer_that_is_noted_late_says_nothing_about_a_later_message(
    quick: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that reads results stops for a while between reading the record and noting the
    answer."""
    quick.plan(DOI, "no-bundle")
    quick.take_in(DOI)
    quick.service.run()
    records = SubmissionRecords(quick.files)
    get, later = SubmissionRecords.get, SubmissionRecord(quick.now() + 60)

    def get_and_stop(self: SubmissionRecords, doi: str) -> SubmissionRecord:
        found = get(self, doi)
        self.put(doi, later)
        return found

    monkeypatch.setattr(SubmissionRecords, "get", get_and_stop)
    quick.apply()
    monkeypatch.undo()
    assert records.get(DOI) == later, "the service can still read the later message"


def test_an_error_of_an_earlier_message_is_not_taken_for_the_answer_to_the_last(
    quick: SubmitScene,
) -> None:
    """SQS delivers a result again, after the DOI was sent a second time."""
    quick.plan(DOI, "no-metadata")
    quick.take_in(DOI)
    quick.service.run()
    [again] = [
        dict(vars(one)) for one in quick.model.queue(quick.urls["dss-output"]).messages.values()
    ]
    quick.apply()
    quick.work("1h")
    assert (quick.view(DOI)["handed_over"], quick.messages()) == (True, 1)
    quick.sqs.send_message(
        QueueUrl=quick.urls["dss-output"],
        MessageBody=again["body"],
        MessageAttributes=again["attributes"],
    )
    [repeated] = quick.model.queue(quick.urls["dss-output"]).messages.values()
    repeated.sent_at = again["sent_at"]
    assert quick.apply().noted == 1
    assert quick.state(DOI) == ("submit", "WAITING", 1)


@pytest.mark.parametrize("behaviour", ["no-item-made", "no-bundle-left", "no-bitstream"])
def test_a_person_without_patience_makes_no_second_item(quick: SubmitScene, behaviour: Any) -> None:
    """After an error that may have left an item, DSpace is searched twice, even where the DOI is
    requeued at once."""
    quick.dspace.index_lag = 60
    quick.plan(DOI, behaviour, "success")
    quick.take_in(DOI)
    quick.service.run()
    quick.apply()
    requeue(quick.app, [DOI], by="ann", reason="at once")
    quick.work("1m")
    assert quick.messages() == 0
    for _ in range(4):
        quick.work("30m")
        quick.service.run()
        quick.apply()
    assert len(quick.dspace.having(DOI)) == 1
    assert quick.service.received.count(DOI) == (2 if behaviour == "no-bitstream" else 1)


def test_a_success_after_the_last_error_completes_the_doi(quick: SubmitScene) -> None:
    quick.plan(DOI, "refused", "refused", "refused")
    quick.take_in(DOI)
    for _ in range(3):
        quick.service.run()
        quick.apply()
        quick.work("3h")
    assert quick.state(DOI)[1] == "MAX_RETRIES_EXCEEDED"
    item = quick.dspace.put({"dc.title": [{"value": "t"}]})
    item.add_file("a.pdf", pdf_of(DOI))
    quick.sqs.send_message(
        QueueUrl=quick.urls["dss-output"],
        MessageBody=json.dumps(
            {"ResultType": "success", "ItemHandle": item.handle, "Bitstreams": []}
        ),
        MessageAttributes={"PackageID": {"DataType": "String", "StringValue": DOI}},
    )
    assert quick.apply().deposited == 1
    assert quick.state(DOI)[1] == "COMPLETED"


def test_no_result_in_time_is_reported_and_not_silently_sent_again(scene: SubmitScene) -> None:
    """Scenario 27: the stuck report, then searches, and a second message only when the first can no
    longer be read."""
    scene.take_in(DOI)
    first = scene.now()
    assert stuck_deposits(scene.app) == []
    scene.work("130m")
    [stuck] = stuck_deposits(scene.app)
    assert stuck["key"] == DOI
    assert scene.view(DOI)["attempts"] == 1
    assert "overdue" in scene.reasons(DOI)
    scene.work("1h")
    assert scene.messages() == 1, "the service can still read it"
    scene.work("2h")
    [second] = scene.model.queue(scene.urls["dss-input"]).messages.values()
    assert second.sent_at >= first + RETENTION_S, (
        "the first has left the queue before another one was sent"
    )
    scene.service.run()
    scene.apply()
    assert scene.state(DOI)[1] == "COMPLETED"
    assert len(scene.dspace.having(DOI)) == 1


def test_a_service_that_makes_the_item_and_dies(scene: SubmitScene) -> None:
    """Scenarios 27 and 35: no result ever comes, and the search finds the item."""
    scene.plan(DOI, "dies-made")
    scene.take_in(DOI)
    assert not scene.service.run()
    scene.work("12h")
    view = scene.view(DOI)
    assert (view["status"], view["results"]["submit"]["found"]) == ("COMPLETED", True)
    assert scene.service.received == [DOI]
    assert len(scene.dspace.having(DOI)) == 1


@pytest.mark.parametrize("how", ["queue", "system"])
def test_a_service_that_never_answers(tmp_path: Path, how: str) -> None:
    """Scenario 35: the queue for results is not allowed, or the system is unknown. It ends at the
    threshold, with one message at a time."""
    dss = replace(DSS, system="Dome") if how == "system" else DSS
    with submit_scene(tmp_path, "memory", dss=dss) as scene:
        if how == "queue":
            scene.service.outputs = ("another",)
        scene.take_in(DOI)
        for _ in range(40):
            assert scene.messages() <= 1
            scene.service.run()
            scene.apply()
            scene.work("30m")
        assert scene.state(DOI) == ("submit", "MAX_RETRIES_EXCEEDED", 3)
        assert scene.dspace.having(DOI) == []
        assert scene.messages() == 0, (
            "people deposit by hand only when the service cannot read the last message any more"
        )


def test_an_item_that_an_error_left_behind_is_not_made_twice(scene: SubmitScene) -> None:
    """The service reports an error, but DSpace had made the item."""
    scene.plan(DOI, "no-bundle-left", "success")
    scene.take_in(DOI)
    scene.service.run()
    scene.apply()
    scene.work("3h")
    assert (scene.state(DOI)[1], scene.view(DOI)["error"]["category"]) == (
        "REJECTED",
        "INCOMPLETE_ITEM",
    )
    assert len(scene.dspace.having(DOI)) == 1
    assert scene.service.received == [DOI]
    mark_deposited(
        scene.app, DOI, scene.dspace.having(DOI)[0].handle, by="ann", reason="added the PDF"
    )
    assert scene.state(DOI)[1] == "COMPLETED"


@pytest.mark.parametrize("behaviour", ["error-old", "success-string", "success-review"])
def test_old_and_odd_forms_are_applied(quick: SubmitScene, behaviour: Any) -> None:
    """Scenario 31."""
    quick.plan(DOI, behaviour)
    quick.take_in(DOI)
    quick.service.run()
    quick.apply()
    if behaviour == "error-old":
        assert quick.state(DOI) == ("submit", "RETRY_SCHEDULED", 1)
        assert "500 Server Error" in quick.view(DOI)["error"]["message"]
    else:
        assert quick.state(DOI)[1] == "COMPLETED"
        assert (quick.view(DOI)["results"]["submit"]["handle"] is None) == (
            behaviour == "success-review"
        )


def test_another_file_in_dspace_needs_people(quick: SubmitScene) -> None:
    quick.plan(DOI, "success-other")
    quick.take_in(DOI)
    quick.service.run()
    quick.apply()
    view = quick.view(DOI)
    assert (view["status"], view["error"]["category"]) == ("REJECTED", "CHECKSUM_MISMATCH")
    assert view["error"]["details"]["handle"] == quick.dspace.having(DOI)[0].handle
    quick.work("12h")
    assert quick.service.received == [DOI]


def test_an_operator_says_that_the_message_will_not_be_read(quick: SubmitScene) -> None:
    quick.plan(DOI, "skips")
    quick.take_in(DOI)
    quick.service.run()
    quick.work("130m")
    assert (
        requeue(
            quick.app,
            [f"https://doi.org/{DOI.upper()}"],
            by="ops",
            reason="DSS was switched off",
            send_again=True,
        )
        == {}
    )
    quick.work("1m")
    assert quick.messages() == 1
    quick.service.run()
    quick.apply()
    assert quick.state(DOI)[1] == "COMPLETED"


def test_a_doi_that_the_service_has_is_not_sent_again_by_a_requeue(scene: SubmitScene) -> None:
    """Without a word that the message will not be read, it is waited for."""
    scene.take_in(DOI)
    requeue(scene.app, [DOI], by="ann", reason="it takes long")
    scene.work("1h")
    assert scene.messages() == 1
    scene.service.run()
    scene.apply()
    assert scene.state(DOI)[1] == "COMPLETED"
    assert scene.service.received == [DOI]


def test_the_service_reads_metadata_in_the_form_of_dspace_8(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "memory", dss=replace(DSS, metadata="dspace8")) as scene:
        scene.take_in(DOI)
        [message] = scene.model.queue(scene.urls["dss-input"]).messages.values()
        content = json.loads(Path(json.loads(message.body)["MetadataLocation"]).read_bytes())
        assert content["dc.title"] == [{"value": f"On {DOI}"}]
        scene.service.run()
        scene.apply()
        assert scene.state(DOI)[1] == "COMPLETED"
        assert scene.dspace.having(DOI)[0].values("dc.title") == [f"On {DOI}"]


def test_sent_again_by_an_operator_it_is_still_searched_first(quick: SubmitScene) -> None:
    quick.plan(DOI, "dies-made")
    quick.take_in(DOI)
    quick.service.run()
    quick.clock.advance("1h")
    requeue(quick.app, [DOI], by="ops", reason="too long", send_again=True)
    quick.work("1m")
    assert quick.view(DOI)["results"]["submit"]["found"] is True
    assert len(quick.dspace.having(DOI)) == 1


def test_a_failed_doi_whose_last_try_had_succeeded_is_found(tmp_path: Path) -> None:
    with submit_scene(tmp_path, "sqlite", dss=DSS, attempts=1) as scene:
        scene.plan(DOI, "dies-made")
        scene.take_in(DOI)
        scene.service.run()
        scene.work("6h")
        row = scene.view(DOI)
        assert (row["status"], row["error"]["category"]) == ("MAX_RETRIES_EXCEEDED", "NO_ANSWER")
        assert may_be_deposited(row["error"], row["stage"])
        assert find_late_deposits(scene.app, scene.submission.dspace) == [DOI]
        assert scene.state(DOI)[1] == "COMPLETED"
        assert find_late_deposits(scene.app, scene.submission.dspace) == []


def test_an_error_that_comes_again_while_the_next_message_is_sent_does_not_answer_it(
    quick: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener dies before it deletes the error. The error comes again when a worker searches
    DSpace before the second message."""
    quick.plan(DOI, "refused")
    quick.take_in(DOI)
    quick.service.run()

    def dead(**_: Any) -> None:
        raise ConnectionError

    with monkeypatch.context() as patch:
        patch.setattr(quick.sqs, "delete_message", dead)
        quick.apply()
    assert quick.state(DOI) == ("submit", "RETRY_SCHEDULED", 1)
    find, came = quick.submission.dspace.find, []

    def find_slowly(doi: str, *more: Any) -> Any:
        if not came:
            came.append(quick.apply())
        return find(doi, *more)

    monkeypatch.setattr(quick.submission.dspace, "find", find_slowly)
    quick.work("10m")
    assert came
    assert came[0].received == 1
    assert quick.view(DOI)["handed_over"]
    quick.work("1h")
    quick.apply()
    assert quick.messages("dss-input") == 1
    quick.service.run()
    quick.apply()
    assert len(quick.dspace.having(DOI)) == 1


def test_the_rows_of_many_results_are_read_with_one_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A result that is no answer of ours, one that comes twice and one of another file stop no
    other in the same portion."""
    with submit_scene(tmp_path, "aws", dss=DSS) as scene:
        dois = [f"10.1002/many.{number}" for number in range(25)]
        scene.take_in(*dois)
        scene.plan(dois[3], "success-other")
        scene.plan(dois[4], "no-item")
        scene.service.run()
        scene.sqs.send_message(QueueUrl=scene.urls["dss-output"], MessageBody="nonsense")
        reads: list[int] = []
        get = type(scene.ledger.context.ledger).get

        def counted(self: Any, refs: Any) -> Any:
            reads.append(len(refs))
            return get(self, refs)

        with monkeypatch.context() as patch:
            patch.setattr(type(scene.ledger.context.ledger), "get", counted)
            tally = scene.apply()
        assert (tally.received, tally.deposited, tally.failed, tally.set_aside, tally.left) == (
            26,
            23,
            2,
            1,
            0,
        )
        assert reads[0] == 24
        # Only those that are no plain successes are looked at by themselves.
        assert all(count == 1 for count in reads[1:])
        assert len(reads) <= 8
        assert scene.messages("dss-output") == 0
        assert scene.view(dois[3])["error"]["category"] == "CHECKSUM_MISMATCH"
        assert {scene.state(doi)[1] for doi in dois if doi not in dois[3:5]} == {"COMPLETED"}


def test_results_are_applied_one_by_one_where_a_portion_fails(
    quick: SubmitScene, monkeypatch: pytest.MonkeyPatch
) -> None:
    dois = ("10.1002/a", "10.1002/b", "10.1002/c")
    quick.take_in(*dois)
    quick.service.run()

    confirm_all = mpa.AppContext.confirm_all
    portions: list[int] = []

    def fails_for_several(app: Any, route: str, stage: str, outcomes: Any, **how: Any) -> Any:
        portions.append(len(outcomes))
        if len(outcomes) > 1:
            raise mp.LedgerError("the ledger does not answer")
        return confirm_all(app, route, stage, outcomes, **how)

    monkeypatch.setattr(mpa.AppContext, "confirm_all", fails_for_several)
    assert quick.apply().deposited == 3
    assert portions == [3, 1, 1, 1]
    assert {quick.state(doi)[1] for doi in dois} == {"COMPLETED"}


def test_two_results_of_one_doi_in_a_portion_are_applied_in_order_and_the_second_is_noted(
    quick: SubmitScene,
) -> None:
    """Two items in DSpace: the history names both, since people have to delete one."""
    quick.take_in(DOI, "10.1002/other")
    quick.service.run()
    queue = quick.model.queue(quick.urls["dss-output"])
    first = next(
        message for message in queue.messages.values() if DOI in json.dumps(message.attributes)
    )
    body = json.loads(first.body)
    handle = body["ItemHandle"]
    quick.sqs.send_message(
        QueueUrl=quick.urls["dss-output"],
        MessageBody=json.dumps({**body, "ItemHandle": f"{handle}9"}),
        MessageAttributes={
            name: {"DataType": "String", "StringValue": _text(value)}
            for name, value in first.attributes.items()
        },
    )
    assert quick.apply().received == 3
    view = quick.view(DOI)
    assert view["results"]["submit"]["handle"] == handle
    assert f"{handle}9" in json.dumps(view["history"])


def _text(value: Any) -> str:
    return str(value["StringValue"]) if isinstance(value, dict) else str(value)


@pytest.mark.parametrize("dss", [DSS, None])
def test_a_full_disk_uses_no_try_of_a_submission(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dss: Any
) -> None:
    """The record of a submission is written before the message, and before the second search."""
    with submit_scene(tmp_path, "sqlite", **({} if dss is None else {"dss": dss})) as scene:
        put = FileStore._put

        def full(store: FileStore, name: str, chunks: Any) -> None:
            if name.endswith(SUFFIX):
                raise StoreFault("the disk is full")
            put(store, name, chunks)

        if dss is None:
            scene.dspace.fail("reset", where="POST */core/items", times=1)
        with monkeypatch.context() as patch:
            patch.setattr(FileStore, "_put", full)
            scene.take_in(DOI)
            tries = scene.view(DOI)["total_attempts"]
            assert tries == (1 if dss is None else 0)
            for _ in range(24):
                scene.work("1h")
            assert scene.state(DOI)[:2] == ("submit", "WAITING")
            assert scene.view(DOI)["total_attempts"] == tries
            assert "the disk is full" in scene.view(DOI)["note"]
        for _ in range(3):
            scene.work("1h")
            if dss is not None:
                scene.service.run()
                scene.apply()
        assert scene.state(DOI)[1] == "COMPLETED"
        assert len(scene.dspace.having(DOI)) == 1
