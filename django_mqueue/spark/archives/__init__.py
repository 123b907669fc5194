"""Archives: topics as Delta tables, which other tools can also read. See docs/reference/archive.md."""
