"""Generator of the docs that are made from the code, so that they cannot drift.

python -m tools.docs            writes them
python -m tools.docs --check    names those that are out of date, and fails if there are any
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import click

import milepost
import milepost_client as client
import milepost_net as net
from milepost import application, ports
from milepost.cli.commands import cli
from milepost.cli.sections import SECTIONS
from milepost.core import errors
from milepost.core.status import EDGES, FAILED, LIVE, NOTES, Edge, Reason, Status
from milepost.ports.extensions import COMMANDS, extension_points, loaded
from milepost.subscribers import email
from tools.act_table import ACTS, act_rows
from tools.architecture import architecture_parts, missing_steps

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
WIDTH = 80
MADE = "<!-- Made from the code by `make docs`; change the code, not this page. -->"

# The life of an item ------------------------------------------------------------------------------

OURS = ("intake", "relay", "worker", "resender")
"""Who takes an edge without anybody outside: the first diagram."""
NAMED: dict[frozenset[Status | None], tuple[str, str]] = {
    LIVE: ("ON_THE_WAY", "any live status"),
    FAILED | {Status.CANCELLED}: ("FAILED_OR_CANCELLED", "failed or cancelled"),
}


def status_table() -> str:
    rows = [(f"`{status}`", status.meaning, "yes" if status in LIVE else "no") for status in Status]
    return table(("status", "meaning", "live"), rows)


def diagram(edges: Iterable[Edge], *, merge: bool) -> str:
    """A mermaid state diagram. With `merge`, a large set of sources is drawn as one state of its
    own."""
    arrows: dict[tuple[str, str], list[str]] = {}
    labels: dict[str, str] = {}
    for edge in edges:
        sources = (
            [NAMED[edge.sources][0]]
            if merge and edge.sources in NAMED
            else [name_of(source) for source in in_order(edge.sources)]
        )
        if merge and edge.sources in NAMED:
            labels[NAMED[edge.sources][0]] = NAMED[edge.sources][1]
        for source in sources:
            found = arrows.setdefault((source, edge.target.value), [])
            found += [
                reason.value
                for reason in Reason
                if reason in edge.reasons and reason.value not in found
            ]
    lines = ["```mermaid", "stateDiagram-v2"]
    lines += [f'    state "{label}" as {name}' for name, label in labels.items()]
    lines += [
        f"    {source} --> {target}: {', '.join(reasons)}"
        for (source, target), reasons in arrows.items()
    ]
    if not merge:
        reached = {target for _, target in arrows}
        lines += [
            f"    {status} --> [*]"
            for status in Status
            if status not in LIVE and status.value in reached
        ]
    return "\n".join([*lines, "```"])


def name_of(status: Status | None) -> str:
    return "[*]" if status is None else status.value


def in_order(statuses: Iterable[Status | None]) -> list[Status | None]:
    there = set(statuses)
    return [status for status in (None, *Status) if status in there]


def edge_table() -> str:
    rows = []
    for edge in EDGES:
        if edge.sources in NAMED:
            sources = NAMED[edge.sources][1]
        else:
            sources = ", ".join(
                "(not recorded)" if source is None else f"`{source}`"
                for source in in_order(edge.sources)
            )
        reasons = ", ".join(f"`{reason.value}`" for reason in Reason if reason in edge.reasons)
        rows.append((sources, f"`{edge.target}`", reasons, edge.who))
    return table(("from", "to", "reason", "by"), rows)


def reason_table() -> str:
    rows = [
        (f"`{reason.value}`", reason.meaning, "no" if reason in NOTES else "yes")
        for reason in Reason
    ]
    return table(("reason", "what happened", "an edge"), rows)


def lifecycle_parts() -> dict[str, str]:
    """What stands between `<!-- generated: NAME -->` and `<!-- end -->`."""
    ours = [edge for edge in EDGES if edge.who in OURS]
    others = [edge for edge in EDGES if edge.who not in OURS]
    return {
        "statuses": status_table(),
        "states": diagram(ours, merge=False),
        "outside": diagram(others, merge=True),
        "acts": table(("status", *ACTS), act_rows()),
        "edges": edge_table(),
        "reasons": reason_table(),
    }


PART = re.compile(r"(<!-- generated: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_parts(path: Path, parts: dict[str, str]) -> str:
    """The page with each marked part made anew; every part must have its place."""
    page = path.read_text(encoding="utf-8")
    found = {match[2] for match in PART.finditer(page)}
    if found != set(parts):
        raise SystemExit(
            f"{path.relative_to(ROOT)}: marked are {sorted(found)}, made are {sorted(parts)}; give each part its marker"
        )
    return PART.sub(lambda match: f"{match[1]}\n{parts[match[2]]}\n\n{match[3]}", page)


# The command line ---------------------------------------------------------------------------------


def cli_page() -> str:
    """Every command with its help, by section."""
    root = context(cli, "milepost")
    parts = [
        MADE,
        "# The command line",
        "Every command and what it says about itself with `--help`. How to use them together is in "
        "[Operating](../operating.md), [Lists](../lists.md) and the [Quickstart](../quickstart.md).",
        "Exit codes: 0 good, 1 something failed or was refused, 2 wrong usage. `--ledger` and `--routes` may stand before or "
        "after the command's name. What reads has `--json`.",
        "## milepost",
        fenced(cli.get_help(root)),
    ]
    for title, members in SECTIONS.items():
        parts.append(f"## {title}")
        for name in members:
            command = cli.get_command(root, name)
            assert command is not None
            parts += command_parts(command, root)
    parts.append("## From installed packages")
    for point in extension_points(COMMANDS):
        parts += command_parts(loaded(point), root)
    return "\n\n".join(parts) + "\n"


def command_parts(command: click.Command, parent: click.Context) -> Iterator[str]:
    ctx = context(command, command.name or "", parent)
    yield f"### {ctx.command_path}"
    yield fenced(command.get_help(ctx))
    if isinstance(command, click.Group):
        for name in sorted(command.commands):
            yield from command_parts(command.commands[name], ctx)


def context(
    command: click.Command, name: str, parent: click.Context | None = None
) -> click.Context:
    """A context of a fixed width, whatever the terminal."""
    return click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        help_option_names=["-h", "--help"],
    )


# The Python surface -------------------------------------------------------------------------------

GROUPS = {
    "Writing a route": (
        "Route",
        "Backoff",
        "Breaker",
        "Checks",
        "KeyColumn",
        "Limits",
        "url_in_key",
    ),
    "What a handler gets and says": (
        "Item",
        "Outcome",
        "Done",
        "NotYet",
        "Checked",
        "HandedOver",
        "Retry",
        "Reject",
    ),
    "In your own program": (
        "Milepost",
        "open",
        "restore",
        "Operations",
        "FoundItems",
        "HistoryEntry",
        "Line",
        "LaneView",
        "PauseView",
        "ListReport",
    ),
    "Where items are, and why": ("Status", "Reason"),
}
APPLICATION_GROUPS = {
    "Declaring an application": (
        "Application",
        "AppSettings",
        "AppContext",
        "AppDocuments",
        "AwsAccess",
    ),
    "Endpoints and pages": (
        "Call",
        "Caller",
        "Answer",
        "Problem",
        "Page",
        "Redirect",
        "Download",
        "Rates",
    ),
    "Checks, alerts and metrics": (
        "Finding",
        "AlertRule",
        "AlertSubject",
        "AlertPointer",
        "Metric",
        "Histogram",
        "CallRate",
        "correlation_id",
    ),
    "Commands": (
        "json_option",
        "signed",
        "check_signed",
        "print_json",
        "print_table",
        "print_next_page",
    ),
    "Times": ("span_ms", "moment_ms", "zone_of", "local_zone", "full_time", "iso"),
    "Keys, secrets and input": (
        "key_parts",
        "hidden_url",
        "hidden_urls",
        "secrets_of_url",
        "hide_fields",
        "redacted",
        "name_given_twice",
        "translated_net_errors",
    ),
}
PORTS_GROUPS = {
    "The ledger and its parts": (
        "Ledger",
        "LedgerItems",
        "LedgerFeed",
        "LedgerDocuments",
        "LedgerRetention",
        "LedgerPresence",
        "LedgerForeignRows",
        "ForeignRowStore",
        "QuarantineStore",
        "LedgerUpkeep",
        "MISSING_CAPABILITIES",
    ),
    "A scheme of URLs": ("LedgerScheme", "OpenLedger", "open_ledger", "Blobs"),
    "Routes and items": (
        "Plan",
        "Stage",
        "Limits",
        "Breaker",
        "Item",
        "Row",
        "Content",
        "Put",
        "Failure",
        "Line",
        "HistoryEntry",
        "Status",
        "Reason",
        "LIVE",
        "FAILED",
        "TERMINAL",
    ),
    "Adding and changing": (
        "Timing",
        "NewItem",
        "KnownKey",
        "Same",
        "KeyDigests",
        "compare",
        "Additions",
        "Change",
        "holds",
        "keeps_lease",
        "Conflict",
        "Refused",
        "unreadable",
        "link",
    ),
    "Claiming": (
        "ClaimRequest",
        "ClaimResult",
        "Lease",
        "look",
        "claimed_on_arrival",
        "fragile",
        "FRAGILE",
        "share_out",
    ),
    "Pauses, limits and breakers": (
        "Controls",
        "Limit",
        "LaneItems",
        "is_held",
        "scope",
        "lanes_above",
        "CallRate",
        "TokenBucket",
        "rate_per_second",
        "calls_left",
        "next_call_at",
        "refill",
        "spend",
        "was_set_back",
        "BreakerRecord",
        "transition",
        "breaker_after",
        "at_clock",
        "ask_again_at",
        "room_for",
        "probe_order",
        "with_probes",
        "with_leases",
        "PROBE_CANDIDATES",
    ),
    "Finding and counting": (
        "Query",
        "QueryPage",
        "KeyPart",
        "SEPARATOR",
        "ScanCost",
        "Count",
        "Group",
        "LaneCount",
        "CounterKey",
        "GroupKey",
        "count_all",
        "HOUR",
    ),
    "Documents": (
        "Document",
        "DamagedValue",
        "read_as",
        "sort_out",
        "Epoch",
        "raised_epoch",
        "ROUTE",
        "HOLD",
        "LIMIT",
        "BREAKER",
        "FORGET",
        "SECRET",
        "EPOCH",
    ),
    "Retention": (
        "PruneCriteria",
        "DeliveredLines",
        "Leaving",
        "Keep",
        "Pruned",
        "LeftFailures",
        "ForgetRequest",
        "Forgotten",
        "forgotten_name",
        "emptied",
        "not_ended",
        "REMOVED_TEXT",
    ),
    "Foreign rows and quarantine": ("ForeignRow", "ForeignRowPage", "Adopted", "QuarantineEntry"),
    "Upkeep": (
        "Service",
        "Clock",
        "CheckedClock",
        "ClockState",
        "Chance",
        "TransferResult",
        "FutureCount",
        "TablesFormat",
        "BackupReport",
        "RestoreReport",
        "Progress",
    ),
}


class Surface(NamedTuple):
    """Public names of one package, for one kind of reader."""

    title: str
    module: ModuleType
    intro: str
    groups: dict[str, tuple[str, ...]]


SURFACES = (
    Surface(
        "Routes and programs",
        milepost,
        "`import milepost as mp`, for those who write routes and programs.",
        GROUPS,
    ),
    Surface(
        "Applications",
        application,
        "`import milepost.application as mpa`, beside `milepost`, for those who write an application (see "
        "[Your own application](../guides/your-own-application.md)). None of these names needs the extra `http`.",
        APPLICATION_GROUPS,
    ),
    Surface(
        "Ledgers",
        ports,
        "`from milepost import ports`, for those who write a ledger (see [Testing](../testing.md#a-ledger-of-your-own)): the port, the values "
        "that go through it, and the rules that every ledger applies.",
        PORTS_GROUPS,
    ),
)
SPECIAL = {
    "json_option": "A decorator of a command: adds `--json`, given to it as `as_json`.",
    "ANYWHERE": '`allow_cidrs` that opens every address, `("0.0.0.0/0", "::/0")`: for hosts that the operator alone names.',
    "Outcome": "`Done | NotYet | Checked | HandedOver | Retry | Reject`: what a handler returns. Raising an exception is a `Retry`.",
    "span_ms": "`span_ms(value, subject)`: a `Span` in milliseconds; `subject` names it in the `UsageError` if it cannot be one.",
    "LIVE": "The statuses of items that have not ended.",
    "FAILED": "The statuses of items that ended in failure.",
    "TERMINAL": "The statuses of items that have ended.",
    "HOUR": "Milliseconds of an hour.",
    "SEPARATOR": "What stands between the fields of a key; within a field it is escaped.",
    "ROUTE": "Kind of documents: versions of a route, by its name.",
    "HOLD": "Kind of documents: pauses, by scope.",
    "LIMIT": "Kind of documents: limits of an operator, by scope.",
    "BREAKER": "Kind of documents: breakers, by scope.",
    "FORGET": "Kind of the document with the secret by which forgotten keys stay known.",
    "KEY": "The fields of a message's key: messageId, senderId, timestamp and targetUrl.",
    "INLINE_BODY": "262,144: the largest body, in bytes, that a service accepts unless its setting `largest_body` says otherwise.",
    "open": "Another name for `Milepost`, so that it reads well: `with milepost.open(url, routes=[…]) as mp:`.",
}
PLAIN = {
    "route": "Its route.",
    "key": "Its key within the route.",
    "stage": "The stage it is at.",
    "lane": "Its lane within the stage; empty if the stage has none.",
    "correlation_id": "The id by which it is followed elsewhere.",
    "external": "Whether a partner carries it out.",
    "is_async": "Whether its handler is an `async def`.",
    "has_breaker": "Whether a breaker stops its calls.",
    "terminal": "Whether the item has ended.",
    "closed": "Whether calls go through.",
}
"""Properties that say nothing of themselves in the code."""
SPAN = (
    "A `Span` is a number of seconds, a `timedelta`, or text such as `30s`, `10m`, `6h`, `14d` or `1h30m`. "
    "A rate is text such as `50/s`, `10/m` or `1000/h`, or a number of calls a second."
)


def python_page() -> str:
    """Every public name with its signature and docstring, by surface."""
    parts = [
        MADE,
        "# The Python surface",
        "Three packages have the names for three kinds of authors:",
        table(
            ("you write", "import"),
            [
                (
                    f"[{each.title.lower()}](#{each.title.lower().replace(' ', '-')})",
                    f"`{each.module.__name__}`",
                )
                for each in SURFACES
            ],
        ),
        "Public are also `milepost.subscribers` (`CallSubscriber`, `LogSubscriber`, `WebhookSubscriber`, `EmailSubscriber`, `open_subscriber`), "
        "`milepost.subscribers.email` (see [Mail](mail.md)), `milepost.blobs` (`open_blobs`, `open_inbox`), `milepost_net` (see [The HTTP client](net.md)), `milepost_client` (see [The client of notifications](client.md)) and `milepost_testing` (see [Testing](../testing.md)).",
        SPAN,
    ]
    described: dict[str, str] = {}
    for surface in SURFACES:
        parts += surface_parts(surface, described)
        described = dict.fromkeys(surface.module.__all__, surface.module.__name__) | described
    return "\n\n".join(parts) + "\n"


def surface_parts(surface: Surface, described: Mapping[str, str]) -> Iterator[str]:
    """One surface; `described` are names that an earlier one describes, each with its module."""
    module, groups = surface.module, surface.groups
    raised = errors_of(module, groups, f"the groups of {module.__name__}")
    yield f"## {surface.title}"
    yield surface.intro
    for title, names in groups.items():
        yield f"### {title}"
        repeated = [
            f"[`{name}`](#{name.lower()}), as in `{described[name]}`"
            for name in names
            if name in described
        ]
        for name in names:
            if name not in described:
                yield from name_parts(name, module, "####")
        if repeated:
            yield f"Also: {'; '.join(repeated)}."
    if raised:
        yield f"### Errors in `{module.__name__}`"
        yield "See [Errors](errors.md) for the whole tree."
        rows = [(f"`{name}`", summary(getattr(module, name))) for name in raised]
        yield table(("error", "meaning"), rows)


def name_parts(name: str, module: Any, mark: str = "###") -> Iterator[str]:
    yield f"{mark} {name}"
    if name in SPECIAL:
        yield SPECIAL[name]
        return
    subject = inspect.unwrap(getattr(module, name))
    if not inspect.isfunction(subject) and not isinstance(subject, type):
        yield constant_note(name, module)
        return
    if inspect.isfunction(subject):
        made = ast.parse(textwrap.dedent(inspect.getsource(subject))).body[0]
        assert isinstance(made, ast.FunctionDef)
        yield fenced(signature(made, name), "python no-run")
        yield doc(made)
        return
    if subject is net.SendState:
        node = class_node(subject)
        yield doc(node)
        yield table(("member", "meaning"), field_notes(node))
        return
    if issubclass(subject, (Status, Reason)):
        yield table(
            ("member", "value", "meaning"),
            [(f"`{name}.{each.name}`", f"`{each.value}`", each.meaning) for each in subject],
        )
        return
    node = class_node(subject)
    # A class that adds methods to a base of ours is made as that base is.
    maker = next(
        (
            each
            for each in subject.__mro__
            if "__init__" in vars(each) and each.__module__.startswith("milepost.")
        ),
        None,
    )
    body = (
        []
        if maker is None or is_dataclass(maker) or hasattr(maker, "__struct_fields__")
        else class_node(maker).body
    )
    initial = next(
        (each for each in body if isinstance(each, ast.FunctionDef) and each.name == "__init__"),
        None,
    )
    if hasattr(subject, "__struct_fields__") or is_dataclass(subject):
        yield fenced(struct_signature(subject, node), "python no-run")
    elif initial is not None and name != "Item":
        yield fenced(signature(initial, name), "python no-run")
    yield doc(node)
    notes = field_notes(node)
    if notes:
        yield table(("field", "meaning"), notes)
    properties = [
        each
        for each in methods(node)
        if decorated(each, "property") or decorated(each, "cached_property")
    ]
    if properties:
        yield table(
            ("property", "type", "meaning"),
            [
                (f"`{p.name}`", f"`{ast.unparse(p.returns)}`", first_line(p) or PLAIN[p.name])
                for p in properties
                if p.returns
            ],
        )
    for method in methods(node):
        text = ast.get_docstring(method)
        if method not in properties and text and not hasattr(subject, "__struct_fields__"):
            awaited = "await " if isinstance(method, ast.AsyncFunctionDef) else ""
            yield fenced(awaited + signature(method, f"{name}.{method.name}"), "python no-run")
            yield " ".join(text.split())


def constant_note(name: str, package: Any) -> str:
    """The docstring beneath a constant or an alias, in the module that it comes from."""
    home = next(module for module, names in package._HOMES.items() if name in names)
    source = inspect.getsource(import_module(f"milepost.{home}"))
    notes = dict(field_notes(ast.parse(source)))
    return notes[f"`{name}`"]


def class_node(subject: type) -> ast.ClassDef:
    node = ast.parse(textwrap.dedent(inspect.getsource(subject))).body[0]
    assert isinstance(node, ast.ClassDef)
    return node


Function = ast.FunctionDef | ast.AsyncFunctionDef


def methods(node: ast.ClassDef) -> list[Function]:
    return [
        each for each in node.body if isinstance(each, Function) and not each.name.startswith("_")
    ]


def decorated(node: Function, name: str) -> bool:
    return any(
        isinstance(decorator, ast.Name) and decorator.id == name
        for decorator in node.decorator_list
    )


def signature(node: Function, name: str) -> str:
    """A call as it is written: on one line if it fits, else a parameter a line."""
    arguments = node.args
    words = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(words) - len(arguments.defaults)) + list(
        arguments.defaults
    )
    given = [
        parameter(word, default)
        for word, default in zip(words, defaults, strict=True)
        if word.arg not in ("self", "cls")
    ]
    if arguments.vararg is not None:
        given.append(f"*{parameter(arguments.vararg, None)}")
    elif arguments.kwonlyargs:
        given.append("*")
    given += [
        parameter(word, default)
        for word, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    back = (
        ""
        if node.returns is None or node.name == "__init__"
        else f" -> {ast.unparse(node.returns)}"
    )
    return call(name, given, back)


def struct_signature(subject: Any, node: ast.ClassDef) -> str:
    fields = [
        each
        for each in node.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    ]
    given = ["*"] if any(word.arg == "kw_only" for word in node.keywords) else []
    for each in fields:
        assert isinstance(each.target, ast.Name)
        given.append(
            f"{each.target.id}: {ast.unparse(each.annotation)}"
            + ("" if each.value is None else f" = {ast.unparse(each.value)}")
        )
    return call(subject.__name__, given, "")


def parameter(word: ast.arg, default: ast.expr | None) -> str:
    kind = "" if word.annotation is None else f": {ast.unparse(word.annotation)}"
    if default is None:
        return f"{word.arg}{kind}"
    return f"{word.arg}{kind}{' = ' if kind else '='}{ast.unparse(default)}"


def call(name: str, given: list[str], back: str) -> str:
    short = f"{name}({', '.join(given)}){back}"
    if len(short) <= WIDTH:
        return short
    return "\n".join([f"{name}(", *(f"    {each}," for each in given), f"){back}"])


def field_notes(node: ast.ClassDef | ast.Module) -> list[tuple[str, str]]:
    """Fields, or a module's constants, that have a docstring of their own beneath them."""
    notes = []
    for field, text in zip(node.body, node.body[1:], strict=False):
        told = (
            text.value.value
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
            else None
        )
        target = (
            field.target
            if isinstance(field, ast.AnnAssign)
            else field.targets[0]
            if isinstance(field, ast.Assign)
            else None
        )
        if isinstance(target, ast.Name) and isinstance(told, str):
            notes.append((f"`{target.id}`", " ".join(told.split())))
    return notes


