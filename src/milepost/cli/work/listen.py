"""Where `milepost up` listens, and the door that it opens there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from milepost.cli.work.announce import say
from milepost.core.errors import ConfigMistake

if TYPE_CHECKING:
    from milepost.application.declaration import ConfiguredApplication
    from milepost.engine.context import Context
    from milepost.http.server.assembly import Door

F = TypeVar("F", bound=Callable[..., Any])

HOST, PORT, TRIES = "127.0.0.1", 8321, 20
INSTALL = "pip install 'milepost[http]'"


class Where(NamedTuple):
    """An address; `asked` if somebody named it, so that no other will do."""

    host: str
    port: int
    asked: bool


def listen_options(command: F) -> F:
    """Give a command --listen, --base-path and --no-listen."""
    command = click.option("--no-listen", is_flag=True, help="Do not open the API.")(command)
    command = click.option("--base-path", metavar="/PATH", help="What every address begins with, behind a proxy [nothing].")(command)
    return click.option("--listen", metavar="HOST:PORT", help=f"Open the API there [{HOST}:{PORT}, or the next port that is free].")(
        command
    )


def wanted(option: str | None, configured: str | None, *, no_listen: bool) -> Where | None:
    """Where to listen: as the command says, then as milepost.toml says, then at the usual place; None: nowhere."""
    if option is not None and no_listen:
        raise click.UsageError("--listen and --no-listen: say one of them")
    if no_listen:
        return None
    text = option or configured
    return Where(HOST, PORT, asked=False) if text is None else address(text)


def address(text: str) -> Where:
    """'HOST:PORT', '[::1]:PORT', or a port alone for this machine only."""
    host, _, port = text.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit() and int(port) < 65536) or (":" in bare and bare == host):
        raise ConfigMistake(f"nothing can listen at {text!r}; write HOST:PORT, such as {HOST}:{PORT} or [::1]:{PORT}")
    return Where(bare or HOST, int(port), asked=True)


@contextmanager
def listening(ctx: Context, where: Where | None, base: str = "", applications: Sequence[ConfiguredApplication[Any]] = ()) -> Iterator[None]:
    """The API is open meanwhile, and says where. Without what it needs, one line says how to get that, unless it was asked for."""
    with opened(ctx, where, "up", "--no-listen", base, applications) as url:
        if url is not None:
            say(f"milepost up: listening at {url}; open it in a browser; its API is described at {url}/api/docs")
        yield


@contextmanager
def opened(
    ctx: Context,
    where: Where | None,
    command: str,
    without: str,
    base: str = "",
    applications: Sequence[ConfiguredApplication[Any]] = (),
) -> Iterator[str | None]:
    """The door is open meanwhile, at the address that is given; None: there is no door, as was wished or because something that it
    needs is not installed. `command` is who says so, `without` the option that leaves the door out."""
    if where is None:
        yield None
        return
    try:
        from milepost.http.server.assembly import Door
        from milepost.http.server.base_path import checked_base
    except ImportError as error:
        told = f"the API needs more than is installed ({error.name}): {INSTALL}"
        if where.asked:
            raise ConfigMistake(told) from None
        say(f"milepost {command}: {told}, or say {without}")
        yield None
        return
    door = _opened(ctx, where, partial(Door, base=checked_base(base), applications=applications), command, without)
    try:
        door.open()
        yield door.url
    finally:
        door.close()


def _opened(ctx: Context, where: Where, door: Callable[[Context, str, int], Door], command: str, without: str) -> Door:
    """A door at that address; where nobody asked for that very one, at the next port that is free."""
    from milepost.engine.auth.keys import any_keys
    from milepost.http.auth.origins import is_loopback

    if not is_loopback(where.host) and not any_keys(ctx):
        raise ConfigMistake(
            f"others can reach {where.host}:{where.port}, and there are no keys: make one first with "
            "'milepost keys new NAME --scope admin', or listen at 127.0.0.1"
        )
    if where.asked:
        return door(ctx, where.host, where.port)
    for port in range(where.port, where.port + TRIES):
        try:
            found = door(ctx, where.host, port)
        except ConfigMistake:
            continue
        if port != where.port:
            say(f"milepost {command}: port {where.port} is taken; it is {port} instead")
        return found
    elsewhere = "--listen HOST:PORT, or " if command == "up" else ""
    raise ConfigMistake(f"all ports from {where.port} to {where.port + TRIES - 1} are taken; say {elsewhere}{without}")
