"""Errors of SQS, S3 and folders that people put right in the configuration: no try is counted,
however long they last; what is wrong and what to do is said; afterwards each DOI is deposited
once."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import (
    ClientError,
    EndpointConnectionError,
    NoCredentialsError,
    ReadTimeoutError,
)
from tests.deposits.conftest import MakeScene
from tests.deposits.submit_scene import DSS, ENVIRONMENT, SubmitScene, submit_scene

import milepost as mp
from milepost_aws.aws_model import AwsModel, Faults
from milepost_aws.ledger.requests import client
from milepost_aws.s3 import S3Blobs
from milepost_deposits.application import partners_check, store_check
from milepost_deposits.commands import round_lines
from milepost_deposits.controls import CURES, PAUSED_BY, operators_fault, partner_waits
from milepost_deposits.dspace.login import LONGEST_S, probe_login
from milepost_deposits.files import FileStore, StoreFault
from milepost_deposits.rounds import run_round
from milepost_deposits.standins.sources import CrossrefStandIn, PublisherStandIn

DOIS = [f"10.1002/fault.{number}" for number in range(8)]
ANN = {"by": "ann", "reason": "the policy is right now"}
MANY = 5_000


def refusal(
    code: str, status: int = 403, message: str = "a fault, put in by a test"
) -> ClientError:
    return ClientError(
        {
            "Error": {"Code": code, "Message": message},
            "ResponseMetadata": {"HTTPStatusCode": status},
        },
        "SendMessage",
    )


# The table ----------------------------------------------------------------------------------------


def test_the_codes_of_the_ledger_on_aws_are_in_the_table() -> None:
    assert CURES.keys() >= client._DENIED | client._BAD_CREDENTIALS
    assert client.TEMPORARY.isdisjoint(code for code in CURES if isinstance(code, str))


def test_an_error_that_people_put_right_says_what_to_do() -> None:
    said = operators_fault(
        refusal("SignatureDoesNotMatch", message="it does not match\nx-amz-security-token: secret")
    )
    assert said is not None
    assert said.endswith(
        "it does not match; put valid AWS credentials into the environment of every process of Milepost"
    )
    assert "secret" not in said
    assert "policy" in str(operators_fault(refusal("AccessDenied")))
    assert "milepost.toml" in str(
        operators_fault(refusal("AWS.SimpleQueueService.NonExistentQueue", 400))
    )
    assert "credentials" in str(operators_fault(NoCredentialsError()))
    wrapped = OSError("the blob 'x' in the bucket b cannot be read")
    wrapped.__cause__ = refusal("NoSuchBucket", 404)
    assert "NoSuchBucket" in str(operators_fault(wrapped))
    assert "right to read" in str(
        operators_fault(PermissionError(errno.EACCES, "Permission denied"))
    )


@pytest.mark.parametrize(
    "error",
    [
        refusal("RequestThrottled", 400),
        refusal("InternalError", 500),
        EndpointConnectionError(endpoint_url="https://sqs"),
        ReadTimeoutError(endpoint_url="https://sqs"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        OSError(errno.EIO, "Input/output error"),
        ValueError("a defect"),
    ],
)
def test_any_other_error_is_none_of_them(error: Exception) -> None:
    assert operators_fault(error) is None


# The queue of the submission service --------------------------------------------------------------


@pytest.fixture
def faults() -> Faults:
    return Faults()


def remove_queue(scene: SubmitScene, faults: Faults) -> None:
    scene.sqs.delete_queue(QueueUrl=scene.urls["dss-input"])


def deny(operation: str) -> Callable[[SubmitScene, Faults], None]:
    def plan(scene: SubmitScene, faults: Faults) -> None:
        faults.clear()
        faults.plan(operation, "denied", times=MANY)

    return plan


def mend(scene: SubmitScene, faults: Faults) -> None:
    faults.clear()
    scene.sqs.create_queue(QueueName="dss-input", Attributes={"MessageRetentionPeriod": "14400"})


BREAKS = {
    "missing": remove_queue,
    "no-url": deny("GetQueueUrl"),
    "no-attributes": deny("GetQueueAttributes"),
    "no-send": deny("SendMessage"),
}


CASES = [
    *(("sqlite", wrong) for wrong in BREAKS),
    pytest.param("aws", "missing", marks=pytest.mark.slow),
]
"""The other faults would be those of the ledger's queues too."""


