"""HTTP: the API for programs and the dashboard for people. A thin layer over the engine."""
