"""A worker is stopped for hours at some step of a deposit, another one does the whole job
meanwhile, and then the first one wakes up: one item remains in DSpace."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from tests.deposits.submit_scene import DSS, SubmitScene, second_worker, submit_scene

from milepost_deposits.dspace.record import SubmissionRecord
from milepost_testing import audit

DOI = "10.1002/frozen"
LEDGERS = ["sqlite", pytest.param("aws", marks=pytest.mark.slow)]
STEPS = [
    "GET */discover/*",
    "POST */core/items[?]*",
    "POST */bundles",
    "POST */bitstreams",
    "PATCH */core/items/*",
]
MOMENTS = ["before the check", "after the check", "after the answer"]


class FrozenWorker:
    """Stops the scene's own worker once, at a request; `meanwhile` happens then."""

    def __init__(
        self,
        scene: SubmitScene,
        step: str,
        moment: str,
        meanwhile: Callable[[], None],
        patch: pytest.MonkeyPatch,
    ) -> None:
        self.step, self.meanwhile, self.frozen = step, meanwhile, False
        session: Any = scene.submission.dspace.session
        send, request = session._send, session._client.request

        def frozen_send(method: str, path: str, *args: Any) -> Any:
            if moment == "before the check":
                self.freeze(f"{method} /server/api{path}")
            answer = send(method, path, *args)
            if moment == "after the answer":
                self.freeze(f"{method} /server/api{path}")
            return answer

        def frozen_request(method: str, url: str, **more: Any) -> Any:
            if moment == "after the check":
                self.freeze(f"{method} {url}")
            return request(method, url, **more)

        patch.setattr(session, "_send", frozen_send)
        patch.setattr(session._client, "request", frozen_request)

    def freeze(self, line: str) -> None:
        if not self.frozen and fnmatchcase(line, self.step):
            self.frozen = True
            self.meanwhile()


def check_one_item(scene: SubmitScene) -> None:
    scene.work("2d")
    assert scene.state(DOI)[1] == "COMPLETED", scene.view(DOI)
    [item] = scene.dspace.having(DOI)
    assert item.discoverable
    assert item.files
    assert scene.view(DOI)["results"]["submit"]["uuid"] == item.uuid
    context = scene.ledger.context
    assert audit(context.ledger, "deposits", context.plan("deposits")) == 1


