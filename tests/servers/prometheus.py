"""A real Prometheus with the product's rules, every duration in them a fraction of what it is."""

import json
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from tests.servers.process import ServerProcess, find_program

_DURATION = re.compile(r"\b(\d+)(s|m|h|d)\b")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_TIMEOUT = 5.0


class PrometheusServer(ServerProcess):
    """Scrapes `targets` (host:port) each second. `rules` are files; `faster` divides durations."""

    def __init__(
        self,
        directory: Path,
        port: int,
        *,
        targets: Sequence[str],
        rules: Sequence[Path],
        faster: int,
    ) -> None:
        super().__init__(directory, port)
        self._targets = list(targets)
        self._rules = rules
        self._faster = faster

    def command(self) -> Sequence[str | Path]:
        return [
            find_program("prometheus", package="prometheus"),
            f"--config.file={self.directory / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--enable-feature=exemplar-storage",
        ]

    def prepare(self) -> None:
        for path in self._rules:
            rules = yaml.safe_load(path.read_text())
            for group in rules["groups"]:
                for rule in group["rules"]:
                    rule |= {k: self._shortened(rule[k]) for k in ("expr", "for") if k in rule}
            (self.directory / f"rules-{path.name}").write_text(yaml.safe_dump(rules))
        configuration = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules-*.yaml"],
            "scrape_configs": [
                {"job_name": "proximity", "static_configs": [{"targets": self._targets}]}
            ],
        }
        (self.directory / "prometheus.yml").write_text(yaml.safe_dump(configuration))

    def answers(self) -> bool:
        with suppress(OSError):
            self._get("/-/ready")
            return True
        return False

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The samples of an expression now. Raises OSError for one that cannot be evaluated."""
        words = urllib.parse.urlencode({"query": expression})
        answer = json.loads(self._get(f"/api/v1/query?{words}"))
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def exemplars(self, series: str) -> list[dict[str, str]]:
        """The labels of the exemplars that it has read of a series in the last ten minutes."""
        now = time.time()
        words = urllib.parse.urlencode({"query": series, "start": now - 600, "end": now})
        answer = json.loads(self._get(f"/api/v1/query_exemplars?{words}"))
        return [each["labels"] for found in answer["data"] for each in found["exemplars"]]

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        samples = self.query('ALERTS{alertstate="firing"}')
        return {sample["metric"]["alertname"] for sample in samples}

    def _get(self, path: str) -> bytes:
        url = f"http://127.0.0.1:{self.port}{path}"
        with urllib.request.urlopen(url, timeout=_TIMEOUT) as answer:
            body: bytes = answer.read()
        return body

    def _shortened(self, text: str) -> str:
        def shorter(found: "re.Match[str]") -> str:
            seconds = int(found[1]) * _SECONDS[found[2]]
            return f"{max(3, seconds // self._faster)}s"

        # Names of recorded series (ratio5m) have no word boundary before their figure.
        return _DURATION.sub(shorter, text)
