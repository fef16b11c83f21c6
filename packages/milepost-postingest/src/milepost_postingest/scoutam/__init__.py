"""ScoutAM: a client of its HTTP API, and a stand-in for tests."""
