"""Migrations of the tables of worklists. They import Django, and from this project only the fields of worklists."""
