"""Who runs the engine: threads and an event loop for real, one seeded thread in the simulator (see testing)."""
