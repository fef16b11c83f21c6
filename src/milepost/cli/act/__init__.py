"""Commands that act on items and stages."""
