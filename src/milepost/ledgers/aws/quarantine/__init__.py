"""Quarantine on AWS: lists its entries, tries them again, or discards them."""
