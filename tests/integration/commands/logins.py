"""Valid and invalid logins at Kafka, as settings of a command."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there by name
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.integration.commands.proximity import Proximity, detection
from tests.servers.kafka.secured import LIMITED, PASSWORD, USER
from tests.servers.token_endpoint import CLIENT, SECRET, TokenEndpointService

PREFIX = "PROXIMITY_KAFKA_"


def publish(
    directory: Path, where: str, topic_prefix: str, **settings: str
) -> "tuple[int, str, str]":
    more = {PREFIX + name.upper(): value for name, value in settings.items()}
    command = Proximity(directory, where, topic_prefix, **more)
    file = command.write("one.jsonl", detection("a"))
    done = command("publish", file)
    return done.returncode, done.stdout, done.stderr


def login(password: str = PASSWORD) -> dict[str, str]:
    return {"sasl_username": USER, "sasl_password": password}


def by_token(endpoint: TokenEndpointService, secret: str = SECRET) -> dict[str, str]:
    return {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_url": endpoint.url,
        "sasl_oauth_client_id": CLIENT,
        "sasl_oauth_client_secret": secret,
        "sasl_oauth_extensions": "pool=one",
    }


def allow(
    admin: AdminClient,
    name: str,
    *operations: AclOperation,
    kind: ResourceType = ResourceType.TOPIC,
    by: ResourcePatternType = ResourcePatternType.LITERAL,
) -> None:
    """Grant operations to the limited login."""
    pattern = (kind, name, by)
    rules = [
        AclBinding(*pattern, f"User:{LIMITED}", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]
    for made in admin.create_acls(rules).values():
        made.result(30)


@contextmanager
def http_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def listening() -> Iterator[str]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"
