"""Public traces: where they are published, how they are downloaded and verified."""
