"""Types of settings. Each checks its value, so that nothing is opened with an invalid one."""

import re
import socket
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, IPvAnyNetwork, SecretStr
from pydantic_core import PydanticCustomError
from pydantic_settings import NoDecode

from catalog.database_url import check_database_url
from catalog.redis_url import check_redis_url

_HIGHEST_PORT = 65535
_TOPIC_PREFIX = re.compile(r"[A-Za-z0-9._-]{0,200}", re.ASCII)
_DEFAULT_KAFKA_PORT = 9092


def bootstrap_addresses(servers: str) -> list[tuple[str, int]]:
    """Host and port of each of `servers`. Raises ValueError."""
    addresses = [_address(part) for part in _parts(servers)]
    if not addresses:
        raise ValueError("empty; accepted: host:port, comma-separated")
    return addresses


def _address(text: str) -> tuple[str, int]:
    """Host and port; the port is Kafka's by default. An IPv6 address with a port has brackets."""
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
    check_redis_url(value.get_secret_value())
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


def _check_token_url(url: str) -> str:
    """Raise ValueError if the URL cannot be a token endpoint."""
    accepted = "http:// or https://, host[:port][/path]; other settings name the client"
    try:
        parts = urlsplit(url)
        _ = parts.port
        (parts.hostname or "").encode("idna")
    except ValueError:
        raise ValueError(f"cannot be read; accepted: {accepted}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.fragment:
        raise ValueError(f"accepted: {accepted}")
    if "@" in parts.netloc or not url.isascii() or any(each <= " " for each in url):
        raise ValueError(f"accepted: {accepted}")
    return url


def _check_extensions(pairs: tuple[str, ...]) -> tuple[str, ...]:
    """Names and values must be as in RFC 7628; the name `auth` is reserved for the token."""
    for pair in pairs:
        name, _, value = pair.partition("=")
        if not re.fullmatch(r"[A-Za-z]+", name) or name == "auth":
            raise ValueError("accepted: name=value, comma-separated; a name consists of letters")
        if not re.fullmatch(r"[\x20-\x7e]+", value):
            raise ValueError(f"{name}: a value consists of printable characters")
    return pairs


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


def _split_networks(value: object) -> object:
    return tuple(map(_network, _parts(value))) if isinstance(value, str) else value


def _network(text: str) -> str:
    """The text, if it is a network. The ValueError suggests the network that is probably meant."""
    try:
        ip_network(text)
    except ValueError:
        try:
            meant = f"; {ip_network(text, strict=False)}?"
        except ValueError:
            meant = ""
        accepted = "accepted: networks such as 10.0.0.0/8, comma-separated"
        raise ValueError(f"{text[:80]!r} is no network{meant}; {accepted}") from None
    return text


def _check_topic_prefix(prefix: str) -> str:
    if not _TOPIC_PREFIX.fullmatch(prefix):
        raise ValueError(f"{prefix[:80]!r}: Kafka takes letters, digits, dots, _ and -, up to 200")
    return prefix


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def setting(default: Any, meaning: str, **bounds: Any) -> Any:
    """A field of Settings."""
    return Field(default, description=meaning, **bounds)


def refused(text: str) -> PydanticCustomError:
    """The error of settings that do not go together; `text` is the whole message."""
    return PydanticCustomError("setting", "{text}", {"text": text})


Seconds = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]
Port = Annotated[int, Field(ge=0, le=65535)]
BootstrapServers = Annotated[str, AfterValidator(_check_bootstrap_servers)]
RedisUrl = Annotated[SecretStr, AfterValidator(_check_redis_url)]
EndpointUrl = Annotated[str, AfterValidator(_check_endpoint)]
RegistryUrl = Annotated[SecretStr, AfterValidator(_check_registry_url)]
TokenUrl = Annotated[str, AfterValidator(_check_token_url)]
DatabaseUrl = Annotated[SecretStr, AfterValidator(_check_database_url)]
ReadableFile = Annotated[Path, AfterValidator(_check_readable)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], NoDecode, BeforeValidator(_split_networks)]
TopicPrefix = Annotated[str, AfterValidator(_check_topic_prefix)]
Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
Extensions = Annotated[Texts, AfterValidator(_check_extensions)]
