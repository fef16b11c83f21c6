"""A scene for tests of submissions: DOIs that have metadata and PDF, a stand-in DSpace, a stand-in
submission service on a model of SQS, and one virtual clock for all of them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec

import milepost as mp
import milepost.application as mpa
from milepost_aws.aws_model import AwsModel, Faults
from milepost_deposits.controls import LedgerControls
from milepost_deposits.dspace.submission import DSpaceSubmission
from milepost_deposits.dss.results import ResultListener, ResultsTally
from milepost_deposits.dss.submission import DssSubmission
from milepost_deposits.fetch.metadata import MetadataField, to_json
from milepost_deposits.files import FileStore
from milepost_deposits.route import add_submit, deposits_route
from milepost_deposits.settings import (
    AttemptSettings,
    DepositsApp,
    DepositsSettings,
    DssSettings,
    SubmitSettings,
)
from milepost_deposits.standins.dspace import COLLECTION, PASSWORD, USER, DSpaceStandIn
from milepost_deposits.standins.dss import Behaviour, DssStandIn
from milepost_testing import VirtualClock, audit
from milepost_testing.drive import run_until_rest

ENVIRONMENT = {"DSPACE_USER": USER, "DSPACE_PASSWORD": PASSWORD}
RETENTION_S = 4 * 3600
"""How long the queues keep a message."""
DSS = DssSettings(
    queue="dss-input", results="dss-output", system="DSpace@MIT", source="wiley", answer_within="2h"
)


def pdf_of(doi: str) -> bytes:
    return b"%PDF-1.4\n" + doi.encode() * 100


class SubmitScene:
    """`scene.take_in("10.1/a")`, `scene.work()`, and then look into `scene.dspace` and
    `scene.view(doi)`."""

    def __init__(
        self,
        folder: Path,
        ledger: str,
        model: AwsModel,
        clock: VirtualClock,
        dspace: DSpaceStandIn,
        **settings: Any,
    ) -> None:
        self.clock, self.dspace, self.model = clock, dspace, model
        self.sqs = model.client("sqs")
        self.urls = {
            name: self.sqs.create_queue(
                QueueName=name, Attributes={"MessageRetentionPeriod": str(RETENTION_S)}
            )["QueueUrl"]
            for name in ("dss-input", "dss-output")
        }
        given: dict[str, Any] = {
            "content": "http://127.0.0.1:9/pdf/{doi}",
            "mailto": "library@example.org",
            "mode": "continuous",
        }
        given |= {"files": str(folder / "files"), "allow_cidrs": ("127.0.0.0/8",), "clean": "never"}
        dss = settings.pop("dss", None)
        target = {"dspace": dspace.url} if dss is None else {"dss": dss, "search": dspace.url}
        self.whole_route = settings.pop("whole_route", False)
        target |= {
            name: settings.pop(name)
            for name in ("apart", "canary", "doi_fields")
            if name in settings
        }
        given["submit"] = SubmitSettings(
            collection=settings.pop("collection", COLLECTION), **target
        )
        given["attempts"] = AttemptSettings(submit=settings.pop("attempts", 3))
        self.settings = DepositsSettings(**(given | settings))
        self.files = FileStore(self.settings.files)
        self.service = DssStandIn(
            self.sqs,
            self.urls["dss-input"],
            ("dss-output",),
            dspace,
            lambda place: Path(place).read_bytes(),
        )
        if dss is not None:
            self.service.form = dss.form
        self.controls = LedgerControls(self.settings)
        self.submission = self.new_submission()
        self.refuse: tuple[str, mp.Outcome] = "", mp.Done()
        """A stage that does not succeed, and how."""
        self.url = ledger
        self.ledger = mp.open(ledger, routes=[self.route()], clock=clock)
        self.controls.open(self.app)

    def now(self) -> float:
        return self.clock.now() / 1000

    def new_submission(self) -> DSpaceSubmission | DssSubmission:
        if self.settings.submit.dss is None:
            return DSpaceSubmission(
                self.settings,
                self.files,
                self.controls,
                environment=ENVIRONMENT,
                now=self.now,
                timeout=30,
                sleep=self.clock.advance,
            )
        return DssSubmission(
            self.settings,
            self.files,
            self.controls,
            sqs=self.sqs,
            environment=ENVIRONMENT,
            now=self.now,
        )

    def route(self, submission: DSpaceSubmission | DssSubmission | None = None) -> mp.Route:
        submission = submission or self.submission
        if self.whole_route:
            return deposits_route(self.settings, submission, self.controls)
        route = mp.Route("deposits", key="doi")
        route.stage("metadata")(self._metadata)
        route.stage("content")(self._content)
        add_submit(route, self.settings, submission, self.controls)
        return route

    def _metadata(self, item: mp.Item) -> mp.Outcome:
        if self.refuse[0] == "metadata":
            return self.refuse[1]
        fields = [
            MetadataField("dc.title", f"On {item.key}"),
            MetadataField("dc.relation.isversionof", f"http://dx.doi.org/{item.key}"),
        ]
        file = self.files.write(
            item.key, ".json", [json.dumps(to_json(fields, self.settings.metadata_form)).encode()]
        )
        return mp.Done({"file": msgspec.to_builtins(file), "title": f"On {item.key}"})

    def _content(self, item: mp.Item) -> mp.Outcome:
        if self.refuse[0] == "content":
            return self.refuse[1]
        return mp.Done(
            {"file": msgspec.to_builtins(self.files.write(item.key, ".pdf", [pdf_of(item.key)]))}
        )

    @property
    def app(self) -> DepositsApp:
        return mpa.AppContext("deposits", self.settings, self.ledger.context)

    # Steps ----------------------------------------------------------------------------------------
    def take_in(self, *dois: str) -> None:
        self.ledger.submit("deposits", *({"doi": doi} for doi in dois))
        self.work()

    def work(self, span: str = "1m") -> None:
        """Let workers and resender run for so long."""
        until = self.clock.now() + mpa.span_ms(span, "span")
        run_until_rest(self.ledger.context, self.clock, (), until)
        self.clock.advance_to(until)

    def check_deposited_once(self, dois: list[str]) -> None:
        """All are in DSpace, once, and no try was used up."""
        for doi in dois:
            assert self.state(doi)[1] == "COMPLETED", self.view(doi)
            assert self.view(doi)["total_attempts"] == 0
            [item] = self.dspace.having(doi)
            assert item.discoverable
            assert len(item.files) == 1
        context = self.ledger.context
        assert audit(context.ledger, "deposits", context.plan("deposits")) == len(dois)

    def plan(self, doi: str, *behaviours: Behaviour) -> None:
        """What the submission service does with the next messages of this DOI."""
        self.service.script[doi] = list(behaviours)

    def apply(self) -> ResultsTally:
        """Apply the results that are there."""
        return ResultListener(self.app, self.sqs, self.submission.dspace).turn()

    # What is to be seen ---------------------------------------------------------------------------
    def view(self, doi: str) -> dict[str, Any]:
        found = self.ledger.show("deposits", doi)
        assert found is not None
        return found

    def state(self, doi: str) -> tuple[str, str, int]:
        """Stage, status and counted tries."""
        view = self.view(doi)
        return view["stage"], view["status"], view["attempts"]

    def reasons(self, doi: str) -> list[str]:
        return [line["reason"] for line in self.view(doi)["history"]]

    def messages(self, queue: str = "dss-input") -> int:
        """How many messages are in a queue, hidden ones included."""
        held = self.model.queue(self.urls[queue])
        held.forget_old()
        return len(held.messages)


@contextmanager
def submit_scene(
    folder: Path, kind: str, faults: Faults | None = None, **settings: Any
) -> Iterator[SubmitScene]:
    """A scene on a ledger of this kind: "memory", "sqlite" or "aws". `faults` are those of AWS."""
    clock = VirtualClock()
    with ExitStack() as stack:
        model = AwsModel(clock=lambda: clock.now() / 1000)
        if faults is not None:
            faults.attach(model)
        endpoint = stack.enter_context(model.served())
        dspace = stack.enter_context(DSpaceStandIn(clock=lambda: clock.now() / 1000, index_lag=20))
        url = {
            "memory": "memory:",
            "sqlite": f"sqlite:///{folder}/ledger.db",
            "aws": f"dynamodb://eu-central-1/t{secrets.token_hex(4)}?endpoint={endpoint}",
        }[kind]
        scene = SubmitScene(folder, url, model, clock, dspace, **settings)
        stack.callback(lambda: scene.ledger.close())
        stack.callback(lambda: scene.submission.dspace.close())
        yield scene


def second_worker(
    scene: SubmitScene, hours: int = 6, prepare: Callable[[Any], None] = lambda submission: None
) -> None:
    """Another process works for some hours; the leases of the first one run out."""
    controls = LedgerControls(scene.settings)
    first, scene.controls = scene.controls, controls
    submission = scene.new_submission()
    scene.controls = first
    prepare(submission)
    with mp.open(scene.url, routes=[scene.route(submission)], clock=scene.clock) as ledger:
        controls.open(mpa.AppContext("deposits", scene.settings, ledger.context))
        for _ in range(hours):
            until = scene.clock.now() + 3_600_000
            run_until_rest(ledger.context, scene.clock, (), until)
            scene.clock.advance_to(until)
    submission.dspace.close()
