"""The wheel, installed in an empty environment: an editable install hides what is missing."""

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.servers.compiled import compiled

ROOT = Path(__file__).parents[3]
PACKAGES = ("api", "catalog", "connectors", "engine", "rules")
# Each source is compiled, and nothing else.
COMPILED = sorted(
    str(source.relative_to(ROOT).with_suffix("")) for source in ROOT.glob("engine/*/*.pyx")
)

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
    wheel = _build(ROOT, directory)
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
        assert [name for name in files if not name.endswith(".so")] == _in_the_checkout(package)


def test_the_wheel_has_what_was_compiled(installed: Path) -> None:
    compiled("engine.trigger.refusal_filter")
    packages = next(installed.glob("lib/*/site-packages"))
    for name in COMPILED:
        (file,) = packages.glob(f"{name}.*.so")
        assert file.stat().st_size > 10_000


def test_without_a_compiler_the_wheel_is_for_all_platforms(tmp_path: Path) -> None:
    copy, out = tmp_path / "copy", tmp_path / "out"
    tracked = _tracked(".")
    for name in tracked:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, copy / name)
    older = copy / f"{COMPILED[0]}.cpython-311-x86_64-linux-gnu.so"
    older.write_bytes(b"what an older source was compiled to")
    wheel = _build(copy, out, CC="false")
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
    assert not older.exists()
    with pytest.raises(subprocess.CalledProcessError):
        _build(copy, out, CC="false", REQUIRE_COMPILED="1")


def test_the_command_is_installed(installed: Path) -> None:
    assert (installed / "bin/proximity").is_file()


def test_scripts_and_migrations_are_among_them() -> None:
    shipped = [name for package in PACKAGES for name in _in_the_checkout(package)]
    assert "engine/redis/scripts/claim.lua" in shipped
    assert any(name.startswith("catalog/migrations/versions/") for name in shipped)


def _build(source: Path, directory: Path, **environment: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, source],
        check=True,
        capture_output=True,
        env={**os.environ, **environment},
    )
    (wheel,) = directory.glob("*.whl")
    return wheel


def _in_the_checkout(package: str) -> list[str]:
    return sorted(_tracked(package))


def _tracked(folder: str) -> list[str]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return [name for name in names if (ROOT / name).is_file()]
