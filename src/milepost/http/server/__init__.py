"""The HTTP server: all endpoints put together, the ASGI application, and the listener."""
