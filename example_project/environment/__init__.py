"""The environment of a run: system packages, a virtual environment, a private database server.

These modules use only the standard library and each other, because they run before anything is installed.
"""
