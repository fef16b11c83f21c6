"""Rows and attributes that other programs write into a table: adopted, applied as confirmations, or
quarantined."""
