"""Errors sorted: what passes by itself, and what must stop the process."""

import asyncpg
import pytest
from aiokafka import errors as kafka
from redis import exceptions as redis
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from engine.failures import (
    database_may_recover,
    kafka_may_recover,
    redis_may_recover,
    until_redis_answers,
)
from engine.metrics import Metrics


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (redis.ConnectionError(), True),
        (redis.BusyLoadingError(), True),
        (redis.TimeoutError(), True),
        (redis.OutOfMemoryError(), True),
        (redis.ReadOnlyError(), True),
        (redis.ClusterDownError("CLUSTERDOWN"), True),
        (TimeoutError(), True),
        (ConnectionResetError(), True),
        (redis.ResponseError("MISCONF Redis is configured to save RDB snapshots"), True),
        (redis.ResponseError("NOREPLICAS Not enough good replicas to write."), True),
        (redis.ResponseError("ERR Error running script: @user_script: 63: -OOM command not"), True),
        (redis.MasterDownError("Link with MASTER is down"), True),
        (redis.ResponseError("WRONGTYPE"), False),
        (redis.NoPermissionError(), False),
        (KeyError(), False),
    ],
)
def test_redis(error: Exception, passes: bool) -> None:
    assert redis_may_recover(error) is passes


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (OperationalError("", None, Exception()), True),
        (DBAPIError("", None, Exception(), connection_invalidated=True), True),
        (DBAPIError("", None, asyncpg.exceptions.AdminShutdownError("")), True),
        (asyncpg.exceptions.CannotConnectNowError("starting up"), True),
        (asyncpg.exceptions.TooManyConnectionsError(""), True),
        (asyncpg.exceptions.SerializationError(""), True),
        (asyncpg.exceptions.DeadlockDetectedError(""), True),
        (asyncpg.exceptions.ReadOnlySQLTransactionError(""), True),
        (asyncpg.exceptions.DiskFullError(""), True),
        (PoolTimeoutError(), True),
        (asyncpg.InterfaceError("connection is closed"), True),
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (ProgrammingError("", None, asyncpg.exceptions.UndefinedTableError("")), False),
        (asyncpg.exceptions.InvalidPasswordError(""), False),
        (ValueError(), False),
    ],
)
def test_sql(error: Exception, passes: bool) -> None:
    assert database_may_recover(error) is passes


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (kafka.NotLeaderForPartitionError(), True),
        (kafka.KafkaConnectionError(), True),
        (kafka.KafkaTimeoutError(), True),
        (TimeoutError(), True),
        (kafka.TopicAuthorizationFailedError(), False),
        (kafka.MessageSizeTooLargeError(), False),
    ],
)
def test_kafka(error: Exception, passes: bool) -> None:
    assert kafka_may_recover(error) is passes


async def test_a_call_is_tried_until_redis_answers() -> None:
    metrics = Metrics()
    answers: list[Exception | int] = [redis.ConnectionError(), TimeoutError(), 5]

    async def call() -> int:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert await until_redis_answers(call, metrics.redis_errors, "a test") == 5
    assert metrics.registry.get_sample_value("proximity_redis_errors_total") == 2


async def test_a_call_that_redis_refuses_is_not_tried_again() -> None:
    async def call() -> int:
        raise redis.ResponseError("ERR")

    with pytest.raises(redis.ResponseError):
        await until_redis_answers(call, Metrics().redis_errors, "a test")
