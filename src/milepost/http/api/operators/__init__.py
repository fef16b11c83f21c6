"""API of operators: acts, controls, breakers, prune and quarantine."""
