"""Tags and filters of the templates of the admin: URLs, buttons, values, figures and charts.

This is the top layer. It imports ``admin``, ``inspect``, ``stats`` and lower layers. No other module imports it.
"""
