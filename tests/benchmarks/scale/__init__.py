"""Large numbers: subscribers, partitions, rows of history. Each scenario runs once, because it takes minutes."""
