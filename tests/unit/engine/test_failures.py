"""Sorting of errors: temporary ones, and those that stop the process."""

import asyncpg
import pytest
from aiokafka import errors as kafka
from redis import exceptions as redis
from sqlalchemy.exc import DBAPIError, OperationalError, ProgrammingError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from catalog.sql_failures import sqlstate_may_recover
from engine.process.failures import (
    database_may_recover,
    kafka_may_recover,
    redis_may_recover,
)


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
        (asyncpg.exceptions.QueryCanceledError("statement_timeout"), True),
        (DBAPIError("", None, asyncpg.exceptions.QueryCanceledError("")), True),
        (asyncpg.exceptions.PostgresIOError(""), True),
        (asyncpg.exceptions.InternalServerError("tuple concurrently updated"), True),
        (asyncpg.exceptions.IdleInTransactionSessionTimeoutError(""), True),
        (asyncpg.exceptions.InvalidCachedStatementError("after a migration"), True),
        (asyncpg.InterfaceError("connection is closed"), True),
        (asyncpg.exceptions._base.DataError("value out of int64 range"), False),
        (asyncpg.exceptions.NumericValueOutOfRangeError(""), False),
        (asyncpg.exceptions.FeatureNotSupportedError(""), False),
        (ConnectionRefusedError(), True),
        (TimeoutError(), True),
        (ProgrammingError("", None, asyncpg.exceptions.UndefinedTableError("")), False),
        (asyncpg.exceptions.InvalidPasswordError(""), False),
        (ValueError(), False),
    ],
)
def test_sql(error: Exception, passes: bool) -> None:
    assert database_may_recover(error) is passes


# Every class of PostgreSQL 17, Appendix A: what passes as a whole, in part, and not at all.
CLASSES = {
    "00": False, "01": False, "02": False, "03": False, "08": True, "09": False, "0A": False,
    "0B": False, "0F": False, "0L": False, "0P": False, "0Z": False, "10": False, "20": False,
    "21": False, "22": False, "23": False, "24": False, "25": None, "26": None, "27": False,
    "28": False, "2B": False, "2D": False, "2F": False, "34": False, "38": False, "39": False,
    "3B": False, "3D": False, "3F": False, "40": True, "42": None, "44": False, "53": True,
    "54": False, "55": None, "57": True, "58": True, "72": True, "F0": True, "HV": False,
    "P0": False, "XX": True,
}  # fmt: skip
IN_PART = {"25006", "25P02", "25P03", "25P04", "26000", "42P05", "55000", "55006", "55P03"}


def test_every_class_of_sqlstate_is_sorted() -> None:
    known = {
        state
        for name in dir(asyncpg.exceptions)
        if (state := getattr(getattr(asyncpg.exceptions, name), "sqlstate", None))
    }
    assert {state[:2] for state in known} <= CLASSES.keys()
    for state in known | IN_PART:
        sorted_as = CLASSES[state[:2]]
        expected = state in IN_PART if sorted_as is None else sorted_as
        assert sqlstate_may_recover(state) is expected, state


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
