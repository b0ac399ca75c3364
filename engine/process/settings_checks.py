"""Types of settings that check their value, so that nothing is opened with one that cannot work."""

import socket
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, SecretStr
from pydantic_settings import NoDecode

from catalog.database_url import check_database_url
from catalog.redis_sentinel import read_sentinel_url

_REDIS_SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "unix")
_SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")
_HIGHEST_PORT = 65535
_DEFAULT_KAFKA_PORT = 9092


def bootstrap_addresses(servers: str) -> list[tuple[str, int]]:
    """Host and port of each of `servers`. Raises ValueError."""
    addresses = [_address(part) for part in _parts(servers)]
    if not addresses:
        raise ValueError("empty; accepted: host:port, comma-separated")
    return addresses


def _address(text: str) -> tuple[str, int]:
    """A host alone has Kafka's usual port; an IPv6 address with a port stands in brackets."""
    fault = ValueError(f"{text[:80]!r} is no address; accepted: host:port, comma-separated")
    if "/" in text or "@" in text:
        raise fault
    if _is_ipv6(text):
        return text, _DEFAULT_KAFKA_PORT
    host, colon, port = text.rpartition(":") if not text.endswith("]") else (text, "", "")
    if not colon:
        host, port = text, str(_DEFAULT_KAFKA_PORT)
    bare = host.removeprefix("[").removesuffix("]")
    if not bare or (":" in bare and not _is_ipv6(bare)):
        raise fault
    if not (port.isascii() and port.isdigit() and 0 < int(port) <= _HIGHEST_PORT):
        raise ValueError(f"{text[:80]!r}: a port is a number from 1 to {_HIGHEST_PORT}")
    return bare, int(port)


def _is_ipv6(text: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, text)
    except OSError:
        return False
    return True


def _check_bootstrap_servers(servers: str) -> str:
    bootstrap_addresses(servers)
    return ",".join(_parts(servers))


def _check_endpoint(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError("accepted: http://host:port or https://host:port, without a password")
    return url.rstrip("/")


def _check_redis_url(value: SecretStr) -> SecretStr:
    """Raise ValueError if the URL cannot work; the message never holds it."""
    accepted = ", ".join(f"{scheme}://" for scheme in (*_REDIS_SCHEMES, *_SENTINEL_SCHEMES))
    try:
        url = value.get_secret_value()
        parts = urlsplit(url)
        if parts.scheme in _SENTINEL_SCHEMES:
            read_sentinel_url(url)
            return value
        _ = parts.port
    except ValueError:
        raise ValueError(
            f"cannot be read; accepted: [user:password@]host[:port] behind {accepted}; behind the "
            "last two [user:password@]host:port,host:port/service"
        ) from None
    if parts.scheme not in _REDIS_SCHEMES:
        raise ValueError(f"begins with none of {accepted}")
    return value


def _check_registry_url(value: SecretStr) -> SecretStr:
    """Raise ValueError if the URL cannot work; the message never holds it."""
    accepted = "http:// or https://, [user:password@]host[:port][/path]"
    try:
        parts = urlsplit(value.get_secret_value())
        _ = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise ValueError(f"cannot be read; accepted: {accepted}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"accepted: {accepted}")
    if not f"{parts.netloc}{parts.path}".isascii() or " " in f"{parts.netloc}{parts.path}":
        raise ValueError(f"has characters that must be escaped; accepted: {accepted}")
    return value


def _check_database_url(value: SecretStr) -> SecretStr:
    check_database_url(value.get_secret_value())
    return value


def _check_readable(path: Path) -> Path:
    try:
        with path.open("rb"):
            return path
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}") from None


def _split(value: object) -> object:
    return tuple(_parts(value)) if isinstance(value, str) else value


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def setting(default: Any, meaning: str, **bounds: Any) -> Any:
    """A field of Settings."""
    return Field(default, description=meaning, **bounds)


Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65535)]
BootstrapServers = Annotated[str, AfterValidator(_check_bootstrap_servers)]
RedisUrl = Annotated[SecretStr, AfterValidator(_check_redis_url)]
EndpointUrl = Annotated[str, AfterValidator(_check_endpoint)]
RegistryUrl = Annotated[SecretStr, AfterValidator(_check_registry_url)]
DatabaseUrl = Annotated[SecretStr, AfterValidator(_check_database_url)]
ReadableFile = Annotated[Path, AfterValidator(_check_readable)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_split)]
Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]


def kafka_security_fault(protocol: str, given: dict[str, object]) -> tuple[str, str] | None:
    """The setting that cannot work with the others, and why. `given` by name: those that were
    set, without a prefix, and nothing for those that were not."""
    tls, sasl = "SSL" in protocol.split("_"), protocol.startswith("SASL")
    of_sasl = [name for name in given if name.startswith("kafka_sasl_")]
    of_tls = [name for name in given if name.startswith("kafka_ssl_")]
    if not sasl and of_sasl:
        also = "SASL_SSL" if tls or of_tls else "SASL_SSL or SASL_PLAINTEXT"
        return of_sasl[
            0
        ], f"has no effect with KAFKA_SECURITY_PROTOCOL {protocol}: set it to {also}"
    if not tls and of_tls:
        also = "SASL_SSL" if sasl else "SSL or SASL_SSL"
        return of_tls[0], f"has no effect with KAFKA_SECURITY_PROTOCOL {protocol}: set it to {also}"
    for name in ("kafka_sasl_username", "kafka_sasl_password"):
        if sasl and name not in given:
            return name, f"is required by KAFKA_SECURITY_PROTOCOL {protocol}"
    if "kafka_ssl_keyfile" in given and "kafka_ssl_certfile" not in given:
        return "kafka_ssl_certfile", "is required beside KAFKA_SSL_KEYFILE"
    return None
