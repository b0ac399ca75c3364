"""`proximity check`: tests everything that a process needs at its start, and changes nothing."""

import asyncio
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import partial
from ipaddress import ip_network
from typing import Annotated, Any, NamedTuple

import msgspec
import typer
from aiokafka.errors import KafkaError
from redis.exceptions import RedisError
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from catalog.database import open_database
from catalog.errors import DatabaseUrlError, RedisUrlError, SecretKeyError
from catalog.migrate import pending_on
from catalog.models import Base
from catalog.redis_connection import connect_single_node, probe_redis
from catalog.secrets import is_published, open_cipher
from connectors.errors import CertificatesError
from engine.cli.command import CommandError, begin_quietly, new_app
from engine.cli.output import count_of, echo_json, print_table
from engine.cli.servers import kafka_log, kafka_reason, reason_of
from engine.formats.registry import RegistryAddress
from engine.kafka.client import (
    FORBIDDEN,
    NOT_THERE,
    OAUTHBEARER,
    ClusterState,
    KafkaCluster,
)
from engine.kafka.login_token import LoginTokenError, LoginTokens
from engine.kafka.topics import Topics
from engine.process.errors import PortInUseError, SchemaRegistryError
from engine.process.http_server import listen
from engine.process.settings import PREFIX, Settings, variable_name
from engine.process.settings_sources import shown
from engine.process.settings_types import REGISTERED_FORMATS
from engine.wiring.connector import open_caller

_REQUEST_SECONDS = 5.0
_STATEMENT_SECONDS = 10.0
_OLDEST_REDIS = (6, 2)
_MIB = 1024 * 1024


class State(StrEnum):
    """The result of one check; BAD makes the command fail."""

    OK = "ok"
    WARNING = "warning"
    BAD = "bad"


class Finding(NamedTuple):
    """The result of one check, with advice if something is wrong; `part` is the server or area."""

    state: State
    part: str
    subject: str
    result: str


ok = partial(Finding, State.OK)
warning = partial(Finding, State.WARNING)
bad = partial(Finding, State.BAD)


app = new_app()


