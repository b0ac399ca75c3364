"""Runs several processes (workers) of one role under one parent, with one metrics port.

If a worker ends by itself, the parent stops the others and ends; systemd or Kubernetes then starts
the parent again, and all continue from the committed offsets. Each worker serves a port on loopback
that the parent has opened. The parent's page has the metrics of all, with the label `worker`:
not every metric can be summed, a gauge belongs to its process.
"""

import asyncio
import os
import signal
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import structlog
from prometheus_client import CollectorRegistry, Metric, make_asgi_app
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from engine.process.health import Send, listen, metrics_server
from engine.process.lifecycle import cancel, stop_on_signals
from engine.process.logs import configure_logs
from engine.process.settings import PREFIX, Settings

log = structlog.get_logger(__name__)

WORKER_UP = "proximity_worker_up"
_OPENMETRICS = "application/openmetrics-text; version=1.0.0"
_GRACE = 10.0  # seconds beyond the workers' own drain
_PAGE_SECONDS = 4.0  # longer than a worker's checks take, shorter than the timeout of a scrape
_PORT_SETTING = "METRICS_PORT"
# The second is the status of a worker that was stopped before it had started.
_ENDED_WELL = (0, -int(signal.SIGTERM))


async def supervise(role: str, workers: int, settings: Settings, env_file: Path | None) -> int:
    """Run `workers` processes until one ends or a signal arrives. Returns the exit status.

    Raises ProcessError.
    """
    configure_logs(settings)
    stop = asyncio.Event()
    with (
        listen(settings.metrics_host, settings.metrics_port, _PORT_SETTING) as port,
        stop_on_signals(stop),
    ):
        metrics = "{}:{}".format(*port.getsockname()[:2])
        log.info("starting workers", role=role, workers=workers, metrics=metrics)
        listeners = [listen("127.0.0.1", 0, _PORT_SETTING) for _ in range(workers)]
        page = WorkersPage([listener.getsockname()[1] for listener in listeners])
        processes: list[Process] = []
        for listener in listeners:
            with listener:
                processes.append(await _start(role, settings, env_file, listener))
        log.info("workers started", pids=[process.pid for process in processes])
        server = metrics_server(port, page.show_metrics, page.show_health)
        serving = asyncio.create_task(server.serve_until(), name="metrics port")
        stopping = asyncio.create_task(stop.wait(), name="signals")
        try:
            ends = {asyncio.create_task(process.wait()) for process in processes}
            await asyncio.wait({*ends, serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
            return await _end(processes, settings, was_asked=stop.is_set())
        finally:
            await cancel([serving, stopping])


async def _end(processes: Sequence[Process], settings: Settings, *, was_asked: bool) -> int:
    """Stop the workers. Returns the exit status."""
    running = [process for process in processes if process.returncode is None]
    if not was_asked:
        ended = [process.pid for process in processes if process.returncode is not None]
        log.error("a worker ended by itself, stopping all", pids=ended)
    for process in running:
        process.terminate()
    ends = {asyncio.create_task(process.wait()): process for process in processes}
    _, late = await asyncio.wait(ends, timeout=settings.drain_timeout * 2 + _GRACE)
    for end in late:
        log.error("a worker did not end in time, killing it", pid=ends[end].pid)
        ends[end].kill()
    statuses = await asyncio.gather(*ends)
    return 0 if was_asked and all(status in _ENDED_WELL for status in statuses) else 1


async def _start(
    role: str, settings: Settings, env_file: Path | None, listener: socket.socket
) -> Process:
    file_option = ["--env-file", str(env_file)] if env_file else []
    link = ["--worker-of", f"{os.getpid()}:{listener.fileno()}"]
    command = [sys.executable, "-m", "engine.cli", *file_option, "run", "--role", role, *link]
    # In a process group of its own, so that Ctrl-C reaches only the parent. The parent's SIGTERM is
    # then the first signal of the worker; a second signal would end it without a drain.
    return await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {f"{PREFIX}LOG_FORMAT": settings.log_format},
        pass_fds=[listener.fileno()],
        process_group=0,
    )


class WorkersPage:
    """What /metrics, /healthz and /readyz show for the workers that listen on these ports.

    If a worker does not answer, /metrics lacks its series and proximity_worker_up names it, and
    /healthz and /readyz fail.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._urls = [f"http://127.0.0.1:{port}" for port in ports]

    async def show_metrics(self, scope: dict[str, Any], receive: Any, send: Send) -> None:
        """An ASGI application."""
        answers = await self._fetch_all("/metrics", _OPENMETRICS)
        registry = CollectorRegistry()
        registry.register(MergedPages([each.text if each else None for each in answers]))
        await make_asgi_app(registry)(scope, receive, send)

    async def show_health(self, path: str) -> tuple[bool, dict[str, Any]]:
        """Whether all workers are well, and what each says."""
        answers = await self._fetch_all(path, "application/json")
        good = all(answer is not None and answer.is_success for answer in answers)
        workers: list[dict[str, Any]] = [
            {"status": "no answer"} if each is None else each.json() for each in answers
        ]
        status = "ready" if path == "/readyz" else "ok"
        body: dict[str, Any] = {"status": status if good else f"not {status}", "workers": workers}
        found = [worker["checks"] for worker in workers if "checks" in worker]
        if found:
            body["checks"] = {name: all(each.get(name) for each in found) for name in found[0]}
        return good, body

    async def _fetch_all(self, path: str, accepted: str) -> list[httpx.Response | None]:
        """The answers of all workers, in order; None for a worker that does not answer."""
        async with httpx.AsyncClient(timeout=_PAGE_SECONDS, trust_env=False) as client:

            async def fetch(url: str) -> httpx.Response | None:
                try:
                    return await client.get(url + path, headers={"accept": accepted})
                except httpx.HTTPError:
                    return None

            return await asyncio.gather(*map(fetch, self._urls))


@dataclass(eq=False)
class MergedPages(Collector):
    """The metrics of all workers, with the label `worker`.

    `pages` are in OpenMetrics, by the worker's number; None for a worker without an answer.
    """

    pages: Sequence[str | None]

    def collect(self) -> Iterable[Metric]:
        """Each family once, with the samples of every worker."""
        up = GaugeMetricFamily(
            WORKER_UP, "1 for each process of --workers that answers", labels=["worker"]
        )
        merged: dict[str, Metric] = {}
        for number, page in enumerate(self.pages):
            worker = {"worker": str(number)}
            up.add_metric([str(number)], float(page is not None))
            for each in text_string_to_metric_families(page or "# EOF\n"):  # type: ignore[no-untyped-call]
                empty = Metric(each.name, each.documentation, each.type)
                family = merged.setdefault(each.name, empty)
                family.samples += [s._replace(labels=worker | s.labels) for s in each.samples]
        return [up, *merged.values()]
