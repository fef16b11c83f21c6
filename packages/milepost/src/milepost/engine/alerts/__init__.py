"""Alerts: one notice when something begins to fail, by cause and lane, and one when it is over."""
