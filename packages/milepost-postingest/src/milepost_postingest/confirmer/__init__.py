"""Standalone confirmer: receives messages from a queue, runs a check, and confirms the asset's
row."""
