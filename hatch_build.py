"""Compiles the modules that Cython translates, while the project is installed or its wheel built.

Without a C compiler or Python's headers the project is installed without them, and says so; it does
the same work, slower (docs/decisions/0007). REQUIRE_COMPILED=1 makes that an error.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MODULES = ("engine.trigger.record_filter",)


class CompileHook(BuildHookInterface[Any]):
    """Puts each compiled module beside its source."""

    def initialize(self, _version: str, build_data: dict[str, Any]) -> None:
        """Compile; `build_data` then describes a wheel for this platform."""
        root = Path(self.root)
        try:
            compiled = _compile(root)
        except Exception as error:  # the compilers' errors have no common class
            for name in MODULES:  # what an older source was compiled to
                for file in root.glob(f"{_path(name)}.*.so"):
                    file.unlink()
            if os.environ.get("REQUIRE_COMPILED") == "1":
                raise
            self.app.display_warning(f"not compiled, so it works slower: {error}")
            return
        build_data["artifacts"] += compiled
        build_data["pure_python"] = False
        build_data["infer_tag"] = True


def _compile(root: Path) -> list[str]:
    """The compiled files, relative to `root`. Only what has changed is compiled again."""
    from Cython.Build import cythonize
    from setuptools import Distribution, Extension

    sources = [Extension(name, [f"{_path(name)}.pyx"]) for name in MODULES]
    with contextlib.chdir(root):
        made = cythonize(sources, build_dir="build/cython", quiet=True)
        command = Distribution({"ext_modules": made}).get_command_obj("build_ext")
        command.inplace = True
        command.build_temp = "build/cython"
        command.ensure_finalized()
        command.run()
        return [command.get_ext_filename(name) for name in MODULES]


def _path(module: str) -> str:
    return module.replace(".", "/")
