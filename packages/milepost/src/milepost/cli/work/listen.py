"""Address of the HTTP server of `milepost up` and `milepost demo`, and the server's life cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from milepost.cli.options import F
from milepost.cli.work.foreground import say
from milepost.core.errors import ConfigMistake

if TYPE_CHECKING:
    from milepost.application.declaration import ConfiguredApplication
    from milepost.engine.context import Context
    from milepost.http.server.assembly import HttpServer

HOST, PORT, TRIES = "127.0.0.1", 8321, 20
INSTALL = "pip install '/path/to/milepost/packages/milepost[http]'"


class Where(NamedTuple):
    """An address; `asked` if the user named it, so that no other port may be used."""

    host: str
    port: int
    asked: bool


def listen_options(command: F) -> F:
    """Give a command --listen, --base-path and --no-listen."""
    command = click.option("--no-listen", is_flag=True, help="Do not start the HTTP server.")(
        command
    )
    command = click.option(
        "--base-path",
        metavar="/PATH",
        help="URL prefix of every page, for use behind a proxy [none].",
    )(command)
    return click.option(
        "--listen",
        metavar="HOST:PORT",
        help=f"Address of the HTTP server [{HOST}:{PORT}, or the next free port].",
    )(command)


def wanted(option: str | None, configured: str | None, *, no_listen: bool) -> Where | None:
    """The address to listen at: --listen, else milepost.toml, else the default; None for no
    server."""
    if option is not None and no_listen:
        raise click.UsageError("give either --listen or --no-listen")
    if no_listen:
        return None
    text = option or configured
    return Where(HOST, PORT, asked=False) if text is None else address(text)


def address(text: str) -> Where:
    """Parse 'HOST:PORT', '[::1]:PORT', or a port alone, which means loopback."""
    host, _, port = text.strip().rpartition(":")
    bare = host.removeprefix("[").removesuffix("]")
    if not (port.isascii() and port.isdigit() and int(port) < 65536) or (
        ":" in bare and bare == host
    ):
        raise ConfigMistake(
            f"{text!r} is not an address to listen at; write HOST:PORT, such as {HOST}:{PORT} or [::1]:{PORT}"
        )
    return Where(bare or HOST, int(port), asked=True)


@contextmanager
def listening(
    ctx: Context,
    where: Where | None,
    base: str = "",
    applications: Sequence[ConfiguredApplication[Any]] = (),
) -> Iterator[None]:
    """Run the HTTP server meanwhile and print its address. If a package is missing, print how to
    install it; raise only if the user asked for an address."""
    with opened(ctx, where, "up", "--no-listen", base, applications) as url:
        if url is not None:
            say(f"milepost up: listening at {url}; API documentation at {url}/api/docs")
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
    """Run the HTTP server meanwhile; gives its URL, or None if it is not wanted or a package for it
    is not installed. `command` is the name used in messages, `without` the option that turns the
    server off."""
    if where is None:
        yield None
        return
    try:
        from milepost.http.server.assembly import HttpServer, checked_base
    except ImportError as error:
        message = f"the HTTP server needs a package that is not installed ({error.name}): {INSTALL}"
        if where.asked:
            raise ConfigMistake(message) from None
        say(f"milepost {command}: {message}, or give {without}")
        yield None
        return
    door = _opened(
        ctx,
        where,
        partial(HttpServer, base=checked_base(base), applications=applications),
        command,
        without,
    )
    try:
        door.open()
        yield door.url
    finally:
        door.close()


def _opened(
    ctx: Context,
    where: Where,
    door: Callable[[Context, str, int], HttpServer],
    command: str,
    without: str,
) -> HttpServer:
    """A server at that address; if the user did not ask for it, at the next free port. Refuses a
    public address without API keys."""
    from milepost.engine.auth import any_keys
    from milepost_net.guard import is_loopback

    if not is_loopback(where.host) and not any_keys(ctx):
        raise ConfigMistake(
            f"other machines can reach {where.host}:{where.port}, and there are no API keys: create one first with "
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
            say(f"milepost {command}: port {where.port} is in use; using {port}")
        return found
    elsewhere = "--listen HOST:PORT, or " if command == "up" else ""
    raise ConfigMistake(
        f"all ports from {where.port} to {where.port + TRIES - 1} are in use; give {elsewhere}{without}"
    )
