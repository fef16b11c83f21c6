"""Old import paths lead to the packages that hold the modules now, with a warning."""

from __future__ import annotations

import subprocess
import sys
import warnings
from importlib import import_module

import pytest

from milepost.moved_modules import NEW_NAMES, new_name


@pytest.mark.parametrize("old", NEW_NAMES)
def test_an_old_import_path_leads_to_the_same_module(
    old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name == old or name.startswith(f"{old}.")]:
        monkeypatch.delitem(sys.modules, name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = import_module(old)
    assert f"{old} is {NEW_NAMES[old]} now; the old name goes with the next version" in [
        str(warning.message) for warning in caught
    ]
    assert module is import_module(NEW_NAMES[old])
    assert module.__spec__ is not None
    assert module.__spec__.name == NEW_NAMES[old]


def test_a_module_below_an_old_path_is_the_same_module() -> None:
    assert new_name("milepost.net.guard") == "milepost_net.guard"
    program = (
        "import warnings; warnings.simplefilter('ignore'); import milepost;"
        "from milepost.net.guard import AddressGuard as old; from milepost_net.guard import AddressGuard as new; assert old is new"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_warning_names_the_line_that_imports() -> None:
    program = "import milepost\nfrom milepost.testing import drain\n"
    answer = subprocess.run(
        [sys.executable, "-W", "always", "-c", program], check=True, capture_output=True, text=True
    )
    assert answer.stderr.startswith(
        "<string>:2: DeprecationWarning: milepost.testing is milepost_testing now"
    )


def test_a_module_that_never_was_is_not_found() -> None:
    assert new_name("milepost.network") is None
    with pytest.raises(ModuleNotFoundError, match=r"No module named 'milepost\.network'"):
        import_module("milepost.network")
