"""Checks Kafka: whether it is reachable, topics, partitions, groups, transactional ids, and the
login's rights."""

import asyncio
from collections.abc import Iterator

from aiokafka.errors import KafkaError

from engine.cli.check.finding import Finding, bad, ok, warning
from engine.cli.check.groups import check_groups
from engine.cli.check.transactions import check_transactions
from engine.kafka.cluster_metadata import (
    CREATE,
    FORBIDDEN,
    NOT_THERE,
    READ,
    WRITE,
    ClusterState,
    TopicState,
    fetch_cluster_state,
)
from engine.kafka.diagnosis import diagnose
from engine.kafka.topics import Topics
from engine.process.settings import Settings, variable_name

_PART = "Kafka"


async def check_kafka(settings: Settings) -> list[Finding]:
    """Check Kafka. Bounded by the deadlines of the requests and of `diagnose`."""
    topics = Topics.of(settings)
    try:
        cluster = await fetch_cluster_state(settings, topics.all())
    except NotImplementedError:  # aiokafka raises it if the broker lacks the version of a request
        old = "these brokers are older than Kafka 2.3, and do not report what this login may do"
        return [warning(_PART, "reachable", f"{settings.kafka_bootstrap_servers}; {old}")]
    except (KafkaError, OSError, TimeoutError) as error:
        found = await asyncio.to_thread(diagnose, settings)
        reason = found.message if found else f"{type(error).__name__}: {error}"
        return [bad(_PART, "reachable", reason)]
    of_topics = _topics(settings, topics, cluster)
    groups, ids = await asyncio.gather(check_groups(settings), check_transactions(settings))
    return [_reachable(settings, cluster), *of_topics, *groups, *ids]


def _reachable(settings: Settings, cluster: ClusterState) -> Finding:
    count = f"{cluster.brokers} broker{'s' * (cluster.brokers != 1)}"
    return ok(_PART, "reachable", f"{settings.kafka_bootstrap_servers}, {count}")


def _topics(settings: Settings, topics: Topics, cluster: ClusterState) -> Iterator[Finding]:
    for name in topics.all():
        state = cluster.topics.get(name)
        if state is None or state.error == NOT_THERE:
            yield _missing(settings, name, cluster)
        elif state.error == FORBIDDEN:
            yield bad(_PART, f"topic {name}", "this login may not see it")
        elif state.error or state.leaderless:
            cause = (
                f"error {state.error}" if state.error else f"{state.leaderless} without a leader"
            )
            yield bad(_PART, f"topic {name}", f"{state.partitions} partitions, {cause}")
        else:
            yield _rights(topics, name, state)


def _missing(settings: Settings, name: str, cluster: ClusterState) -> Finding:
    subject, partitions = f"topic {name}", f"with {settings.topic_partitions} partitions"
    if cluster.rights.has(CREATE) is False:
        return bad(
            _PART, subject, f"missing, and this login may not create it: make it, {partitions}"
        )
    if settings.topic_replication > cluster.brokers:
        setting, replicas = variable_name("topic_replication"), settings.topic_replication
        cause = f"{setting} needs {replicas} brokers, and there are {cluster.brokers}"
        return bad(_PART, subject, f"missing, and cannot be created: {cause}")
    return warning(_PART, subject, f"missing: `run` creates it {partitions}")


def _rights(topics: Topics, name: str, state: TopicState) -> Finding:
    # Only `publish` writes detections, and only your pipeline writes authentications.
    operations = {
        **dict.fromkeys(topics.all_detections, (READ,)),
        topics.authentications: (READ,),
        topics.notifications: (READ, WRITE),
        topics.connector_calls: (READ, WRITE),
        topics.dead_letters: (WRITE,),
    }[name]
    words = {READ: "read", WRITE: "write"}
    lacking = [words[each] for each in operations if state.rights.has(each) is False]
    count = f"{state.partitions} partition{'s' * (state.partitions != 1)}"
    if lacking:
        return bad(_PART, f"topic {name}", f"{count}; this login may not {' nor '.join(lacking)}")
    is_known = state.rights.has(READ) is not None
    rights = (
        " and ".join(words[each] for each in operations)
        if is_known
        else "the broker does not report rights"
    )
    return ok(_PART, f"topic {name}", f"{count}, {rights}")
