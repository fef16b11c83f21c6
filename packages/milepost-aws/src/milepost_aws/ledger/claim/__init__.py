"""Claiming on AWS: which items a worker may take now, and the conditional update that takes
each."""
