"""Serves scripts and styles from the package, under URLs that change with their contents."""

import hashlib
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from api.console.errors import RefusedError
from api.console.session import PATH

_PLACES = {
    "console.css": ("static", "text/css"),
    "console.js": ("static", "text/javascript"),
    "live.js": ("static", "text/javascript"),
    "plan.js": ("static", "text/javascript"),
    "plots.js": ("static", "text/javascript"),
    "icon.svg": ("static", "image/svg+xml"),
    "htmx.min.js": ("vendor/htmx", "text/javascript"),
    "uPlot.iife.min.js": ("vendor/uplot", "text/javascript"),
    "uPlot.min.css": ("vendor/uplot", "text/css"),
}


class Asset(NamedTuple):
    """A file, ready to be served."""

    content: bytes
    media_type: str
    digest: str


@cache
def load_asset(name: str) -> Asset:
    """The file of this name. Raises KeyError."""
    folder, media_type = _PLACES[name]
    content = files("api.console").joinpath(folder, name).read_bytes()
    return Asset(content, media_type, hashlib.sha256(content).hexdigest()[:12])


def asset_address(name: str) -> str:
    """The URL of the file, with its digest."""
    return f"{PATH}/static/{name}?{load_asset(name).digest}"


async def serve_asset(request: Request) -> Response:
    """Serve a file. Under the URL with its digest it may be cached for ever."""
    try:
        asset = load_asset(request.path_params["name"])
    except KeyError:
        raise RefusedError(HTTPStatus.NOT_FOUND, "no such file") from None
    is_exact = request.url.query == asset.digest
    caching = "public, max-age=31536000, immutable" if is_exact else "no-cache"
    return Response(asset.content, media_type=asset.media_type, headers={"cache-control": caching})