@pytest.mark.parametrize("kind", LEDGERS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", STEPS)
def test_the_second_worker_has_done_the_whole_job(
    tmp_path: Path, kind: str, step: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with submit_scene(tmp_path, kind) as scene:
        seen: list[str] = []

        def meanwhile() -> None:
            second_worker(scene)
            seen.append(scene.state(DOI)[1])

        worker = FrozenWorker(scene, step, moment, meanwhile, monkeypatch)
        scene.take_in(DOI)
        assert worker.frozen
        assert seen == ["COMPLETED"]
        check_one_item(scene)


@pytest.mark.parametrize("kind", LEDGERS)
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("step", STEPS[1:])
def test_the_second_worker_is_in_the_middle_of_it(
    tmp_path: Path, kind: str, step: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its item is not public yet, and its result not in the ledger, when the first one wakes up."""
    with submit_scene(tmp_path, kind, attempts=20) as scene:

        def meanwhile() -> None:
            fault = scene.dspace.fail("status", 500, where="PATCH *")
            second_worker(scene, hours=1)
            fault.times = 0
            assert scene.state(DOI)[1] != "COMPLETED"

        worker = FrozenWorker(scene, step, moment, meanwhile, monkeypatch)
        scene.take_in(DOI)
        assert worker.frozen
        check_one_item(scene)


@pytest.mark.parametrize("kind", LEDGERS)
def test_the_clean_up_of_a_worker_that_was_stopped_deletes_nothing_of_the_other(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker is about to delete its half-made item; the second one has completed and
    published it."""
    with submit_scene(tmp_path, kind) as scene:
        scene.dspace.fail("status", 500, where="POST */bitstreams", times=1)
        worker = FrozenWorker(
            scene, "DELETE *", "before the check", lambda: second_worker(scene), monkeypatch
        )
        scene.take_in(DOI)
        assert worker.frozen
        assert scene.dspace.count("DELETE *") == 0
        check_one_item(scene)


def test_a_twin_of_a_lost_worker_is_removed_by_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker's request arrives while the second one uploads the file, and the first one
    never wakes up."""
    with submit_scene(tmp_path, "sqlite") as scene:
        twins: list[str] = []

        def with_twin(submission: Any) -> None:
            upload = submission.dspace.upload

            def slow_upload(*args: Any) -> Any:
                [made] = scene.dspace.having(DOI)
                metadata = {
                    field: values
                    for field, values in made.metadata.items()
                    if field in ("dc.title", "dc.relation.isversionof")
                }
                twins.append(scene.dspace.put(metadata, discoverable=False).uuid)
                return upload(*args)

            monkeypatch.setattr(submission.dspace, "upload", slow_upload)

        def meanwhile() -> None:
            second_worker(scene, prepare=with_twin)
            [item] = scene.dspace.having(DOI)
            assert item.uuid not in twins

        worker = FrozenWorker(scene, STEPS[1], "before the check", meanwhile, monkeypatch)
        scene.take_in(DOI)
        assert worker.frozen
        assert len(twins) == 1
        check_one_item(scene)


def test_a_message_is_not_sent_after_the_claim_was_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with submit_scene(tmp_path, "sqlite", dss=DSS) as scene:
        worker = FrozenWorker(
            scene, STEPS[0], "after the answer", lambda: second_worker(scene, hours=8), monkeypatch
        )
        scene.take_in(DOI)
        assert worker.frozen
        # The second worker has searched for as long as a message could have been read, and has then
        # sent one.
        assert scene.messages() == 1
        assert scene.state(DOI)[1] == "WAITING"
        assert "late" in scene.reasons(DOI)


def freeze_with_record(
    scene: SubmitScene, meanwhile: Callable[[], None], patch: pytest.MonkeyPatch
) -> list[SubmissionRecord]:
    """Stop the scene's own worker once, when `verify` has read the record of the submission. The
    answer gets that record."""
    records: Any = scene.submission._records
    get, read = records.get, []

    def frozen_get(doi: str) -> SubmissionRecord:
        record: SubmissionRecord = get(doi)
        if not read:
            read.append(record)
            meanwhile()
        return record

    patch.setattr(records, "get", frozen_get)
    return read


@pytest.mark.parametrize("kind", LEDGERS)
def test_a_record_of_a_later_message_is_not_replaced_after_the_claim_was_lost(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the old record the next message would be sent while the service can still read the last
    one."""
    with submit_scene(tmp_path, kind, dss=DSS) as scene:
        scene.take_in(DOI)
        first = scene.submission._records.get(DOI)
        read = freeze_with_record(scene, lambda: second_worker(scene, hours=4), monkeypatch)
        scene.work("3h")
        assert read == [first]
        assert scene.messages() == 1, (
            "the queue has dropped the first message; the second worker has sent another"
        )
        last = scene.submission._records.get(DOI)
        assert first.sent_at is not None
        assert last.sent_at is not None
        assert last.sent_at > first.sent_at
        scene.work("2h")
        assert scene.messages() == 1
        assert scene.submission._records.get(DOI).sent_at == last.sent_at


@pytest.mark.parametrize("kind", LEDGERS)
def test_no_record_is_left_after_the_claim_was_lost(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with submit_scene(tmp_path, kind) as scene:
        scene.dspace.fail("reset", where="POST */core/items", times=1)
        monkeypatch.setattr(scene.submission, "_first_search", lambda deposit, item: None)
        scene.take_in(DOI)
        read = freeze_with_record(scene, lambda: second_worker(scene), monkeypatch)
        scene.work("1h")
        assert read == [SubmissionRecord()]
        assert scene.submission._records.get(DOI) == SubmissionRecord()
        check_one_item(scene)
