"""Charts as SVG, and text that is safe on pages and terminals, for the admin, reports and commands."""
