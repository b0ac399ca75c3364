"""The metrics port of several workers: one page with the metrics of all.

Each series gets the label `worker`, because not every metric can be summed: a gauge belongs to its
process, and a counter begins and ends with it (decision 0103).
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from engine.process.bounded_http import BoundedAddress, BoundedAnswer
from engine.process.errors import BoundedHttpError
from engine.process.health import Send, reply

WORKER_UP = "proximity_worker_up"
_UP_HEAD = (
    f"# HELP {WORKER_UP} 1 for each process of --workers that answers",
    f"# TYPE {WORKER_UP} gauge",
)
_PLAIN = "text/plain; version=0.0.4; charset=utf-8"
_END = "# EOF"
_END_OF_NAME = re.compile(r"[{ ]")
_SECONDS = 4.0  # longer than a worker's checks take, shorter than the timeout of a scrape
_MOST_BYTES = 32 * 1024 * 1024


class WorkersPage:
    """Answers /metrics, /healthz and /readyz for the workers that listen on these ports.

    If a worker does not answer, /metrics lacks its series and proximity_worker_up names it, and
    /healthz and /readyz fail.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._workers = [
            BoundedAddress(
                f"http://127.0.0.1:{port}", ca_file=None, deadline=_SECONDS, most_bytes=_MOST_BYTES
            )
            for port in ports
        ]

    async def __call__(self, scope: dict[str, Any], _receive: Any, send: Send) -> None:
        """An ASGI application."""
        match scope["path"]:
            case "/metrics":
                await self._show_metrics(dict(scope["headers"]), send)
            case "/healthz" | "/readyz" as path:
                await self._show_health(path, send)
            case _:
                await reply(send, 404, {"status": "error", "message": "not found", "code": 404})

    async def _show_metrics(self, headers: Mapping[bytes, bytes], send: Send) -> None:
        accepted = headers.get(b"accept", b"text/plain").decode("latin-1")
        answers = await self._fetch_all("/metrics", accepted)
        answered = {n: each for n, each in enumerate(answers) if each is not None and each.is_ok}
        pages = {number: each.body.decode() for number, each in answered.items()}
        types = {each.content_type for each in answered.values()} or {_PLAIN}
        head = [(b"content-type", min(types).encode()), (b"cache-control", b"no-store")]
        body = merged(pages, len(self._workers)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": body})

    async def _show_health(self, path: str, send: Send) -> None:
        answers = await self._fetch_all(path, "application/json")
        good = all(answer is not None and answer.is_ok for answer in answers)
        workers: list[dict[str, Any]] = [
            {"status": "no answer"} if answer is None else msgspec.json.decode(answer.body)
            for answer in answers
        ]
        status = "ready" if path == "/readyz" else "ok"
        body: dict[str, Any] = {"status": status if good else f"not {status}", "workers": workers}
        checks = [worker["checks"] for worker in workers if "checks" in worker]
        if checks:
            names = dict.fromkeys(name for each in checks for name in each)
            body["checks"] = {name: all(each.get(name, True) for each in checks) for name in names}
        await reply(send, 200 if good else 503, body)

    async def _fetch_all(self, path: str, accepted: str) -> list[BoundedAnswer | None]:
        """The answers of all workers, in order; None for a worker that does not answer."""
        return await asyncio.gather(*(_answer(each, path, accepted) for each in self._workers))


async def _answer(worker: BoundedAddress, path: str, accepted: str) -> BoundedAnswer | None:
    try:
        return await worker.fetch(path, [(b"accept", accepted.encode("latin-1"))])
    except (OSError, TimeoutError, BoundedHttpError):
        return None


def merged(pages: Mapping[int, str], workers: int) -> str:
    """Merge the pages of the workers, by number: each family once, each sample with its worker.

    In both formats, Prometheus' own and OpenMetrics, a family begins with comment lines, and all
    its samples must follow them.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for number, page in pages.items():
        for family, is_head, line in _lines(page):
            if is_head:
                head = heads.setdefault(family, [])
                if line not in head:
                    head.append(line)
            else:
                samples.setdefault(family, []).append(_of_worker(line, number))
    up = [f'{WORKER_UP}{{worker="{n}"}} {1.0 if n in pages else 0.0}' for n in range(workers)]
    lines = [*_UP_HEAD, *up]
    for family, head in heads.items():
        lines += [*head, *samples.get(family, ())]
    if any(page.rstrip().endswith(_END) for page in pages.values()):
        lines.append(_END)
    return "\n".join(lines) + "\n"


def _lines(page: str) -> Iterator[tuple[str, bool, str]]:
    """Each line with its family, and whether it belongs to the family's head."""
    family = ""
    for line in _filled(page.split("\n")):
        is_head = line.startswith("# ")
        if is_head:
            family = line.split(" ", 3)[2]
        yield family, is_head, line


def _filled(lines: Iterable[str]) -> Iterator[str]:
    return (line for line in lines if line and line != _END)


def _of_worker(sample: str, number: int) -> str:
    name = _END_OF_NAME.split(sample, maxsplit=1)[0]
    rest = sample[len(name) :]
    more = f",{rest[1:]}" if rest.startswith("{") else f"}}{rest}"
    return f'{name}{{worker="{number}"{more}'
