"""Commands that work: up, work, submit."""
