"""Metrics: collected in the process, read from the ledger, and written as text for Prometheus."""
