"""The results of a run as JSON, Markdown and plots."""
