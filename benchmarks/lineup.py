"""The subjects: the product, and alternatives."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_BUILT = ROOT / ".cache" / "bench"  # by `make bench-alternatives`
_NOTHING: Mapping[str, str] = {}


class Subject(NamedTuple):
    """A subject: a command, to which the number of records is added.

    `needs` must be there. A subject that is `warm` handles other records first, in the same
    process. One that is `slow` runs in the first round only. One without `keeps_state` knows
    nothing of what an earlier process claimed from another topic, so that it cannot take part in
    `steady`.
    """

    name: str
    command: Sequence[str]
    meaning: str
    directory: Path = ROOT
    environment: Mapping[str, str] = _NOTHING
    needs: Path = Path(sys.executable)
    warm: bool = False
    slow: bool = False
    keeps_state: bool = True

    @property
    def there(self) -> bool:
        """Whether the subject can run here."""
        return self.needs.exists()


def _product(name: str, meaning: str, environment: Mapping[str, str] = _NOTHING) -> Subject:
    command = [sys.executable, "-m", "benchmarks.subjects", name.partition("-")[0]]
    return Subject(name, command, meaning, environment=environment)


def _loop(name: str, meaning: str) -> Subject:
    command = [sys.executable, "-m", f"benchmarks.alternatives.{name}_loop"]
    return Subject(name, command, meaning)


def _framework(name: str, meaning: str) -> Subject:
    home = _BUILT / name
    command = [str(home / "bin" / "python"), "-m", f"benchmarks.alternatives.{name}_loop"]
    return Subject(name, command, meaning, needs=home / ".installed")


def _streams(name: str, meaning: str, guarantee: str, *, warm: bool = False) -> Subject:
    home = _BUILT / "streams"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = shutil.which("java") or "java"
    command = [java, "-Xmx1g", quiet, "-cp", str(home / "lib" / "*"), "bench.Main"]
    environment = {"BENCH_GUARANTEE": guarantee}
    return Subject(
        name, command, meaning, environment=environment, needs=home / ".built", warm=warm
    )


FLOOR, TRIGGER = "floor", "trigger"
PRODUCT = (
    _product(FLOOR, "aiokafka getmany and decode, nothing else"),
    _product(TRIGGER, "the product"),
    _product(
        "trigger-exactly-once",
        "the product with DELIVERY=exactly_once",
        {"PROXIMITY_DELIVERY": "exactly_once"},
    ),
)
PYTHON = (
    _loop("aiokafka", "aiokafka and a Redis pipeline a batch"),
    _loop("confluent", "confluent-kafka and a Redis pipeline a batch"),
    _framework("faust", "faust-streaming, claims in a table in memory with a changelog")._replace(
        slow=True
    ),
    _framework("quix", "Quix Streams, claims in its state (RocksDB, changelog)")._replace(
        slow=True, keeps_state=False
    ),
)
OTHERS = (
    Subject(
        "go",
        [str(_BUILT / "go-worker")],
        "franz-go, go-redis pipelines, held claims in memory",
        needs=_BUILT / "go-worker",
    ),
    _streams("streams", "Kafka Streams, at least once, as the JVM starts", "at_least_once"),
    _streams("streams-warm", "the same, warm", "at_least_once", warm=True),
    _streams("streams-exactly-once", "Kafka Streams, exactly once", "exactly_once_v2"),
)
EVERYBODY = {subject.name: subject for subject in (*PRODUCT, *PYTHON, *OTHERS)}
USUAL = (FLOOR, TRIGGER, "aiokafka", "confluent")  # they need nothing that is not in .venv


def beside(checkout: Path) -> Subject:
    """The trigger of another checkout."""
    mine = EVERYBODY[TRIGGER]
    return mine._replace(
        name=checkout.name, directory=checkout.resolve(), meaning=f"the trigger of {checkout}"
    )
