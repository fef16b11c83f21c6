"""DSpace 7 and later: a client of its REST API, and a stand-in that speaks it."""