@app.command("check")
def check(
    context: typer.Context,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Check everything that a process needs at its start, and change nothing.

    Kafka: whether it is reachable, topics, partitions, and the token of the login if it uses one.
    Redis: version, memory, eviction policy, persistence. SQL: migrations, rights. Also the secret
    key, egress, ports, and the schema registry if a topic needs it. (Readiness and metrics compare
    the clocks.) The exit status is 1 if a check fails; warnings alone are no failure.
    """
    settings = begin_quietly(context)
    found = asyncio.run(_check_all(settings))
    if json:
        for state, part, what, result in found:
            echo_json({"part": part, "what": what, "state": state.value, "told": result})
    else:
        print_table(("state", "part", "what", "found"), found)
    faults = sum(each.state is State.BAD for each in found)
    if faults:
        raise CommandError(f"{faults} of {len(found)} checks failed")


async def _check_all(settings: Settings) -> list[Finding]:
    parts = (check_kafka, check_token, check_registry, check_redis, check_sql, check_process)
    return [each for found in await asyncio.gather(*(p(settings) for p in parts)) for each in found]


async def check_kafka(settings: Settings) -> list[Finding]:
    """The brokers and the topics."""
    topics = Topics.of(settings).all()
    with kafka_log() as logged:
        try:
            async with KafkaCluster(settings, _REQUEST_SECONDS) as kafka:
                cluster = await kafka.state(topics)
        except (KafkaError, OSError, TimeoutError) as error:
            return [bad("Kafka", "reachable", kafka_reason(error, logged))]
    found_brokers = count_of(cluster.brokers, "broker")
    found = [ok("Kafka", "reachable", f"{settings.kafka_bootstrap_servers}, {found_brokers}")]
    if settings.topic_replication > cluster.brokers:
        cause = f"{settings.topic_replication} replicas need as many brokers: {found_brokers} found"
        found.append(warning("Kafka", variable_name("topic_replication"), cause))
    return found + [_topic(settings, name, cluster) for name in topics]


def _topic(settings: Settings, name: str, cluster: ClusterState) -> Finding:
    state, subject = cluster.topics.get(name), f"topic {name}"
    if state is None or state.error == NOT_THERE:
        if settings.topic_replication > cluster.brokers:
            return bad(
                "Kafka", subject, "missing, and cannot be created: there are too few brokers"
            )
        partitions = count_of(settings.topic_partitions, "partition")
        return warning("Kafka", subject, f"missing: `run` creates it with {partitions}")
    if state.error == FORBIDDEN:
        return bad("Kafka", subject, "this login may not see it")
    count = count_of(len(state.partitions), "partition")
    if state.error or state.leaderless:
        cause = f"error {state.error}" if state.error else f"{state.leaderless} without a leader"
        return bad("Kafka", subject, f"{count}, {cause}")
    return ok("Kafka", subject, count)


async def check_token(settings: Settings) -> list[Finding]:
    """Request a token for the login at Kafka, if it uses one."""
    if settings.kafka_sasl_mechanism != OAUTHBEARER:
        return []
    try:
        seconds = await LoginTokens(settings).renew()
    except LoginTokenError as error:
        return [bad("Kafka", "token", error.args[0])]
    return [ok("Kafka", "token", f"good for {seconds:g} s")]


async def check_registry(settings: Settings) -> list[Finding]:
    """The schema registry, if a topic needs one: its answers, and its kinds of schemas."""
    url, part = settings.schema_registry_url, "Schema registry"
    formats = {topic.format for topic in settings.detection_topics}
    if url is None or not formats & REGISTERED_FORMATS:
        return []
    where, ca_file = shown(url), settings.schema_registry_ca_file
    address = RegistryAddress(url.get_secret_value(), ca_file=ca_file)
    try:
        answer = await address.get("/schemas/types")
        if answer.status_code != 200:
            return [bad(part, "reachable", f"{where} answers with status {answer.status_code}")]
        kinds = msgspec.json.decode(answer.content, type=list[str])
    except SchemaRegistryError as error:
        return [bad(part, "reachable", f"{where}: {error}")]
    except msgspec.DecodeError:
        return [bad(part, "reachable", f"{where} answers, and is no schema registry")]
    return [ok(part, "reachable", f"{where}, {', '.join(sorted(kinds))}")]


async def check_redis(settings: Settings) -> list[Finding]:
    """Redis, or the named node of a cluster. Each command takes at most 2 s."""
    url, where = settings.redis_url.get_secret_value(), shown(settings.redis_url)
    try:
        await probe_redis(url)
    except RedisUrlError as error:
        return [bad("Redis", "reachable", f"{where}: {error}")]
    client = connect_single_node(url)
    try:
        return [ok("Redis", "reachable", where), *_redis_findings(await client.info())]
    except (RedisError, OSError, TimeoutError) as error:
        return [bad("Redis", "reachable", f"{where}: {reason_of(error)}")]
    finally:
        await client.aclose()


def _redis_findings(info: Mapping[str, Any]) -> Iterator[Finding]:
    version = str(info.get("redis_version", "unknown"))
    parts = tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
    old = parts < _OLDEST_REDIS
    yield (bad if old else ok)("Redis", "version", version + (": 6.2 or later is needed" * old))
    policy, limit = str(info.get("maxmemory_policy", "unknown")), int(info.get("maxmemory", 0))
    used = int(info.get("used_memory", 0))
    memory = f"{used // _MIB} MiB used" + (f" of {limit // _MIB}" if limit else ", no limit set")
    if policy != "noeviction":
        advice = f"maxmemory-policy is {policy}: set noeviction, or claims and index are evicted"
        yield (bad if limit else warning)("Redis", "memory", f"{memory}; {advice}")
    elif limit and used > 0.8 * limit:
        yield warning("Redis", "memory", f"{memory}: nearly full")
    else:
        yield ok("Redis", "memory", f"{memory}, noeviction")
    if info.get("aof_enabled"):
        yield ok("Redis", "persistence", "appendonly is on")
    else:
        loss = "after its end a device may get a campaign once more"
        yield warning("Redis", "persistence", f"appendonly is off: {loss}")


async def check_sql(settings: Settings) -> list[Finding]:
    """SQL: whether it is reachable, migrations, rights on the tables."""
    url, where = settings.database_url.get_secret_value(), shown(settings.database_url)
    try:
        database = open_database(url, command_timeout=_STATEMENT_SECONDS)
    except DatabaseUrlError as error:
        return [bad("SQL", "reachable", str(error))]
    try:
        missing = await pending_on(database.engine)
        found = [ok("SQL", "reachable", where)]
        if missing:
            count = f"{len(missing)} missing, first {missing[0]}"
            found.append(bad("SQL", "migrations", f"{count}: run `proximity migrate`"))
        else:
            found.append(ok("SQL", "migrations", "all applied"))
        if not missing and database.dialect == "postgresql":
            async with database.read() as session:
                found.append(await _sql_rights(session))
    except (SQLAlchemyError, OSError, TimeoutError) as error:
        return [bad("SQL", "reachable", f"{where}: {reason_of(error)}")]
    finally:
        await database.close()
    return found


async def _sql_rights(session: AsyncSession) -> Finding:
    query = text("SELECT has_table_privilege(current_user, :table, :right)")
    lacking = [
        f"{right} on {table}"
        for table in sorted(Base.metadata.tables)
        for right in ("SELECT", "INSERT", "UPDATE", "DELETE")
        if not await session.scalar(query, {"table": table, "right": right})
    ]
    # The recorder creates the day partitions of the traces.
    create = text("SELECT has_schema_privilege(current_user, current_schema(), 'CREATE')")
    if not await session.scalar(create):
        lacking.append("CREATE in the schema")
    if lacking:
        more = f" and {len(lacking) - 3} more" if len(lacking) > 3 else ""
        return bad("SQL", "rights", f"lacking: {', '.join(lacking[:3])}{more}")
    return ok("SQL", "rights", "on every table")


async def check_process(settings: Settings) -> list[Finding]:
    """The secret key, egress, and ports, which are opened and closed again."""
    return [
        _secret(settings),
        *(await _egress(settings)),
        *(await asyncio.to_thread(lambda: list(_ports(settings)))),
    ]


def _secret(settings: Settings) -> Finding:
    key = settings.secret_key
    if key is None:
        loss = "connectors' parameters can be neither stored nor used"
        return warning("process", "SECRET_KEY", f"not set: {loss}")
    try:
        open_cipher(key.get_secret_value())
    except SecretKeyError as error:
        return bad("process", "SECRET_KEY", str(error))
    if is_published(key.get_secret_value()):
        advice = "the key that is published with this project: choose your own"
        return warning("process", "SECRET_KEY", advice)
    return ok("process", "SECRET_KEY", "set")


async def _egress(settings: Settings) -> list[Finding]:
    try:
        await open_caller(settings).close()
    except CertificatesError as error:
        return [bad("process", "egress", str(error))]
    networks = settings.connector_allow_networks
    if not networks:
        return [ok("process", "egress", "connectors lead to public addresses only")]
    opened = f"CONNECTOR_ALLOW_NETWORKS opens {', '.join(map(str, networks))}"
    everything = (ip_network("0.0.0.0/0"), ip_network("::/0"))
    result = warning if any(network in everything for network in networks) else ok
    return [result("process", "egress", opened)]


def _ports(settings: Settings) -> Iterator[Finding]:
    """Each port is free, and no other setting has it."""
    seen: dict[int, str] = {}
    for name, host, port in (
        ("METRICS_PORT", settings.metrics_host, settings.metrics_port),
        ("API_PORT", settings.api_host, settings.api_port),
        ("API_METRICS_PORT", settings.metrics_host, settings.api_metrics_port),
    ):
        other = seen.setdefault(port, name) if port else name
        if other != name:
            yield bad("process", name, f"{port} is {other}, too: one process cannot have both")
            continue
        try:
            listen(host, port, setting=f"{PREFIX}{name}").close()
        except PortInUseError as error:
            yield warning("process", name, f"{error}; fine if it is this engine, which is running")
        else:
            yield ok("process", name, f"{host}:{port} is free")
