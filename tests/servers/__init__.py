"""Real servers for tests: started lazily, once a run, on free loopback ports, gone with the run.

`fixtures` is the entry; its docstring lists what a test can use. Environment:

PROXIMITY_TEST_KAFKA            host:port of a Kafka to use instead of starting one
PROXIMITY_TEST_REDIS            redis:// URL to use instead (each test EMPTIES it)
PROXIMITY_TEST_DATABASE         postgresql:// URL to use instead (each test makes and drops its own
                                database on that server)
PROXIMITY_TEST_CACHE            where Kafka's jars are kept (~/.cache/proximity-engine)
PROXIMITY_TEST_REQUIRE_SERVERS  1: a server that is missing fails the tests that need it
"""
