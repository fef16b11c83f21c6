"""Quarantine on AWS: lists what was set aside, tries it again, or discards it."""
