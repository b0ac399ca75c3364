"""What readiness asks of the servers that a process needs."""

from collections.abc import Mapping

from redis.asyncio import RedisCluster
from sqlalchemy import text

from engine.kafka.broker_probe import BrokerProbe
from engine.process.metrics import Metrics
from engine.process.readiness import QUESTION, Check, Question
from engine.process.settings import Settings
from engine.wiring.stores import Stores

_PROBE_SECONDS = 60
_TAGS = 64  # the hash tags of the claims, and among them those of the index


def server_questions(
    settings: Settings, stores: Stores, probe: BrokerProbe, metrics: Metrics
) -> Mapping[str, Check]:
    """By the names that /readyz shows: kafka, redis, redis_writes and sql."""

    async def ask_kafka() -> bool:
        answers = await probe.answers()  # which counts by itself
        if answers:
            metrics.kafka_errors.answered(QUESTION)
        else:
            metrics.kafka_errors.lost(QUESTION, "no broker answers")
        return answers

    async def ask_redis_to_write() -> None:
        # Each node that holds claims: one of them alone may be full, or a replica by now.
        tags = range(_TAGS) if isinstance(stores.redis, RedisCluster) else range(1)
        pipeline = stores.redis.pipeline(transaction=False)
        for tag in tags:
            pipeline.set(f"{settings.redis_prefix}probe:{{{tag}}}", b"", ex=_PROBE_SECONDS)
        await pipeline.execute()

    async def ask_sql() -> None:
        async with stores.database.autocommit() as session:
            await session.execute(text("SELECT 1"))

    redis = Question(stores.redis_answers, what=QUESTION, errors=metrics.redis_errors)
    writes = Question(ask_redis_to_write, what="write", errors=metrics.redis_errors)
    sql = Question(ask_sql, what=QUESTION, errors=metrics.sql_errors)
    return {
        "kafka": ask_kafka,
        "redis": redis.answers,
        "redis_writes": writes.answers,
        "sql": sql.answers,
    }
