"""Runners: threads and an event loop in production; the simulator has a single seeded thread (see
testing)."""
