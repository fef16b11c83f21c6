"""A confirmer that runs on its own: takes messages from a queue, checks, and confirms the asset's row."""
