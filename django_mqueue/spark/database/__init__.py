"""Operations on the queue's tables that only Spark needs: follow a topic, copy messages, fill a new group."""
