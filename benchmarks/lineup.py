"""The subjects: the product, and alternatives."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
_BUILT = ROOT / ".cache" / "bench"  # by `make bench-alternatives`


class Subject(NamedTuple):
    """A subject: a command, to which the number of records is added. `needs` must be there."""

    name: str
    command: Sequence[str]
    directory: Path = ROOT
    environment: Mapping[str, str] = {}
    needs: Path = Path(sys.executable)

    @property
    def there(self) -> bool:
        """Whether the subject can run here."""
        return self.needs.exists()


def _streams(name: str, guarantee: str) -> Subject:
    home = _BUILT / "streams"
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"
    java = shutil.which("java") or "java"
    command = [java, "-Xmx1g", quiet, "-cp", str(home / "lib" / "*"), "bench.Main"]
    environment = {"BENCH_GUARANTEE": guarantee}
    return Subject(name, command, environment=environment, needs=home / ".built")


TRIGGER = "trigger"
_LOOPS = "benchmarks.alternatives."
_PRODUCT = Subject(TRIGGER, [sys.executable, "-m", "benchmarks.subjects", TRIGGER])
PRODUCT = (
    _PRODUCT,
    _PRODUCT._replace(
        name="trigger-exactly-once", environment={"PROXIMITY_DELIVERY": "exactly_once"}
    ),
)
OTHERS = (
    Subject("aiokafka", [sys.executable, "-m", f"{_LOOPS}aiokafka_loop"]),
    Subject("bare", [sys.executable, "-m", f"{_LOOPS}bare_loop"]),
    _streams("streams", "at_least_once"),
    _streams("streams-exactly-once", "exactly_once_v2"),
)
EVERYBODY = {subject.name: subject for subject in (*PRODUCT, *OTHERS)}
USUAL = (TRIGGER, "aiokafka")  # they need nothing that is not in .venv


def python_of(checkout: Path) -> str:
    """The interpreter of its own virtual environment, which `make venv` makes there: versions need
    other libraries, and are compiled there."""
    own = checkout.resolve() / ".venv" / "bin" / "python"
    return str(own) if own.exists() else sys.executable


def beside(checkout: Path) -> Subject:
    """The trigger of another checkout."""
    command = [python_of(checkout), "-m", "benchmarks.subjects", TRIGGER]
    venv = checkout.resolve() / ".venv"
    return Subject(checkout.name, command, directory=checkout.resolve(), needs=venv)