@pytest.mark.parametrize(("kind", "wrong"), CASES)
def test_a_queue_that_refuses_milepost_for_a_week_uses_no_try(
    tmp_path: Path, faults: Faults, kind: str, wrong: str
) -> None:
    with submit_scene(tmp_path, kind, faults, dss=DSS) as scene:
        BREAKS[wrong](scene, faults)
        scene.take_in(*DOIS)
        [pause] = scene.app.pauses("deposits")
        assert (pause.scope, pause.by) == ("deposits/submit", PAUSED_BY)
        assert pause.until is not None, "it ends by itself"
        assert pause.reason.startswith("the queue dss-input cannot be used: ")
        assert ("milepost.toml" if wrong == "missing" else "policy") in pause.reason
        for _ in range(7 * 4):
            scene.work("6h")
        assert {scene.state(doi)[::2] for doi in DOIS} == {("submit", 0)}
        assert {scene.view(doi)["total_attempts"] for doi in DOIS} == {0}
        mend(scene, faults)
        for _ in range(14):
            scene.work("30m")
            scene.service.run()
            scene.apply()
        scene.work()  # on AWS: reads the stream to its end
        scene.check_deposited_once(DOIS)
        assert scene.app.pauses("deposits") == []


def test_the_pause_for_a_queue_stops_all_dois_and_a_probe_of_the_login_does_not_end_it(
    tmp_path: Path, faults: Faults
) -> None:
    with submit_scene(tmp_path, "memory", faults, dss=DSS) as scene:
        deny("SendMessage")(scene, faults)
        scene.take_in(*DOIS)
        asked = len(faults.fired)
        assert asked < len(DOIS), "those that were under way"
        scene.work("10m")
        assert len(faults.fired) == asked
        [before] = scene.app.pauses("deposits")
        assert not probe_login(scene.app, ENVIRONMENT)
        assert scene.app.pauses("deposits") == [before]
        scene.clock.advance(LONGEST_S)
        assert not probe_login(scene.app, ENVIRONMENT)


def test_a_person_who_has_put_it_right_ends_the_wait(tmp_path: Path, faults: Faults) -> None:
    with submit_scene(tmp_path, "memory", faults, dss=DSS) as scene:
        deny("SendMessage")(scene, faults)
        scene.take_in(DOIS[0])
        scene.take_in(*DOIS[1:])
        mend(scene, faults)
        assert scene.ledger.resume("deposits", "submit", **ANN)
        scene.work("1m")
        assert scene.messages() == len(DOIS) - 1, (
            "the one that was refused follows when its wait is over"
        )
        scene.work("15m")
        assert scene.messages() == len(DOIS)


def test_a_search_after_a_silence_counts_no_try_where_the_queue_refuses(
    tmp_path: Path, faults: Faults
) -> None:
    """`verify` asks for the queue's retention."""
    with submit_scene(tmp_path, "sqlite", faults, dss=DSS) as scene:
        scene.plan(DOIS[0], "silent")
        scene.take_in(DOIS[0])
        scene.service.run()
        scene.work("2h")
        vars(scene.submission).pop("_retention_s")  # as in a process that was started since
        deny("GetQueueAttributes")(scene, faults)
        scene.work("2h")
        tries = scene.view(DOIS[0])["total_attempts"]
        assert tries == 1, "no answer came"
        for _ in range(12):
            scene.work("6h")
        assert scene.view(DOIS[0])["total_attempts"] == tries
        mend(scene, faults)
        for _ in range(8):
            scene.work("6h")
            scene.service.run()
            scene.apply()
        assert scene.state(DOIS[0])[1] == "COMPLETED"
        assert len(scene.dspace.having(DOIS[0])) == 1


