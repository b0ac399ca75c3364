"""The wheel has every file of the packages, which an editable install would not show."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.servers.missing import compiled
from tests.servers.proximity import ROOT

PACKAGES = ("api", "catalog", "connectors", "engine", "rules")
COMPILED = sorted(
    str(source.relative_to(ROOT).with_suffix("")) for source in ROOT.glob("engine/*/*.pyx")
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    return zipfile.ZipFile(_build(ROOT, tmp_path_factory.mktemp("wheel")))


def test_every_file_is_in_the_wheel_and_no_other(wheel: zipfile.ZipFile) -> None:
    names = {name for name in wheel.namelist() if not name.endswith(".so")}
    ours = {name for name in names if name.partition("/")[0] in PACKAGES}
    assert ours == {name for package in PACKAGES for name in _tracked(package)}
    assert {name.partition("/")[0].rpartition(".")[2] for name in names - ours} == {"dist-info"}
    compiled("engine.trigger.record_filter")
    made = {name for name in wheel.namelist() if name.endswith(".so")}
    assert {name.partition(".cpython")[0] for name in made} == set(COMPILED)


def test_without_a_compiler_the_wheel_is_for_all_platforms(tmp_path: Path) -> None:
    copy, out = tmp_path / "copy", tmp_path / "out"
    for name in _tracked("."):
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


@pytest.mark.parametrize("place", ["api/console/vendor/htmx", "tests/browser/axe"])
def test_libraries_of_others_are_as_they_were_published(place: str) -> None:
    folder = ROOT / place
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        digest, name = line.split()
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest, name


def _build(source: Path, directory: Path, **environment: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", directory, source],
        check=True,
        capture_output=True,
        env={**os.environ, **environment},
    )
    (wheel,) = directory.glob("*.whl")
    return wheel


def _tracked(folder: str) -> list[str]:
    names = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", folder],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    return [name for name in names if (ROOT / name).is_file()]
