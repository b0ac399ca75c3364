"""Generated urls of connectors lead to other people's servers; a closed local port is used."""

import json
import os
from typing import Any

import httpx
import schemathesis


@schemathesis.hook
def before_call(_context: Any, case: Any, _kwargs: Any) -> None:
    """Set the connector that is about to be tested."""
    if case.path == "/v2/connector/test":
        body = {"name": "c", "url": "http://127.0.0.1:9/", "method": "POST", "auth": "header"}
        httpx.put(
            f"{os.environ['TRIED_URL']}/v2/connector",
            json=body | {"parameters": "[]"},
            headers=json.loads(os.environ["TRIED_HEADERS"]),
        ).raise_for_status()
