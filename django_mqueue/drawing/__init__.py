"""Charts as SVG, drawn from numbers only. The admin's pages and the reports use the same functions."""
