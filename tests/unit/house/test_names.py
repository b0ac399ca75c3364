"""A name is found by searching for it: class names are unique, and references lead to something."""

import ast
import re
from collections import defaultdict

from tests.unit.house.source import ROOMS, docstrings, modules

DOTTED = re.compile(rf"(?<![\w/.])(?:{'|'.join(ROOMS)})(?:\.\w+)+")
OF_FILES = (".py", ".lua", ".sql", ".md", ".json", ".html")


def test_a_class_name_stands_once():
    """Names with an underscore are their module's own, and not found from elsewhere."""
    places = defaultdict[str, set[str]](set)
    for path, tree in modules().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].add(path)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_names_in_docstrings_exist():
    missing = {
        f"{path}: {name}"
        for path, tree in modules().items()
        for text in docstrings(tree)
        for name in DOTTED.findall(text)
        if not name.endswith(OF_FILES) and not _exists(name)
    }
    assert missing == set()


def _exists(dotted: str) -> bool:
    """Whether a package, a module, or a module's name is called so."""
    path = dotted.replace(".", "/")
    if f"{path}.py" in modules() or f"{path}/__init__.py" in modules():
        return True
    module, _, name = dotted.rpartition(".")
    tree = modules().get(f"{module.replace('.', '/')}.py")
    return tree is not None and name in _names(tree)


def _names(tree: ast.Module) -> set[str]:
    assigned = (node.targets for node in tree.body if isinstance(node, ast.Assign))
    variables = {each.id for targets in assigned for each in targets if isinstance(each, ast.Name)}
    defined = {
        node.name
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return variables | defined
