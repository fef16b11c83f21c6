"""API of operators: acts, controls, breakers, prune, forget and quarantine."""
