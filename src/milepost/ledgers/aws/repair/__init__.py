"""Repair: finds by a scan what the stream has not carried out, and messages that a queue has lost."""
