"""Finds out why Kafka cannot be reached, by trying each bootstrap address once more.

Commands show the result to their user. aiokafka's clients only log what a connection raises.
"""

import asyncio
import concurrent.futures
import socket
import ssl
from typing import NamedTuple

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import (
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from engine.kafka.client import OAUTHBEARER, connection_options
from engine.kafka.errors import LoginTokenError
from engine.process.settings import PREFIX, Settings

_ADDRESSES = 3
_STEP_SECONDS = 3.0
_WHOLE_SECONDS = 12.0
_SETTINGS = f"{PREFIX}KAFKA_"
_OF_CLIENTS = ("bootstrap_servers", "retry_backoff_ms", "metadata_max_age_ms")


class Diagnosis(NamedTuple):
    """The fault and the setting to check, on one line.

    `certain`: the answer of a server shows the fault, so waiting does not help. (A server that does
    not answer may be busy or just starting.)
    """

    message: str
    certain: bool = False


def diagnose(settings: Settings) -> Diagnosis | None:
    """Diagnose the addresses of the settings; None if that takes too long.

    Opens connections for at most 12 s, in a separate thread, so it may be called with or without a
    running event loop.
    """
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(lambda: asyncio.run(_diagnose(settings))).result()


async def _diagnose(settings: Settings) -> Diagnosis | None:
    addresses = collect_hosts(settings.kafka_bootstrap_servers, randomize=False)[:_ADDRESSES]
    try:
        async with asyncio.timeout(_WHOLE_SECONDS):
            found = await asyncio.gather(
                *(_of_address(settings, host, port) for host, port, _ in addresses)
            )
    except TimeoutError:
        return None
    message = "; ".join(dict.fromkeys(each.message for each in found))
    return Diagnosis(message, all(each.certain for each in found))


async def _of_address(settings: Settings, host: str, port: int) -> Diagnosis:
    place = f"{host}:{port}"
    try:
        async with asyncio.timeout(_STEP_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
        writer.close()
    except TimeoutError:
        return Diagnosis(f"{place} does not answer: check the address, and firewalls on the way")
    except socket.gaierror:
        return Diagnosis(
            f"the host name {host} does not resolve: check {_SETTINGS}BOOTSTRAP_SERVERS"
        )
    except OSError as error:
        cause = "refuses connections" if isinstance(error, ConnectionRefusedError) else "fails"
        return Diagnosis(f"{place} {cause}: check the port, and whether Kafka is running there")
    return await _of_server(settings, host, port)


async def _of_server(settings: Settings, host: str, port: int) -> Diagnosis:
    """Connect as aiokafka's clients do, and send the first request that may require a login."""
    place, protocol = f"{host}:{port}", settings.kafka_security_protocol
    options = connection_options(settings) | {"request_timeout_ms": int(_STEP_SECONDS * 1000)}
    for name in _OF_CLIENTS:
        del options[name]
    try:
        connection = await create_conn(host, port, **options)
        try:
            answer = await connection.send(MetadataRequest([]))
        finally:
            connection.close()
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message or str(error)
        cause = f"the certificate of {place} is refused ({reason}): check {_SETTINGS}SSL_CAFILE"
        return Diagnosis(f"{cause} and the host name in the address", certain=True)
    except LoginTokenError as error:
        return Diagnosis(f"{place} requires a token, and {error.args[0]}", error.certain)
    except SaslAuthenticationFailed:
        return _login_refused(settings, place)
    except UnsupportedSaslMechanismError:
        fault = f"does not support the mechanism {settings.kafka_sasl_mechanism}"
        return Diagnosis(f"{place} {fault}: check {_SETTINGS}SASL_MECHANISM", certain=True)
    except (KafkaError, OSError, TimeoutError, ValueError) as error:
        cause = f"{place} ends the connection: check {_SETTINGS}SECURITY_PROTOCOL ({protocol}: "
        cause += "whether it has TLS, and a login), and whether it is Kafka"
        return Diagnosis(cause, certain=isinstance(error, ssl.SSLError))
    if not answer.brokers and settings.kafka_sasl_mechanism == OAUTHBEARER:
        # aiokafka takes a broker's refusal of a token for a success (RFC 7628).
        return _login_refused(settings, place)
    return Diagnosis(
        f"{place} is Kafka and answers, but the cluster does not: check which addresses its "
        "brokers advertise (advertised.listeners), and their state"
    )


def _login_refused(settings: Settings, place: str) -> Diagnosis:
    if settings.kafka_sasl_mechanism == OAUTHBEARER:
        cause = f"refuses the token of {settings.kafka_sasl_oauth_client_id!r}: check "
        cause += f"{_SETTINGS}SASL_OAUTH_SCOPE, _EXTENSIONS, and what the broker expects of a token"
    else:
        cause = f"refuses the login of {settings.kafka_sasl_username!r} by "
        cause += f"{settings.kafka_sasl_mechanism}: check {_SETTINGS}SASL_USERNAME and _PASSWORD"
    return Diagnosis(f"{place} {cause}", certain=True)
