"""The wheel, installed in an empty environment: an editable install hides what is missing."""

import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGES = ("api", "catalog", "connectors", "engine", "rules")

# Run by the new environment's interpreter, away from the checkout.
_LOCATE = """
import importlib.util, json, sys
from pathlib import Path
found = {}
for name in sys.argv[1:]:
    spec = importlib.util.find_spec(name)
    root = Path(spec.submodule_search_locations[0])
    found[name] = [str(root.parent), sorted(str(p.relative_to(root.parent)) for p in root.rglob("*")
                   if p.is_file() and "__pycache__" not in p.parts)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an environment that has the wheel and nothing else."""
    directory = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = directory.glob("*.whl")
    environment = directory / "environment"
    venv.create(environment)
    python = environment / "bin/python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "-q", wheel],
        check=True,
        capture_output=True,
    )
    return environment


def test_every_package_and_file_comes_from_the_wheel(installed: Path, tmp_path: Path) -> None:
    import orjson

    done = subprocess.run(
        [installed / "bin/python", "-I", "-c", _LOCATE, *PACKAGES],
        check=True,
        capture_output=True,
        cwd=tmp_path,
    )
    found = orjson.loads(done.stdout)
    for package in PACKAGES:
        location, files = found[package]
        assert Path(location).is_relative_to(installed.resolve())
        assert sorted(files) == _in_the_checkout(package)


def test_the_command_is_installed(installed: Path) -> None:
    assert (installed / "bin/proximity").is_file()


def test_scripts_and_migrations_are_among_them() -> None:
    shipped = [name for package in PACKAGES for name in _in_the_checkout(package)]
    assert "engine/redis/scripts/claim.lua" in shipped
    assert any(name.startswith("catalog/migrations/versions/") for name in shipped)


def _in_the_checkout(package: str) -> list[str]:
    tracked = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", package],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return sorted(name for name in tracked if (ROOT / name).is_file())