def doc(node: ast.ClassDef | ast.FunctionDef) -> str:
    """The docstring, its paragraphs each on one line."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))


def first_line(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    return " ".join((ast.get_docstring(node) or "").split())


# The HTTP client ----------------------------------------------------------------------------------

NET_GROUPS = {
    "Calling": ("Client", "Response", "HeaderList", "Timeouts", "Redirects", "Tls", "SendState"),
    "Large bodies": ("FileBody", "MultipartForm", "FormPart", "RequestBody"),
    "Addresses": (
        "AddressGuard",
        "ANYWHERE",
        "parse_url",
        "HttpUrl",
        "checked_headers",
        "merged_headers",
    ),
    "Signatures": ("new_secret", "webhook_headers", "verify"),
}


def net_page() -> str:
    """Every public name of `milepost_net` with its signature and docstring."""
    raised = errors_of(net, NET_GROUPS, "NET_GROUPS")
    parts = [
        MADE,
        "# The HTTP client",
        "`import milepost_net as net`: one client for everything that calls out. It needs no package besides the standard library; "
        "where `uvloop` is installed (it comes with `milepost[http]`), calls from threads run on it. "
        "What it refuses, and how webhooks are signed, is in [Security](../security.md#outgoing-requests).",
        *group_parts(NET_GROUPS, net),
    ]
    intro, _, tree = (sys.modules[net.NetError.__module__].__doc__ or "").strip().partition("\n\n")
    tree, _, rest = tree.partition("\n\n")
    parts += ["## Errors", intro, fenced(tree), rest]
    parts.append(
        table(("error", "meaning"), [(f"`{name}`", summary(getattr(net, name))) for name in raised])
    )
    return "\n\n".join(parts) + "\n"


def errors_of(module: Any, groups: dict[str, tuple[str, ...]], called: str) -> list[str]:
    """The errors among a module's public names; every other name must be in a group."""
    grouped = {name for names in groups.values() for name in names}
    raised = [name for name in module.__all__ if name not in grouped]
    odd = [name for name in raised if not is_error(getattr(module, name))]
    odd += sorted(grouped - set(module.__all__))
    if odd:
        raise SystemExit(
            f"tools/docs.py: say in {called} where these public names belong: {', '.join(odd)}"
        )
    return raised


