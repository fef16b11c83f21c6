"""Extensions: what installed packages add to Milepost, as entry points in one group for each kind.

A package's metadata is read only for a name that Milepost does not have itself: reading it costs
about 16 ms of CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from milepost.core.errors import ConfigMistake

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

    from milepost.ports.blobs import Blobs
    from milepost.ports.ledger import Ledger

LEDGERS = "milepost.ledgers"
"""Group of ledgers by the scheme of their URL; each is a `LedgerScheme`."""
BLOBS = "milepost.blobs"
"""Group of blob stores and inboxes by the scheme of their address; each is a module or an object
with `open_blobs` and `open_inbox`."""
SUBSCRIBERS = "milepost.subscribers"
"""Group of subscribers by the scheme of their address; each is a function of the address and
`offers`."""
MAIL = "milepost.mail"
"""Group of mail transports by the scheme of their URL; each is a function of the host, the URL's
options and `timeout`."""
APPLICATIONS = "milepost.applications"
"""Group of applications by name."""
COMMANDS = "milepost.commands"
"""Group of further commands of the command line by name; each is a click.Command."""

PACKAGE_OF = {
    (LEDGERS, "dynamodb"): "milepost-aws",
    (BLOBS, "s3"): "milepost-aws",
    (SUBSCRIBERS, "sns"): "milepost-aws",
    (MAIL, "ses"): "milepost-aws",
    (COMMANDS, "cost"): "milepost-aws",
    (APPLICATIONS, "deposits"): "milepost-deposits",
    (APPLICATIONS, "notifications"): "milepost-notifications",
    (APPLICATIONS, "postingest"): "milepost-postingest",
}
"""The project's own packages and what they add, so that an error can name the one that is
missing."""


class OpenLedger(Protocol):
    """Opens the ledger of a URL and its blob store."""

    def __call__(self, url: str, *, make: bool = True) -> tuple[Ledger, Blobs]:
        """Open them. Without `make`, a missing ledger raises LedgerMissing."""
        ...


class LedgerScheme(NamedTuple):
    """A kind of ledger, as a package adds it for one scheme of URLs."""

    open: OpenLedger
    form: str
    """How its URLs are written, for messages."""
    stage_queues: bool = False
    """Each external stage has a queue of its own, so offers need not go to subscribers too."""


NEEDED_BY = {"milepost-notifications": ("milepost-client",)}
"""Packages of this project that a package needs beside milepost."""


def extension(group: str, name: str) -> Any:
    """What an installed package adds under this name; None if none does."""
    point = next((point for point in extension_points(group) if point.name == name), None)
    return None if point is None else loaded(point)


def extension_points(group: str) -> list[EntryPoint]:
    """All extensions of a group by name; none is loaded."""
    return sorted(_select()(group=group), key=lambda point: point.name)


@cache
def _select() -> Callable[..., EntryPoints]:
    """Chooses among the entry points of all installed packages, which are read once in a
    process."""
    from importlib.metadata import entry_points

    return entry_points().select


def loaded(point: EntryPoint) -> Any:
    """Load an extension; what its module lacks is named with the package that has it."""
    try:
        return point.load()
    except ModuleNotFoundError as error:
        package = "the package" if point.dist is None else point.dist.name
        raise ConfigMistake(
            f"{package} adds {point.name!r}, but cannot be imported: {error}; install the package again"
        ) from error


def missing_package(group: str, name: str) -> str | None:
    """How to get the package of this project that adds this name; None if no package of it does."""
    package = PACKAGE_OF.get((group, name))
    return None if package is None else how_to_install(package)


def how_to_install(package: str) -> str:
    """The command that installs a package of this project with those of the project that it needs.
    It names folders, because nothing is on an index, where the names may belong to somebody
    else."""
    folders = " ".join(
        f"/path/to/milepost/packages/{name}" for name in (*NEEDED_BY.get(package, ()), package)
    )
    return f"pip install {folders}"


def names_of(group: str, built_in: Iterable[str] = ()) -> list[str]:
    """The names that can be used: the built-in ones, then those of installed packages."""
    own = list(built_in)
    return own + [point.name for point in extension_points(group) if point.name not in own]
