"""Repair: a scan that carries out what the stream did not deliver, a search for messages that a
queue has lost, and the quarantine."""
