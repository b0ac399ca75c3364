"""The embedded broker without the three seconds that it lets pass before the first join of a group.

The demo's tests and those of `run --embedded` have it as it is.
"""

import contextlib
import ctypes

from confluent_kafka import cimpl

from engine.cli.local_servers import EmbeddedBroker


def join_at_once(broker: EmbeddedBroker) -> None:
    """Nothing happens where the library hides the function, which Python's package has not."""
    library = ctypes.CDLL(cimpl.__file__)
    with contextlib.suppress(AttributeError):
        cluster_of, set_delay = (
            library.rd_kafka_handle_mock_cluster,
            library.rd_kafka_mock_group_initial_rebalance_delay_ms,
        )
        cluster_of.restype, cluster_of.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
        set_delay.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        # The first thing in the Python object is librdkafka's handle.
        handle = ctypes.c_void_p.from_address(id(broker._producer) + object.__basicsize__)
        if cluster := cluster_of(handle):
            set_delay(cluster, 0)
