"""One bounded HTTP GET to a schema registry."""

import base64
from pathlib import Path
from urllib.parse import unquote, urlsplit

from engine.kafka.errors import UnreadableSchemaError
from engine.process.bounded_http import BoundedAddress, BoundedAnswer
from engine.process.errors import AnswerTooLongError, NoHttpError, SchemaRegistryError

_ACCEPT = b"application/vnd.schemaregistry.v1+json, application/json"


class RegistryAddress:
    """The address of a registry with its login, and the limits of a request to it.

    `deadline` (seconds) is for a whole request, `most_bytes` for the body of its answer.
    """

    def __init__(
        self, url: str, *, ca_file: Path | None, deadline: float, most_bytes: int = 1024 * 1024
    ) -> None:
        parts = urlsplit(url)
        self._address = BoundedAddress(
            url, ca_file=ca_file, deadline=deadline, most_bytes=most_bytes
        )
        self._path = parts.path.rstrip("/")
        self._headers = [(b"accept", _ACCEPT)]
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers.append((b"authorization", b"Basic " + base64.b64encode(user.encode())))

    async def get(self, target: str) -> BoundedAnswer:
        """Send a GET request. Returns the answer.

        Raises OSError, TimeoutError, SchemaRegistryError, and UnreadableSchemaError for an answer
        that is too long.
        """
        try:
            return await self._address.fetch(f"{self._path}{target}", self._headers)
        except NoHttpError as error:
            raise SchemaRegistryError(f"the schema registry {error}") from error
        except AnswerTooLongError as error:
            raise UnreadableSchemaError(str(error)) from error
