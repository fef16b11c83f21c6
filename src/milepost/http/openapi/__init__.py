"""The OpenAPI document, and the same as a page."""
