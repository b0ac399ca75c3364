"""A schema registry: Confluent's REST interface, as far as consumers use it, over real HTTP."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.http_service import Answer, HttpService, ReceivedRequest, replying

_NOT_FOUND = {"error_code": 40403, "message": "Schema not found"}


@dataclass(frozen=True)
class Registered:
    """A schema. `serialized` is what ?format=serialized gives of a Protobuf file."""

    kind: str
    text: str
    serialized: bytes | None = None
    references: tuple[tuple[str, str, int], ...] = ()  # name, subject, version

    def answer(self, form: str | None) -> dict[str, Any]:
        """As the registry says it; AVRO goes unsaid."""
        text = self.text
        if form == "serialized" and self.serialized is not None:
            text = base64.b64encode(self.serialized).decode()
        answer: dict[str, Any] = {"schema": text}
        if self.kind != "AVRO":
            answer["schemaType"] = self.kind
        if self.references:
            names = ("name", "subject", "version")
            answer["references"] = [dict(zip(names, each, strict=True)) for each in self.references]
        return answer


@dataclass
class SchemaRegistryService:
    """`schemas` by id, `subjects` by subject and version. `instead` answers when it is set."""

    schemas: dict[int, Registered] = field(default_factory=dict)
    subjects: dict[tuple[str, int], Registered] = field(default_factory=dict)
    instead: Answer | None = None
    authorization: str | None = None
    service: HttpService = field(init=False)

    def __post_init__(self) -> None:
        self.service = HttpService(self._answer)

    @property
    def requested(self) -> list[str]:
        """The paths of all requests, in their order."""
        return [received.path for received in self.service.received]

    def url(self, user: str = "") -> str:
        """For SCHEMA_REGISTRY_URL."""
        return f"{self.service.scheme}://{user}127.0.0.1:{self.service.port}"

    async def _answer(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        await (self.instead or self._reply(received))(received, writer)

    def _reply(self, received: ReceivedRequest) -> Answer:
        if self.authorization not in (None, received.headers.get("authorization")):
            return replying(401, {"error_code": 401, "message": "Unauthorized"})
        found = self._found(urlsplit(received.target).path)
        if found is None:
            return replying(404, _NOT_FOUND)
        form = parse_qs(urlsplit(received.target).query).get("format", [None])[0]
        kind = "application/vnd.schemaregistry.v1+json"
        return replying(200, json.dumps(found.answer(form)).encode(), content_type=kind)

    def _found(self, path: str) -> Registered | None:
        match [unquote(part) for part in path.split("/")[1:]]:
            case ["schemas", "ids", id_]:
                return self.schemas.get(int(id_))
            case ["subjects", subject, "versions", version]:
                return self.subjects.get((subject, int(version)))
        return None


@asynccontextmanager
async def schema_registry(
    schemas: Mapping[int, Registered] = {}, **options: Any
) -> AsyncIterator[SchemaRegistryService]:
    """A registry that runs within the context."""
    registry = SchemaRegistryService(dict(schemas))
    async with registry.service.running(**options):
        yield registry
