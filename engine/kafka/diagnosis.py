"""Finds out why Kafka cannot be reached, by trying each bootstrap address once more.

Commands show the result to their user.
"""

import asyncio
import concurrent.futures
import socket
import ssl
import struct
from typing import Any, NamedTuple

from aiokafka.conn import create_conn
from aiokafka.errors import (
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from engine.kafka.broker_connection import has_accepted_login
from engine.kafka.client_options import (
    OAUTHBEARER,
    connection_options,
    single_connection_options,
)
from engine.kafka.errors import LoginTokenError
from engine.process.settings import PREFIX, Settings
from engine.process.settings_checks import bootstrap_addresses

_ADDRESSES = 3
_STEP_SECONDS = 3.0
_WHOLE_SECONDS = 12.0
_READ = 512
_PROTOCOL = f"{PREFIX}KAFKA_SECURITY_PROTOCOL"
# ApiVersions 0 from the client "probe": every broker answers this request, also before a login.
_CORRELATION = 7
_API_VERSIONS = struct.pack(">hhih5s", 18, 0, _CORRELATION, 5, b"probe")
_METADATA = struct.pack(">hhih5si", 3, 0, _CORRELATION, 5, b"probe", 0)
_HTTP = b"GET / HTTP/1.0\r\n\r\n"
# The answer of brokers to plain text on a TLS port.
_TLS_ALERT = b"\x15\x03"


class Diagnosis(NamedTuple):
    """The fault and the setting to check, on one line.

    `certain`: the answer of a server shows the fault, so waiting does not help. (A server that does
    not answer may be busy or just starting.)
    """

    message: str
    certain: bool


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
            found = await asyncio.gather(
                *(_Address(settings, *each).diagnose() for each in addresses)
            )
    except TimeoutError:
        return None
    message = "; ".join(dict.fromkeys(each.message for each in found))
    return Diagnosis(message, all(each.certain for each in found))


def _certain(message: str) -> Diagnosis:
    return Diagnosis(message, certain=True)


def _likely(message: str) -> Diagnosis:
    return Diagnosis(message, certain=False)


class _Address:
    """One bootstrap address. Tries the protocols that may show the fault."""

    def __init__(self, settings: Settings, host: str, port: int) -> None:
        self._settings = settings
        self._host = host
        self._port = port
        self._place = f"{host}:{port}"

    async def diagnose(self) -> Diagnosis:
        """Diagnose this address, in a few steps of at most 3 s each."""
        place = self._place
        try:
            await self._connect()
        except TimeoutError:
            return _likely(f"{place} does not answer: check the address, and firewalls on the way")
        except socket.gaierror:
            setting = f"{PREFIX}KAFKA_BOOTSTRAP_SERVERS"
            return _likely(f"the host name {self._host} does not resolve: check {setting}")
        except OSError as error:
            cause = "refuses connections" if isinstance(error, ConnectionRefusedError) else "fails"
            return _likely(f"{place} {cause}: check the port, and whether Kafka is running there")
        if "SSL" in self._settings.kafka_security_protocol.split("_"):
            return await self._over_tls()
        return await self._in_plain()

    async def _in_plain(self) -> Diagnosis:
        place = self._place
        answer = await self._send_kafka(_API_VERSIONS)
        if not _is_kafka(answer):
            if answer.startswith(_TLS_ALERT) or await self._speaks_tls():
                return _certain(f"{place} speaks TLS: set {_PROTOCOL} to SSL or SASL_SSL")
            return await self._not_kafka(answer)
        if self._settings.kafka_security_protocol != "PLAINTEXT":
            return await self._log_in()
        if not await self._send_kafka(_METADATA):
            return _likely(
                f"{place} is Kafka and requires a login: set {_PROTOCOL} to SASL_PLAINTEXT"
            )
        return self._without_cluster()

    async def _over_tls(self) -> Diagnosis:
        try:
            await self._connect(connection_options(self._settings)["ssl_context"])
        except ssl.SSLCertVerificationError as error:
            authority = self._settings.kafka_ssl_cafile or "the system's authorities"
            reason = error.verify_message or str(error)
            return _certain(
                f"the certificate of {self._place} is refused ({reason}): check "
                f"{PREFIX}KAFKA_SSL_CAFILE ({authority}) and the host name in the address"
            )
        except (OSError, TimeoutError):
            return await self._tls_fails()
        return await self._log_in()

    async def _tls_fails(self) -> Diagnosis:
        place = self._place
        answer = await self._send_kafka(_API_VERSIONS)
        if _is_kafka(answer):
            login = self._settings.kafka_security_protocol.startswith("SASL")
            other = "SASL_PLAINTEXT" if login else "PLAINTEXT or SASL_PLAINTEXT"
            return _certain(f"{place} speaks plain text: set {_PROTOCOL} to {other}")
        if not await self._speaks_tls():
            return await self._not_kafka(answer)
        return _likely(
            f"{place} ends the TLS handshake: it may require a client certificate "
            f"({PREFIX}KAFKA_SSL_CERTFILE)"
        )

    async def _log_in(self) -> Diagnosis:
        """Log in with a connection of aiokafka, which raises the error; its clients only log it."""
        place, options = self._place, single_connection_options(self._settings)
        options["request_timeout_ms"] = int(_STEP_SECONDS * 1000)
        mechanism = self._settings.kafka_sasl_mechanism
        try:
            connection = await create_conn(self._host, self._port, **options)
            try:
                if mechanism == OAUTHBEARER and not await has_accepted_login(connection):
                    return self._login_refused()
            finally:
                connection.close()
        except SaslAuthenticationFailed:
            return self._login_refused()
        except LoginTokenError as error:
            return Diagnosis(f"{place} requires a token, and {error.args[0]}", error.certain)
        except UnsupportedSaslMechanismError:
            setting = f"{PREFIX}KAFKA_SASL_MECHANISM"
            return _certain(f"{place} does not support the mechanism {mechanism}: check {setting}")
        except (KafkaError, OSError, TimeoutError, ValueError) as error:
            if self._settings.kafka_security_protocol.startswith("SASL"):
                return _likely(
                    f"{place} is Kafka and closes the connection at the login: check {_PROTOCOL}"
                )
            return _likely(
                f"{place} sends an invalid answer ({type(error).__name__}): is it Kafka?"
            )
        try:
            return await self._after_login(connection)
        finally:
            connection.close()

    async def _after_login(self, connection: Any) -> Diagnosis:
        """Send the first request for which a broker may require a login.

        Brokers answer ApiVersions to everybody, but close the connection at the next request of a
        client that has not logged in but must.
        """
        try:
            async with asyncio.timeout(_STEP_SECONDS):
                await connection.send(MetadataRequest([]))
        except (KafkaError, OSError, TimeoutError):
            if self._settings.kafka_security_protocol == "SSL":
                return _likely(
                    f"{self._place} is Kafka and requires a login: set {_PROTOCOL} to SASL_SSL"
                )
        return self._without_cluster()

    def _login_refused(self) -> Diagnosis:
        """The broker refuses the login: names the login and the settings that choose it."""
        settings, place = self._settings, self._place
        if settings.kafka_sasl_mechanism == OAUTHBEARER:
            client = settings.kafka_sasl_oauth_client_id
            return _certain(
                f"{place} refuses the token of {client!r}: check {PREFIX}KAFKA_SASL_OAUTH_SCOPE, "
                "_EXTENSIONS, and the issuer, audience and keys that the broker expects"
            )
        return _certain(
            f"{place} refuses the login of {settings.kafka_sasl_username!r} by "
            f"{settings.kafka_sasl_mechanism}: check {PREFIX}KAFKA_SASL_USERNAME, _PASSWORD and "
            "_MECHANISM"
        )

    def _without_cluster(self) -> Diagnosis:
        """This address works, so an advertised address is wrong, or the brokers are overloaded."""
        return _likely(
            f"{self._place} is Kafka and answers, but the cluster does not: check which "
            "addresses its brokers advertise (advertised.listeners), and their state"
        )

    async def _not_kafka(self, answer: bytes) -> Diagnosis:
        if (answer or await self._send(_HTTP)).startswith(b"HTTP/"):
            return _certain(f"{self._place} is an HTTP server, not Kafka: check the port")
        symptom = (
            "its answer is not Kafka's" if answer else "no answer, or the connection is closed"
        )
        return _likely(f"{self._place} is not Kafka ({symptom}): check the port")

    async def _speaks_tls(self) -> bool:
        """Whether the server speaks TLS, with any certificate."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            await self._connect(context)
        except ssl.SSLError as error:
            # The server answers in TLS, and requires a client certificate.
            return "ALERT" in str(error)
        except (OSError, TimeoutError):
            return False
        return True

    async def _connect(self, context: ssl.SSLContext | None = None) -> None:
        async with asyncio.timeout(_STEP_SECONDS):
            _, writer = await asyncio.open_connection(self._host, self._port, ssl=context)
        writer.close()

    async def _send_kafka(self, request: bytes) -> bytes:
        return await self._send(struct.pack(">i", len(request)) + request)

    async def _send(self, request: bytes) -> bytes:
        """The first bytes of the answer; empty if there is no answer."""
        try:
            async with asyncio.timeout(_STEP_SECONDS):
                reader, writer = await asyncio.open_connection(self._host, self._port)
                try:
                    writer.write(request)
                    return await reader.read(_READ)
                finally:
                    writer.close()
        except (OSError, TimeoutError):
            return b""


def _is_kafka(answer: bytes) -> bool:
    """Whether the answer is a length followed by the number of the request."""
    return len(answer) >= 8 and struct.unpack(">i", answer[4:8])[0] == _CORRELATION
