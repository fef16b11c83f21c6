"""Retention on AWS: rows that ended get a time to live, and leave once nothing waits for their lines."""
