"""Endpoints: requests, answers, problems (RFC 9457), headers and paths."""