def test_a_round_and_doctor_name_the_queue_and_what_to_do(tmp_path: Path, faults: Faults) -> None:
    (tmp_path / "inbox").mkdir()
    with submit_scene(
        tmp_path, "sqlite", faults, dss=DSS, mode="rounds", inbox=str(tmp_path / "inbox")
    ) as scene:
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS))
        for _ in range(7):
            deny("SendMessage")(scene, faults)
            report = run_round(scene.app, lambda: scene.work("1m"), scene.clock.advance)
            assert report.needs_people
            [wait] = report.waits
            assert wait.needs_people
            assert wait.text.startswith("The queue dss-input cannot be used: ")
            assert wait.text in list(round_lines(scene.app, report))
            [finding] = partners_check(scene.app)
            assert (finding.level, finding.what) == ("bad", wait.text)
            assert "milepost resume deposits submit" in finding.next
            scene.clock.advance(86_400)
        mend(scene, faults)
        report = run_round(scene.app, lambda: scene.work("1m"), scene.clock.advance)
        assert (report.needs_people, partner_waits(scene.app), scene.messages()) == (
            False,
            [],
            len(DOIS),
        )


def test_a_queue_that_does_not_answer_is_a_failed_try(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outage ends by itself; it is no fault of the configuration."""
    with submit_scene(tmp_path, "memory", dss=DSS) as scene:

        def down(**_: Any) -> None:
            raise EndpointConnectionError(endpoint_url="https://sqs")

        monkeypatch.setattr(scene.sqs, "get_queue_url", down)
        scene.take_in(DOIS[0])
        assert scene.state(DOIS[0]) == ("submit", "RETRY_SCHEDULED", 1)
        assert scene.view(DOIS[0])["error"]["category"] == "DSS_QUEUE"
        assert scene.app.pauses("deposits") == []


# The file store -----------------------------------------------------------------------------------


@pytest.fixture
def bucket(faults: Faults) -> S3Blobs:
    """A bucket of a model whose calls can be refused."""
    model = AwsModel()
    faults.attach(model)
    s3 = model.client("s3")
    s3.create_bucket(
        Bucket="store", CreateBucketConfiguration={"LocationConstraint": "eu-central-1"}
    )
    return S3Blobs("store", "wiley", s3)


def in_bucket(files: FileStore, bucket: S3Blobs) -> FileStore:
    """The store, with its files in the bucket."""
    files._place, files._blobs = "s3://store/wiley", bucket
    return files


def test_a_bucket_that_refuses_milepost_is_a_fault_of_the_store(
    bucket: S3Blobs, faults: Faults
) -> None:
    store = in_bucket(FileStore("s3://store/wiley"), bucket)
    stored = store.write("10.1/x", ".json", [b"{}"])
    faults.clear()
    for operation in ("GetObject", "DeleteObject", "PutObject"):
        faults.plan(operation, "denied", times=MANY)
    with pytest.raises(
        StoreFault,
        match=r"^s3://store/wiley gives no file: .*AccessDenied.*; allow it in the policy",
    ):
        store.read_json(stored)
    with pytest.raises(StoreFault, match="gives no file"):
        store.find("10.1/x", ".json")
    with pytest.raises(StoreFault, match="removes no file"):
        store.remove_of("10.1/x", ".json")
    with pytest.raises(StoreFault, match=r"takes no file: .*AccessDenied"):
        store.write("10.1/x", ".json", [b"{}"])
    faults.clear()
    store.remove(stored.name)
    assert store.find("10.1/x", ".json") is None
    lost = in_bucket(FileStore(""), S3Blobs("no-such-bucket", client=bucket._client))
    with pytest.raises(StoreFault, match=r"NoSuchBucket.*; correct its name"):
        lost.read_json(stored)


def test_a_folder_that_is_not_there_or_forbidden_is_a_fault_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = FileStore(str(tmp_path / "files"))
    stored = store.write("10.1/x", ".json", [b"{}"])
    (tmp_path / "files").rename(tmp_path / "elsewhere")
    with pytest.raises(StoreFault, match="this folder is not there"):
        store.read_json(stored)
    (tmp_path / "elsewhere").rename(tmp_path / "files")
    assert store.read_json(stored) == {}

    def forbidden(_: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(store._blobs, "read", forbidden)
        with pytest.raises(
            StoreFault, match="Permission denied; give the user of Milepost's processes the right"
        ):
            store.read_json(stored)
    store.remove(stored.name)
    with pytest.raises(FileNotFoundError) as caught:
        store.read_json(stored)
    assert not isinstance(caught.value, StoreFault), (
        "a file that was removed is the fault of this DOI alone"
    )


@pytest.mark.parametrize("mode", ["continuous", "rounds"])
def test_a_store_that_gives_no_file_uses_no_try_and_makes_no_item(
    tmp_path: Path, bucket: S3Blobs, faults: Faults, mode: str
) -> None:
    (tmp_path / "inbox").mkdir()
    with submit_scene(tmp_path, "sqlite", mode=mode, inbox=str(tmp_path / "inbox")) as scene:
        in_bucket(scene.files, bucket)
        faults.plan("GetObject", "denied", times=MANY)
        scene.ledger.submit("deposits", *({"doi": doi} for doi in DOIS[:3]))
        for _ in range(4):
            report = run_round(scene.app, lambda: scene.work("1m"), scene.clock.advance)
            assert report.needs_people
            assert report.store_fault.startswith("s3://store/wiley gives no file: ")
            assert any(
                line.startswith(report.store_fault) for line in round_lines(scene.app, report)
            )
            assert [(one.level, one.what) for one in store_check(scene.app)] == [
                ("bad", f"{report.store_fault}; its DOIs wait")
            ]
            scene.work("4h")
        assert {(scene.state(doi)[:2], scene.view(doi)["total_attempts"]) for doi in DOIS[:3]} == {
            (("submit", "WAITING"), 0)
        }
        assert scene.dspace.count("POST */core/items") == 0
        faults.clear()
        scene.work("10m")
        report = run_round(scene.app, lambda: scene.work("1m"), scene.clock.advance)
        assert (report.needs_people, report.store_fault) == (False, "")
        scene.check_deposited_once(DOIS[:3])


def test_a_pdf_that_cannot_be_read_makes_no_item(tmp_path: Path) -> None:
    """The fault of one DOI alone: a counted try, and nothing to delete in DSpace."""
    with submit_scene(tmp_path, "memory") as scene:
        scene.dspace.fail("status", 503, where="GET */discover/*", times=1)
        scene.take_in(DOIS[0])
        scene.files.remove_of(DOIS[0], ".pdf")
        scene.work("1h")
        assert scene.state(DOIS[0])[1] in ("RETRY_SCHEDULED", "MAX_RETRIES_EXCEEDED")
        assert scene.view(DOIS[0])["error"]["category"] == "FILE_UNREADABLE"
        assert scene.dspace.count("POST */core/items") == 0


def test_files_that_cannot_be_removed_wait_and_the_round_says_so(
    make_scene: MakeScene,
    crossref: CrossrefStandIn,
    publisher: PublisherStandIn,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    crossref.everything = publisher.everything = True
    scene = make_scene(clean="all")

    def forbidden(store: FileStore, name: str) -> None:
        raise StoreFault(f"{store._place} removes no file: Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(FileStore, "remove", forbidden)
        scene.deliver("list.csv", "".join(f"{doi}\n" for doi in DOIS))
        report = scene.round()
        assert report.counts["Success"] == len(DOIS)
        assert (report.needs_people, report.store_fault) == (
            True,
            f"{scene.files} removes no file: Permission denied",
        )
        rows = scene.ledger.items("deposits-clean", limit=100)
        assert {(row["status"], row["attempts"]) for row in rows} == {("WAITING", 0)}
    scene.ledger.act(
        "resend",
        "deposits-clean",
        statuses=[mp.Status.WAITING],
        by="ann",
        reason="the rights are right now",
    )
    assert not scene.round().store_fault
    assert list(scene.files.iterdir()) == []
