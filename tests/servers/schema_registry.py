"""A schema registry: Confluent's REST interface, as far as consumers use it, over real HTTP."""

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

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


class SchemaRegistryService(HttpService):
    """`schemas` by id, `subjects` by subject and version; `authorization` if it is required."""

    def __init__(self, schemas: Mapping[int, Registered] = {}) -> None:
        super().__init__(self.reply)
        self.schemas = dict(schemas)
        self.subjects: dict[tuple[str, int], Registered] = {}
        self.authorization: str | None = None

    @property
    def requested(self) -> list[str]:
        """The paths of all requests, in their order."""
        return [received.path for received in self.received]

    def address(self, user: str = "") -> str:
        """For SCHEMA_REGISTRY_URL."""
        return f"{self.scheme}://{user}127.0.0.1:{self.port}"

    async def reply(self, received: ReceivedRequest, writer: asyncio.StreamWriter) -> None:
        """As a registry does."""
        await self._answer(received)(received, writer)

    def _answer(self, received: ReceivedRequest) -> Answer:
        if self.authorization not in (None, received.headers.get("authorization")):
            return replying(401, {"error_code": 401, "message": "Unauthorized"})
        found = self._found(received.path)
        if found is None:
            return replying(404, _NOT_FOUND)
        kind = "application/vnd.schemaregistry.v1+json"
        return replying(200, found.answer(dict(received.query).get("format")), content_type=kind)

    def _found(self, path: str) -> Registered | None:
        match [unquote(part) for part in path.split("/")[1:]]:
            case ["schemas", "ids", id_]:
                return self.schemas.get(int(id_))
            case ["subjects", subject, "versions", version]:
                return self.subjects.get((subject, int(version)))
        return None
