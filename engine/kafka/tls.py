"""The TLS side of a connection to Kafka; a file that cannot be used is named by its setting."""

import ssl

from engine.process.settings import PREFIX, Settings, SettingsError


def kafka_tls(settings: Settings) -> ssl.SSLContext:
    """Verifies the brokers, host name included. Raises SettingsError."""
    try:
        context = ssl.create_default_context(cafile=settings.kafka_ssl_cafile)
    except (OSError, ValueError):
        raise SettingsError(
            f"{PREFIX}KAFKA_SSL_CAFILE {settings.kafka_ssl_cafile}: holds no certificate in PEM"
        ) from None
    if settings.kafka_ssl_certfile is not None:
        _load_client(context, settings)
    return context


def _load_client(context: ssl.SSLContext, settings: Settings) -> None:
    certificate, key = settings.kafka_ssl_certfile, settings.kafka_ssl_keyfile
    given = settings.kafka_ssl_password
    # Without a password OpenSSL would ask the terminal for one.
    password = "" if given is None else given.get_secret_value()
    try:
        context.load_cert_chain(str(certificate), None if key is None else str(key), password)
    except (OSError, ValueError) as error:
        wrong = isinstance(error, ssl.SSLError) and "KEY_VALUES_MISMATCH" in str(error)
        why = (
            "the key is not that of the certificate"
            if wrong
            else "no certificate with its key in PEM, or KAFKA_SSL_PASSWORD is not the key's"
        )
        files = f"{certificate}" if key is None else f"{certificate} and KAFKA_SSL_KEYFILE {key}"
        raise SettingsError(f"{PREFIX}KAFKA_SSL_CERTFILE {files}: {why}") from None
