"""Other queues under the same load: an adapter for each, and the brokers that some of them need."""
