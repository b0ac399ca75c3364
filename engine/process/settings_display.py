"""Shows settings in logs and on screens, without secrets."""

from urllib.parse import parse_qsl, urlencode, urlsplit

from pydantic import SecretStr

from engine.process.settings import Settings

HIDDEN = "********"
_SECRET_PARAMETERS = ("password", "sslpassword", "ssl_password", "sentinel_password")


def shown(value: object) -> str:
    """The text for a setting's value: only that a secret is set, and a URL without its password."""
    if isinstance(value, SecretStr):
        secret = value.get_secret_value()
        return shown_url(secret) if "://" in secret else HIDDEN * bool(secret)
    if isinstance(value, tuple):
        return ",".join(str(part) for part in value)
    return "" if value is None else str(value)


def shown_url(url: str) -> str:
    """The URL without its password. A text that is no valid URL is hidden whole."""
    try:
        parts = urlsplit(url)
        for place in parts.netloc.rpartition("@")[2].split(","):  # several behind Sentinel
            _ = urlsplit(f"//{place}").port
        query = parse_qsl(parts.query, keep_blank_values=True)
    except ValueError:
        return HIDDEN
    if "@" in parts.path or "@" in parts.query or "@" in parts.fragment:
        return HIDDEN  # for example a password with a slash: its end is not certain
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _password = user.partition(":")
    # Without a colon the user may be a password in the wrong place.
    shown_user = f"{name}:{HIDDEN}" if colon else HIDDEN
    place = f"{shown_user}@{host}" if at else host
    written = url.replace(parts.netloc, place, 1) if at else url
    for key, given in query:
        if key in _SECRET_PARAMETERS and given:
            written = written.partition("?")[0] + "?" + _without(query)
            break
    return written


def _without(query: list[tuple[str, str]]) -> str:
    hidden = [(key, HIDDEN if key in _SECRET_PARAMETERS else given) for key, given in query]
    return urlencode(hidden, safe="*/,:")


def shown_servers(settings: Settings) -> dict[str, str]:
    """The servers of a process, for its first log line."""
    security = settings.kafka_security_protocol
    kafka = settings.kafka_bootstrap_servers
    return {
        "kafka": kafka if security == "PLAINTEXT" else f"{kafka} ({security})",
        "redis": shown(settings.redis_url),
        "database": shown(settings.database_url),
    }
