"""Endpoints: requests, answers, and problems (RFC 9457)."""
