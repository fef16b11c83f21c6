"""The sections of the help, and the module of each command."""

from __future__ import annotations

SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "demo", "completion"),
    "Work": ("up", "work", "submit"),
    "Look": (
        "status",
        "show",
        "list",
        "forecast",
        "groups",
        "alerts",
        "volume",
        "watch",
        "lists",
        "acts",
        "export",
        "doctor",
    ),
    "Prove": ("signing-key", "heads", "verify"),
    "Act": (
        "retry",
        "skip",
        "confirm",
        "cancel",
        "resend",
        "rerun",
        "replace",
        "reschedule",
        "redate",
        "pause",
        "resume",
        "limit",
        "breakers",
    ),
    "Keep": (
        "routes",
        "subscribers",
        "keys",
        "prune",
        "forget",
        "backup",
        "restore",
        "adopt",
        "quarantine",
        "move",
        "upgrade",
    ),
}
"""The sections of the help, each with its commands in order."""
_SHARED = {
    "items": ("retry", "skip", "confirm", "cancel", "resend", "rerun", "replace", "reschedule"),
    "controls": ("pause", "resume", "limit", "breakers"),
    "backup": ("restore",),
    "up": ("work",),
    "verify": ("signing-key",),
}
_MODULE = {name: module for module, names in _SHARED.items() for name in names}
MODULES = {
    name: f"milepost.cli.{title.lower()}.{_MODULE.get(name, name).replace('-', '_')}"
    for title, names in SECTIONS.items()
    for name in names
}
"""The module of a command is in the folder of its section, and has its name, unless several share
one: `look/status.py`, `act/items.py`."""
