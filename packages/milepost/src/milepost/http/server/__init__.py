"""HTTP server: all endpoints together, the ASGI application, and the listener."""
