"""Opens what a connector authenticates with: parameters and secret, encrypted until here."""

from functools import lru_cache

import msgspec

from catalog.secrets import MISSING_KEY, Cipher, DecryptionError
from connectors.errors import EndpointError
from connectors.model import Endpoint, HttpMethod, ParameterPlace, Parameters
from engine.kafka.messages import ConnectorEndpoint

_REMEMBERED = 4096


class _Parameter(msgspec.Struct):
    key: str
    value: str


_decode = msgspec.json.Decoder(list[_Parameter]).decode


class EndpointDecryptor:
    """Makes an Endpoint of a message's. Without a cipher only what holds no secret opens.

    Remembers what it opened, for decrypting costs more than the rest of a call's preparation.
    """

    def __init__(self, cipher: Cipher | None) -> None:
        self._cipher = cipher
        self._open = lru_cache(maxsize=_REMEMBERED)(self._decrypt)

    def open(self, endpoint: ConnectorEndpoint) -> Endpoint:
        """Ready to call. Raises EndpointError."""
        try:
            method, place = (
                HttpMethod(endpoint.method.upper()),
                ParameterPlace(endpoint.auth.lower()),
            )
        except ValueError:
            raise EndpointError("the connector's method or auth is unknown") from None
        return Endpoint(
            url=endpoint.url,
            method=method,
            place=place,
            parameters=self._parameters(endpoint.parameters),
            secret=self._open(endpoint.secret) if endpoint.secret else None,
        )

    def _parameters(self, token: str | None) -> Parameters:
        if not token:
            return ()
        try:
            return tuple((each.key, each.value) for each in _decode(self._open(token)))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise EndpointError(
                "the connector's parameters are no list of keys and values"
            ) from None

    def _decrypt(self, token: str) -> str:
        if self._cipher is None:
            raise EndpointError(MISSING_KEY)
        try:
            return self._cipher.decrypt(token)
        except DecryptionError as error:
            raise EndpointError(str(error)) from None
