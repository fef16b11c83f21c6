"""Events to subscribers: delivery, cursors, parked events, replay and the feed."""
