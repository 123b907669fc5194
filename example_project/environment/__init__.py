"""What a run needs around it: system packages, a virtual environment, a private database server.

Only the standard library, and nothing of this project: it runs before anything is installed.
"""
