"""SQL that only Spark uses: pages of the log in bulk, copies of messages, the identity of an installation."""
