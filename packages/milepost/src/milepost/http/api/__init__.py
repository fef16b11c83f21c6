"""The API: one module per resource."""
