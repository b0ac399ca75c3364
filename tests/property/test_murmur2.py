"""The hash that partitions keys, beside aiokafka's, which is Java's line by line."""

from aiokafka.partitioner import murmur2 as of_aiokafka
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.kafka.murmur2 import murmur2


@settings(max_examples=500)
@given(st.binary(max_size=1100))
def test_it_is_the_hash_of_javas_client(key: bytes) -> None:
    assert murmur2(key) == of_aiokafka(key)


def test_known_values() -> None:
    """From the tests of Kafka's own client, org.apache.kafka.common.utils.UtilsTest."""
    known = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
    }
    assert {key: murmur2(key) for key in known} == {
        key: value & 0xFFFFFFFF for key, value in known.items()
    }