def is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def group_parts(groups: dict[str, tuple[str, ...]], module: Any) -> Iterator[str]:
    for title, names in groups.items():
        yield f"## {title}"
        for name in names:
            yield from name_parts(name, module)


# Mail ---------------------------------------------------------------------------------------------

MAIL_GROUPS = {
    "Mails": ("Mail", "MailAttachment"),
    "Sending": ("mail_transport", "MailTransport", "MailReceipt", "RecipientRefusal"),
    "Events as mails": ("EmailSubscriber",),
}


def mail_page() -> str:
    """Every public name of `milepost.subscribers.email` with its signature and docstring."""
    raised = errors_of(email, MAIL_GROUPS, "MAIL_GROUPS")
    parts = [
        MADE,
        "# Mail",
        "`from milepost.subscribers import email`: mails over SMTP or Amazon SES. SMTP needs no package besides Milepost itself, SES needs "
        "`milepost[aws]`. How to get events as mails is in [Operating](../operating.md#events-as-mails).",
        *group_parts(MAIL_GROUPS, email),
        "## Errors",
        table(
            ("error", "meaning"), [(f"`{name}`", summary(getattr(email, name))) for name in raised]
        ),
    ]
    return "\n\n".join(parts) + "\n"


# The client of notifications ----------------------------------------------------------------------

