"""Commands that bring in items and run their stages: up, work, submit."""
