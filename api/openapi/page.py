"""The documentation page: Swagger UI from the installed package, with no other site's files."""

from importlib.resources import as_file, files

from fastapi import APIRouter
from starlette.responses import FileResponse, HTMLResponse, RedirectResponse, Response

from api.errors import not_found

router = APIRouter(include_in_schema=False)
_FILES = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon.png": "image/png",
}
# Swagger UI styles its elements inline; its scripts all come from here.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {"content-security-policy": _POLICY}
_KEPT = {"cache-control": "public, max-age=86400"}
_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Proximity management interface</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" href="docs/favicon.png">
</head>
<body>
<div id="page"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  presets: [SwaggerUIBundle.presets.apis],
});
"""


@router.get("/")
async def entrance() -> Response:
    """Redirect a browser from the root to the page."""
    return RedirectResponse("docs")


@router.get("/docs")
async def page() -> Response:
    """The page itself."""
    return HTMLResponse(_PAGE, headers=_HEADERS)


@router.get("/docs/start.js")
async def start() -> Response:
    """The script that starts the page. A file of its own, so the page needs no inline script."""
    return Response(_START, media_type="text/javascript", headers=_HEADERS)


@router.get("/docs/{name}")
async def file(name: str) -> Response:
    """A file of Swagger UI."""
    if name not in _FILES:
        raise not_found("page")
    with as_file(files("fastapi_offline") / "static" / name) as path:
        return FileResponse(path, media_type=_FILES[name], headers=_HEADERS | _KEPT)
