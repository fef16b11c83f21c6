"""Operating notifications: records, figures, senders, dead letters, destinations, and their API, pages and commands."""
