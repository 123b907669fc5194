"""The speed of publishing and of workers: our scenarios, the same work in plain SQL, and other queues."""
