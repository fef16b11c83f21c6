"""API keys and login sessions."""
