"""The sections of the help, and the module of each command."""

from __future__ import annotations

SECTIONS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "demo", "completion"),
    "Work": ("up", "work", "submit"),
    "Look": ("status", "show", "list", "groups", "alerts", "volume", "watch", "lists", "acts", "export", "doctor"),
    "Prove": ("signing-key", "heads", "verify"),
    "Act": ("retry", "skip", "confirm", "cancel", "resend", "rerun", "replace", "reschedule", "pause", "resume", "limit", "breakers"),
    "Keep": ("routes", "subscribers", "keys", "prune", "backup", "restore", "adopt", "quarantine", "move", "cost"),
}
"""The sections of the help, each with its commands in order. The module of a command is named after both: `act/retry.py`."""
MODULES = {name: f"milepost.cli.{title.lower()}.{name.replace('-', '_')}" for title, names in SECTIONS.items() for name in names}
