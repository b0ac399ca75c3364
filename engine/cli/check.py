"""`proximity check`: tests everything that a process needs at its start, and changes nothing."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple

from catalog.migrate import pending
from catalog.redis_connection import connect_single_node, probe_redis
from catalog.secrets import is_published
from engine.cli.command import CommandError, Json, begin_quietly, command, kafka_complaints
from engine.cli.output import count_of, echo_json, print_table
from engine.cli.servers import line_of
from engine.formats.registry import RegistryAddress
from engine.kafka.client import FORBIDDEN, NOT_THERE, OAUTHBEARER, ClusterState, KafkaCluster
from engine.kafka.login_token import LoginTokens
from engine.kafka.topics import all_topics
from engine.process.settings import REGISTERED_FORMATS, Settings, variable_name
from engine.process.settings_sources import shown
from engine.wiring.connector import service_callers
from engine.wiring.parts import open_stores

_REQUEST_SECONDS = 5.0
_STATEMENT_SECONDS = 10.0
_OLDEST_REDIS = (6, 2)
_MIB = 1024 * 1024


class Finding(NamedTuple):
    """The result of one check, with advice if something is wrong."""

    state: Literal["ok", "warning", "bad"]  # bad makes the command fail
    subject: str
    result: str


ok = partial(Finding, "ok")
warning = partial(Finding, "warning")
bad = partial(Finding, "bad")


@command("check")
async def check(as_json: Json = False) -> None:
    """Check everything that a process needs at its start, and change nothing.

    Kafka: whether it is reachable, topics, partitions, and the token of the login if it uses one.
    Redis: version, memory, eviction policy, persistence. SQL: migrations. Also the secret key,
    egress, and the schema registry if a topic needs it. (Readiness and metrics compare the clocks.)
    The exit status is 1 if a check fails; warnings alone are no failure.
    """
    settings = begin_quietly()
    found = await asyncio.gather(*(findings(each, settings) for each in _CHECKS.values()))
    rows = [
        (each.state, part, each.subject, each.result)
        for part, listed in zip(_CHECKS, found, strict=True)
        for each in listed
    ]
    if as_json:
        for row in rows:
            echo_json(dict(zip(("state", "part", "what", "told"), row, strict=True)))
    else:
        print_table(("state", "part", "what", "found"), rows)
    faults = sum(row[0] == "bad" for row in rows)
    if faults:
        raise CommandError(f"{faults} of {len(rows)} checks failed")


async def findings(
    check: Callable[[Settings], AsyncIterator[Finding]], settings: Settings
) -> list[Finding]:
    """What a check finds; an error of its server is a finding, too."""
    found = list[Finding]()
    with kafka_complaints() as complaints:
        try:
            async for each in check(settings):
                found.append(each)
        except Exception as error:
            of_kafka = complaints if check is check_kafka else ()
            found.append(bad("reachable", line_of(error, of_kafka)))
    return found


async def check_kafka(settings: Settings) -> AsyncIterator[Finding]:
    """The token of the login, if it uses one, the brokers and the topics."""
    if settings.kafka_sasl_mechanism == OAUTHBEARER:
        yield ok("token", f"good for {await LoginTokens(settings).renew():g} s")
    topics = all_topics(settings)
    async with KafkaCluster(settings, _REQUEST_SECONDS) as kafka:
        cluster = await kafka.state(topics)
    brokers = count_of(cluster.brokers, "broker")
    yield ok("reachable", f"{settings.kafka_bootstrap_servers}, {brokers}")
    replicas = settings.topic_replication
    if replicas > cluster.brokers:
        cause = f"{replicas} replicas need as many brokers: {brokers} found"
        yield warning(variable_name("topic_replication"), cause)
    for name in topics:
        yield _topic(settings, name, cluster)


def _topic(settings: Settings, name: str, cluster: ClusterState) -> Finding:
    state, subject = cluster.topics.get(name), f"topic {name}"
    if state is None or state.error == NOT_THERE:
        if settings.topic_replication > cluster.brokers:
            return bad(subject, "missing, and cannot be created: there are too few brokers")
        partitions = count_of(settings.topic_partitions, "partition")
        return warning(subject, f"missing: `run` creates it with {partitions}")
    if state.error == FORBIDDEN:
        return bad(subject, "this login may not see it")
    count = count_of(len(state.partitions), "partition")
    if state.error or state.leaderless:
        cause = f"error {state.error}" if state.error else f"{state.leaderless} without a leader"
        return bad(subject, f"{count}, {cause}")
    return ok(subject, count)


async def check_registry(settings: Settings) -> AsyncIterator[Finding]:
    """The schema registry, if a topic needs one."""
    url, ca_file = settings.schema_registry_url, settings.schema_registry_ca_file
    formats = {topic.format for topic in settings.detection_topics}
    if url is not None and not formats.isdisjoint(REGISTERED_FORMATS):
        registry = RegistryAddress(url.get_secret_value(), ca_file=ca_file)
        answer = await registry.get("/schemas/types")
        state = ok if answer.is_success else bad
        yield state("reachable", f"{shown(url)}, status {answer.status_code}")


async def check_redis(settings: Settings) -> AsyncIterator[Finding]:
    """Redis, or the named node of a cluster. Each command takes at most 2 s."""
    url = settings.redis_url.get_secret_value()
    await probe_redis(url)
    client = connect_single_node(url)
    try:
        info = await client.info()
    finally:
        await client.aclose()
    yield ok("reachable", shown(settings.redis_url))
    version = str(info.get("redis_version", "unknown"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST_REDIS:
        yield bad("version", f"{version}: 6.2 or later is needed")
    else:
        yield ok("version", version)
    policy, limit = str(info.get("maxmemory_policy", "unknown")), int(info.get("maxmemory", 0))
    used = int(info.get("used_memory", 0))
    memory = f"{used // _MIB} MiB used" + (f" of {limit // _MIB}" if limit else ", no limit set")
    if policy != "noeviction":
        advice = f"maxmemory-policy is {policy}: set noeviction, or claims and index are evicted"
        yield (bad if limit else warning)("memory", f"{memory}; {advice}")
    elif limit and used > 0.8 * limit:
        yield warning("memory", f"{memory}: nearly full")
    else:
        yield ok("memory", f"{memory}, noeviction")
    if info.get("aof_enabled"):
        yield ok("persistence", "appendonly is on")
    else:
        loss = "after its end a device may get a campaign once more"
        yield warning("persistence", f"appendonly is off: {loss}")


async def check_sql(settings: Settings) -> AsyncIterator[Finding]:
    """SQL: whether it is reachable, and migrations."""
    async with open_stores(settings, command_timeout=_STATEMENT_SECONDS) as stores:
        missing = await pending(stores.database.engine)
    yield ok("reachable", shown(settings.database_url))
    if missing:
        count = f"{len(missing)} missing, first {missing[0]}"
        yield bad("migrations", f"{count}: run `proximity migrate`")
    else:
        yield ok("migrations", "all applied")


async def check_process(settings: Settings) -> AsyncIterator[Finding]:
    """The secret key, certificates for connectors' calls, and where these may lead."""
    key = settings.secret_key.get_secret_value() if settings.secret_key else None
    if key is None:
        yield warning("SECRET_KEY", "not set: parameters of connectors cannot be stored or used")
    elif is_published(key):
        yield warning("SECRET_KEY", "published with this project: choose your own")
    else:
        yield ok("SECRET_KEY", "set")
    service_callers(settings)  # reads the certificates
    networks = ", ".join(map(str, settings.connector_allow_networks))
    yield ok("egress", f"public addresses, and {networks}" if networks else "public addresses")


_CHECKS: Mapping[str, Callable[[Settings], AsyncIterator[Finding]]] = {
    "Kafka": check_kafka,
    "Schema registry": check_registry,
    "Redis": check_redis,
    "SQL": check_sql,
    "process": check_process,
}
