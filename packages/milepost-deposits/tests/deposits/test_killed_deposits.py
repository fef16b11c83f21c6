"""Deposits by processes that are killed (SIGKILL) at every request that changes something in
DSpace: no DOI gets a second item."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from tests.deposits.submit_scene import ENVIRONMENT, pdf_of
from tests.project import TEST_PATH

from milepost_deposits.standins.dspace import DSpaceStandIn
from milepost_testing.http_standin import HttpFault, StandInAnswer, StandInRequest

WRITES = ("POST */core/items", "POST */bundles", "POST */bitstreams", "PATCH *")
POINTS = [(where, acted) for where in WRITES for acted in (False, True)]
DOIS = [f"10.1002/a{number}" for number in range(len(POINTS))]
AHEAD_S = 40.0
"""Between two processes: leases have run out, but the index does not know the last item yet."""


class KillingDSpace(DSpaceStandIn):
    """A stand-in that kills its client at a request, before or after it has carried it out."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.client: subprocess.Popen[str] | None = None
        self.point: tuple[str, bool] | None = None
        super().__init__(clock=lambda: time.time() + self.ahead, index_lag=60)

    def handle(self, request: StandInRequest) -> tuple[HttpFault | None, StandInAnswer]:
        with self.lock:
            if self.point is None or not fnmatchcase(request.line, self.point[0]):
                return super().handle(request)
            acted, self.point = self.point[1], None
            if acted:
                super().handle(request)
            assert self.client is not None
            os.kill(self.client.pid, signal.SIGKILL)
            return HttpFault("reset"), StandInAnswer(500)


@pytest.mark.slow
def test_processes_that_are_killed_at_every_write_make_one_item_of_each_doi(tmp_path: Path) -> None:
    worker = Path(__file__).with_name("killed_worker.py")
    with KillingDSpace() as dspace:

        def run(point: tuple[str, bool] | None, known: int) -> tuple[int, str]:
            dspace.ahead += AHEAD_S
            arguments = [
                sys.executable,
                str(worker),
                str(tmp_path),
                dspace.url,
                str(dspace.ahead),
                *DOIS[:known],
            ]
            with dspace.lock:
                dspace.point = point
                dspace.client = subprocess.Popen(
                    arguments,
                    stdout=subprocess.PIPE,
                    text=True,
                    cwd=tmp_path,
                    env={**os.environ, **ENVIRONMENT, "PYTHONPATH": TEST_PATH},
                )
            said, _ = dspace.client.communicate(timeout=120)
            return dspace.client.returncode, said.strip()

        for known, point in enumerate(POINTS, 1):
            assert run(point, known)[0] == -signal.SIGKILL
            assert run(None, known)[0] == 0
        said = ""
        for _ in range(20):
            code, said = run(None, len(DOIS))
            assert code == 0
            if said == "COMPLETED":
                break
        assert said == "COMPLETED"
        made = Counter(doi for doi in DOIS for _ in dspace.having(doi))
        assert made == Counter(DOIS)
        assert len(dspace.items) == len(DOIS)
        for doi in DOIS:
            [item] = dspace.having(doi)
            assert item.discoverable
            assert [file.content for file in item.files] == [pdf_of(doi)]
