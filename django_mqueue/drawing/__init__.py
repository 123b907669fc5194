"""Charts as SVG, of numbers alone: the admin's pages and reports are drawn by the same functions."""