CLIENT_GROUPS = {
    "Clients": ("MessageClient", "AsyncMessageClient", "RetryPolicy"),
    "Answers": ("MessageReceipt", "MessageState"),
    "Rules": ("check_message", "Message", "KEY", "INLINE_BODY"),
}


def client_page() -> str:
    """Every public name of `milepost_client` with its signature and docstring."""
    raised = errors_of(client, CLIENT_GROUPS, "CLIENT_GROUPS")
    parts = [
        MADE,
        "# The client of notifications",
        "`import milepost_client as client`: for programs that hand over messages to a notifications service. It needs no package besides "
        "milepost-net, which needs the standard library alone: `pip install packages/milepost-net packages/milepost-client`.",
        *group_parts(CLIENT_GROUPS, client),
        "## Errors",
        table(
            ("error", "meaning"), [(f"`{name}`", summary(getattr(client, name))) for name in raised]
        ),
    ]
    return "\n\n".join(parts) + "\n"


# Errors -------------------------------------------------------------------------------------------


def errors_page() -> str:
    """The tree, and every error with its meaning."""
    rows = []
    for name, subject in vars(errors).items():
        if isinstance(subject, type) and issubclass(subject, errors.MilepostError):
            home = "milepost.ports" if name in ports.__all__ else subject.__module__
            public = "yes" if name in milepost.__all__ else f"`{home}`"
            rows.append(
                (
                    f"`{name}`",
                    summary(subject),
                    "2" if issubclass(subject, errors.UsageError) else "1",
                    public,
                )
            )
    parts = [
        MADE,
        "# Errors",
        errors.__doc__ or "",
        fenced("\n".join(error_tree(errors.MilepostError))),
        "On the command line a message is one sentence on standard error, and the exit code is as below. "
        "What a user wrote wrongly never shows a traceback.",
        table(("error", "meaning", "exit code", "in `milepost`"), rows),
        "What to do about the errors of the ledger's file is in [The ledger](../ledger.md#when-something-is-wrong).",
    ]
    return "\n\n".join(parts) + "\n"


