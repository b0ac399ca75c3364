"""From settings to the options that every aiokafka client takes. Nothing is opened here."""

import ssl
from typing import Any

from engine.kafka.token_provider import token_provider
from engine.process.errors import SettingsError
from engine.process.settings import PREFIX, Settings

CLIENT_ID = "proximity-engine"
OAUTHBEARER = "OAUTHBEARER"
_METADATA_MS = 4000


def connection_options(settings: Settings) -> dict[str, Any]:
    """Addresses, deadlines and credentials for consumer, producer and admin alike."""
    options: dict[str, Any] = {
        "bootstrap_servers": settings.kafka_bootstrap_servers,
        "client_id": CLIENT_ID,
        "request_timeout_ms": int(settings.kafka_request_timeout * 1000),
        # Else there are ten attempts a second, each with a log line, while a broker is down.
        "retry_backoff_ms": 500,
        # New partitions are noticed within this time, and have an owner a few seconds later.
        "metadata_max_age_ms": _METADATA_MS,
        "security_protocol": settings.kafka_security_protocol,
    }
    if "SSL" in settings.kafka_security_protocol:
        options["ssl_context"] = kafka_tls(settings)
    if settings.kafka_security_protocol.startswith("SASL"):
        options |= _login(settings)
    return options


def _login(settings: Settings) -> dict[str, Any]:
    mechanism = settings.kafka_sasl_mechanism
    if mechanism == OAUTHBEARER:
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": token_provider(settings)}
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": settings.kafka_sasl_username,
        "sasl_plain_password": _secret(settings.kafka_sasl_password),
    }


def single_connection_options(settings: Settings) -> dict[str, Any]:
    """The options for one connection, whose address is given separately."""
    of_clients = ("bootstrap_servers", "retry_backoff_ms", "metadata_max_age_ms")
    options = connection_options(settings)
    return {name: value for name, value in options.items() if name not in of_clients}


def _secret(value: Any) -> str | None:
    return None if value is None else str(value.get_secret_value())


def kafka_tls(settings: Settings) -> ssl.SSLContext:
    """Verifies the brokers, host name included. Raises SettingsError."""
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ssl_cafile)
    except (OSError, ValueError):
        raise SettingsError(
            f"{PREFIX}KAFKA_SSL_CAFILE {settings.kafka_ssl_cafile}: contains no certificate in PEM"
        ) from None
    if settings.kafka_ssl_certfile is not None:
        _load_client(context, settings)
    return context


def _load_client(context: ssl.SSLContext, settings: Settings) -> None:
    certificate, key = settings.kafka_ssl_certfile, settings.kafka_ssl_keyfile
    given = settings.kafka_ssl_password
    # Without a password OpenSSL would read one from the terminal.
    password = "" if given is None else given.get_secret_value()
    try:
        context.load_cert_chain(str(certificate), None if key is None else str(key), password)
    except (OSError, ValueError) as error:
        wrong = isinstance(error, ssl.SSLError) and "KEY_VALUES_MISMATCH" in str(error)
        reason = (
            "the key is not that of the certificate"
            if wrong
            else "no certificate with its key in PEM, or KAFKA_SSL_PASSWORD is not the key's"
        )
        files = f"{certificate}" if key is None else f"{certificate} and KAFKA_SSL_KEYFILE {key}"
        raise SettingsError(f"{PREFIX}KAFKA_SSL_CERTFILE {files}: {reason}") from None
