"""SQL that only Spark uses: pages of the log in bulk, copies of messages, the identity of an installation.

It also opens connections for processes without Django's settings.
It imports ``store``, Django and the database driver, and never PySpark.
"""
