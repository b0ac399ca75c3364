"""The floor: a FastAPI route that returns given bytes, served as the product is."""

import asyncio
import contextlib
import sys
from collections.abc import Iterator

import uvicorn
from fastapi import FastAPI, Response

from engine.process.http_server import listen


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def _serve(port: int, body: bytes) -> None:
    app = FastAPI()

    @app.get("/v2/region/{number}")
    async def answer(number: str) -> Response:  # noqa: ARG001  # part of the path
        return Response(body, media_type="application/json")

    listener = listen("127.0.0.1", port, setting="another port")
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False
    )
    await _Server(config).serve(sockets=[listener])


def main() -> None:
    """Arguments: port. The bytes are read from standard input."""
    work = _serve(int(sys.argv[1]), sys.stdin.buffer.read())
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(work)


if __name__ == "__main__":
    main()
