"""DOIs with characters that mean something in URLs: each is found again in DSpace, so that none
gets a second item."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from urllib.parse import quote

import pytest
from tests.deposits.conftest import MakeScene
from tests.deposits.deposits_scene import item_of
from tests.deposits.submit_scene import SubmitScene, submit_scene

import milepost as mp
from milepost_deposits.digest.mail import Digest, DigestEntry, html_of
from milepost_deposits.doi import doi_or_none
from milepost_deposits.fetch.metadata import MetadataStage
from milepost_deposits.files import FileStore
from milepost_deposits.settings import DssSettings, SubmitSettings
from milepost_deposits.standins.sources import CrossrefStandIn

ODD = [
    "10.1000/456#789",
    "10.1000/a%2fb",
    "10.1000/a?b=c",
    "10.1002/(sici)1096(199605)100:1<19::aid-ajpa3>3.0.co;2-0",
    "10.1000/é/../ü",
]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[SubmitScene]:
    with submit_scene(tmp_path, "memory") as made:
        yield made


@pytest.mark.parametrize("doi", ODD)
def test_an_item_of_an_odd_doi_whose_answer_was_lost_is_found(scene: SubmitScene, doi: str) -> None:
    scene.dspace.fail("reset", where="POST */core/items", times=1, acted=True)
    scene.take_in(doi)
    scene.work("2d")
    assert len(scene.dspace.items) == 1
    assert scene.state(doi)[1] == "COMPLETED"


@pytest.mark.parametrize("doi", ODD)
def test_an_item_that_names_its_doi_by_an_encoded_url_is_found(
    scene: SubmitScene, doi: str
) -> None:
    value = f"https://doi.org/{quote(doi, safe='/')}"
    item = scene.dspace.put({"dc.relation.isversionof": [{"value": value}]})
    item.add_file("other.pdf", b"%PDF-")
    scene.take_in(doi)
    assert len(scene.dspace.items) == 1
    assert scene.view(doi)["results"]["submit"]["handle"] == item.handle


@pytest.mark.parametrize("form", ["old", "dspace8"])
@pytest.mark.parametrize("doi", ["10.1000/plain", *ODD])
def test_the_metadata_file_names_the_doi_whatever_the_mapping_leaves_out(
    make_scene: MakeScene,
    crossref: CrossrefStandIn,
    tmp_path: Path,
    doi: str,
    form: Literal["old", "dspace8"],
) -> None:
    """The submission service makes an item of this file alone; a search must be able to find it."""
    crossref.put(doi, title=["T"], URL=f"http://dx.doi.org/{doi}", DOI=doi)
    dss = SubmitSettings(
        dss=DssSettings("q", "r", "DSpace@MIT", "wiley", form),
        search="http://127.0.0.1:9",
        collection="1/2",
    )
    stage = MetadataStage(
        make_scene(submit=dss, mapping={"URL": ""}).settings, FileStore(str(tmp_path / "own"))
    )
    done = stage(item_of(doi))
    assert isinstance(done, mp.Done)
    content = json.loads(Path(done.output["file"]["place"]).read_bytes())
    if form == "old":
        values = [
            entry["value"]
            for entry in content["metadata"]
            if entry["key"] == "dc.relation.isversionof"
        ]
    else:
        values = [entry["value"] for entry in content["dc.relation.isversionof"]]
    assert [doi_or_none(value) for value in values] == [doi]


@pytest.mark.parametrize("doi", ODD)
def test_links_in_mails_lead_to_the_doi(doi: str) -> None:
    entry = DigestEntry(doi, "Success", handle="1/2")
    page = html_of(
        Digest(id="d", to=(), owner="", deposited=(entry,), retries=(), manual=(), counts={})
    )
    link = page.partition('href="https://doi.org/')[2].partition('"')[0]
    assert doi_or_none(f"https://doi.org/{link}") == doi
