"""Dashboard: server-rendered pages, with a few small scripts that keep them live. Every write goes
through the API."""
