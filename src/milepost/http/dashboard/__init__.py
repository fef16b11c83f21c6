"""The page for people: server-rendered, with a few small scripts that keep it live. Everything it does goes through the API."""
