"""Plain values without rules of the item's life: durations, JSON, redaction, differences."""
