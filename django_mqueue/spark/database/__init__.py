"""Access to the queue's tables beyond the service layer: follow a topic, copy messages, store the past."""