def error_tree(subject: type[Exception], before: str = "") -> Iterator[str]:
    """The class and those below it in its module, one per line."""
    yield before + subject.__name__
    below = [each for each in subject.__subclasses__() if each.__module__ == subject.__module__]
    stem = before.replace("├── ", "│   ").replace("└── ", "    ")
    for each in below:
        yield from error_tree(each, stem + ("└── " if each is below[-1] else "├── "))


# Putting it together ------------------------------------------------------------------------------


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    return "\n".join(
        lines
        + [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    )


def fenced(text: str, kind: str = "text") -> str:
    body = "\n".join(line.rstrip() for line in text.strip("\n").splitlines())
    return f"```{kind}\n{body}\n```"


def summary(subject: type) -> str:
    return " ".join((subject.__doc__ or "").split())


def pages() -> dict[Path, str]:
    """Every file that is made, or has made parts, as it should be."""
    lifecycle, architecture = DOCS / "lifecycle.md", DOCS / "architecture.md"
    return {
        lifecycle: with_parts(lifecycle, lifecycle_parts()),
        architecture: with_parts(architecture, architecture_parts()),
        DOCS / "reference" / "cli.md": cli_page(),
        DOCS / "reference" / "python.md": python_page(),
        DOCS / "reference" / "errors.md": errors_page(),
        DOCS / "reference" / "net.md": net_page(),
        DOCS / "reference" / "mail.md": mail_page(),
        DOCS / "reference" / "client.md": client_page(),
    }


def main(arguments: list[str]) -> int:
    check = arguments == ["--check"]
    if arguments and not check:
        print("usage: python -m tools.docs [--check]", file=sys.stderr)
        return 2
    stale = [
        (path, text)
        for path, text in pages().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    for path, text in stale:
        name = path.relative_to(ROOT)
        if check:
            print(f"{name} is out of date; run 'make docs'", file=sys.stderr)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote {name}")
    missing = missing_steps((DOCS / "architecture.md").read_text(encoding="utf-8"))
    for sentence in missing:
        print(f"docs/architecture.md: {sentence}; write the step as it is now", file=sys.stderr)
    return 1 if (check and stale) or missing else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
