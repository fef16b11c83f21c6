"""The OpenAPI document, and its page for people."""
