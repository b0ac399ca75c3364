"""The files of the product, and the names in them."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[3]
ROOMS = ("rules", "connectors", "catalog", "api", "engine")


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of the product, parsed; paths from the root of the project."""
    paths = (path for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))
    return {str(path.relative_to(ROOT)): ast.parse(path.read_bytes()) for path in paths}


def docstrings(tree: ast.Module) -> Iterator[str]:
    """Every docstring of a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node, clean=False) or ""
