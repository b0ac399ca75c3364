"""Finds out why Kafka cannot be reached, by trying each bootstrap address once more.

Commands show the result to their user. aiokafka's clients only log what a connection raises.
"""

import asyncio
import concurrent.futures
import socket
import ssl
from typing import NamedTuple

from aiokafka.conn import create_conn
from aiokafka.errors import (
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from engine.kafka.client import OAUTHBEARER, connection_options
from engine.kafka.errors import LoginTokenError
from engine.process.settings import PREFIX, Settings
from engine.process.settings_types import bootstrap_addresses

_ADDRESSES = 3
_STEP_SECONDS = 3.0
_WHOLE_SECONDS = 12.0
_PROTOCOL = f"{PREFIX}KAFKA_SECURITY_PROTOCOL"
_OF_CLIENTS = ("bootstrap_servers", "retry_backoff_ms", "metadata_max_age_ms")
# The same server with TLS, or without it.
_OTHER_PROTOCOL = {
    "PLAINTEXT": "SSL",
    "SASL_PLAINTEXT": "SASL_SSL",
    "SSL": "PLAINTEXT or SASL_PLAINTEXT",
    "SASL_SSL": "SASL_PLAINTEXT",
}


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
    addresses = bootstrap_addresses(settings.kafka_bootstrap_servers)[:_ADDRESSES]
    try:
        async with asyncio.timeout(_WHOLE_SECONDS):
            found = await asyncio.gather(*(_of_address(settings, *each) for each in addresses))
    except TimeoutError:
        return None
    message = "; ".join(dict.fromkeys(each.message for each in found))
    return Diagnosis(message, all(each.certain for each in found))


async def _of_address(settings: Settings, host: str, port: int) -> Diagnosis:
    place = f"{host}:{port}"
    try:
        await _open(host, port)
    except TimeoutError:
        return Diagnosis(f"{place} does not answer: check the address, and firewalls on the way")
    except socket.gaierror:
        setting = f"{PREFIX}KAFKA_BOOTSTRAP_SERVERS"
        return Diagnosis(f"the host name {host} does not resolve: check {setting}")
    except OSError as error:
        cause = "refuses connections" if isinstance(error, ConnectionRefusedError) else "fails"
        return Diagnosis(f"{place} {cause}: check the port, and whether Kafka is running there")
    return await _of_server(settings, host, port)


async def _of_server(settings: Settings, host: str, port: int) -> Diagnosis:
    """Connect as aiokafka's clients do, and send the first request that may require a login."""
    place = f"{host}:{port}"
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
        authority = settings.kafka_ssl_cafile or "the system's authorities"
        reason = error.verify_message or str(error)
        return Diagnosis(
            f"the certificate of {place} is refused ({reason}): check "
            f"{PREFIX}KAFKA_SSL_CAFILE ({authority}) and the host name in the address",
            certain=True,
        )
    except SaslAuthenticationFailed:
        return _login_refused(settings, place)
    except LoginTokenError as error:
        return Diagnosis(f"{place} requires a token, and {error.args[0]}", error.certain)
    except UnsupportedSaslMechanismError:
        fault = f"does not support the mechanism {settings.kafka_sasl_mechanism}"
        return Diagnosis(f"{place} {fault}: check {PREFIX}KAFKA_SASL_MECHANISM", certain=True)
    except (KafkaError, OSError, TimeoutError, ValueError):
        return await _of_protocol(settings, host, port)
    if not answer.brokers and settings.kafka_sasl_mechanism == OAUTHBEARER:
        # aiokafka takes a broker's refusal of a token for a success (RFC 7628).
        return _login_refused(settings, place)
    return Diagnosis(
        f"{place} is Kafka and answers, but the cluster does not: check which addresses its "
        "brokers advertise (advertised.listeners), and their state"
    )


async def _of_protocol(settings: Settings, host: str, port: int) -> Diagnosis:
    """The connection ended without an answer: does the server speak TLS, and should it?"""
    place, protocol = f"{host}:{port}", settings.kafka_security_protocol
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        await _open(host, port, context)
        speaks_tls = True
    except ssl.SSLError as error:
        speaks_tls = "ALERT" in str(error)  # in TLS: it requires a client certificate
    except (OSError, TimeoutError):
        speaks_tls = False
    if speaks_tls != ("SSL" in protocol.split("_")):
        found = "TLS" if speaks_tls else "plain text"
        return Diagnosis(
            f"{place} speaks {found}: set {_PROTOCOL} to {_OTHER_PROTOCOL[protocol]}", speaks_tls
        )
    login = "SASL_SSL" if speaks_tls else "SASL_PLAINTEXT"
    if protocol != login:
        certificate = f", or give a client certificate ({PREFIX}KAFKA_SSL_CERTFILE)" * speaks_tls
        return Diagnosis(
            f"{place} ends the connection: if it is Kafka, it requires a login: set {_PROTOCOL} to "
            f"{login}{certificate}; if it is not, check the port"
        )
    return Diagnosis(
        f"{place} ends the connection at the login: check {_PROTOCOL}, and whether it is Kafka"
    )


def _login_refused(settings: Settings, place: str) -> Diagnosis:
    """The broker refuses the login: names the login and the settings that choose it."""
    if settings.kafka_sasl_mechanism == OAUTHBEARER:
        client = settings.kafka_sasl_oauth_client_id
        return Diagnosis(
            f"{place} refuses the token of {client!r}: check {PREFIX}KAFKA_SASL_OAUTH_SCOPE, "
            "_EXTENSIONS, and the issuer, audience and keys that the broker expects",
            certain=True,
        )
    return Diagnosis(
        f"{place} refuses the login of {settings.kafka_sasl_username!r} by "
        f"{settings.kafka_sasl_mechanism}: check {PREFIX}KAFKA_SASL_USERNAME, _PASSWORD and "
        "_MECHANISM",
        certain=True,
    )


async def _open(host: str, port: int, context: ssl.SSLContext | None = None) -> None:
    async with asyncio.timeout(_STEP_SECONDS):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    writer.close()
