"""Apache Kafka for tests: its jars from Maven, one process in KRaft mode."""
