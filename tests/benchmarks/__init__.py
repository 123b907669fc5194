"""Programs that measure, on a server of their own or a given one. Nothing here is a test; tests use some of it."""
