"""Checks the needs of the process itself: the secret key, egress, and ports."""

from collections.abc import Iterator
from ipaddress import ip_network

from catalog.errors import SecretKeyError
from catalog.secrets import is_published, open_cipher
from connectors.errors import CertificatesError
from engine.cli.check.finding import Finding, bad, ok, warning
from engine.kafka.tracing import open_tracer
from engine.process.errors import PortInUseError, SettingsError
from engine.process.http_server import listen
from engine.process.settings import PREFIX, Settings
from engine.wiring.connector import open_caller

_PART = "process"


async def check_process(settings: Settings) -> list[Finding]:
    """Check them; ports are opened and closed again."""
    return [
        _secret(settings),
        *(await _egress(settings)),
        *(await _traces(settings)),
        *_ports(settings),
    ]


def _secret(settings: Settings) -> Finding:
    key = settings.secret_key
    if key is None:
        loss = "connectors' parameters can be neither stored nor used"
        return warning(_PART, "SECRET_KEY", f"not set: {loss}")
    try:
        open_cipher(key.get_secret_value())
    except SecretKeyError as error:
        return bad(_PART, "SECRET_KEY", str(error))
    if is_published(key.get_secret_value()):
        return warning(
            _PART, "SECRET_KEY", "the key that is published with this project: choose your own"
        )
    return ok(_PART, "SECRET_KEY", "set")


async def _egress(settings: Settings) -> list[Finding]:
    try:
        await open_caller(settings).close()
    except CertificatesError as error:
        return [bad(_PART, "egress", str(error))]
    networks = settings.connector_allow_networks
    if not networks:
        return [ok(_PART, "egress", "connectors lead to public addresses only")]
    opened = f"CONNECTOR_ALLOW_NETWORKS opens {', '.join(map(str, networks))}"
    everything = (ip_network("0.0.0.0/0"), ip_network("::/0"))
    result = warning if any(network in everything for network in networks) else ok
    return [result(_PART, "egress", opened)]


async def _traces(settings: Settings) -> list[Finding]:
    if settings.otel_endpoint is None:
        return []
    try:
        async with open_tracer(settings):
            return [ok(_PART, "OTEL_ENDPOINT", f"spans go to {settings.otel_endpoint}")]
    except SettingsError as error:
        return [bad(_PART, "OTEL_ENDPOINT", str(error))]


def _ports(settings: Settings) -> Iterator[Finding]:
    for name, host, port in (
        ("METRICS_PORT", settings.metrics_host, settings.metrics_port),
        ("API_PORT", settings.api_host, settings.api_port),
        ("API_METRICS_PORT", settings.api_metrics_host, settings.api_metrics_port),
    ):
        try:
            listen(host, port, setting=f"{PREFIX}{name}").close()
        except PortInUseError as error:
            yield bad(_PART, name, f"{error}; is the engine running already?")
        else:
            yield ok(_PART, name, f"{host}:{port} is free")
