"""Every address of the console that needs a session, so that no test forgets one."""

import re
from typing import NamedTuple

from api.console.routes import console_routes

OPEN = ("/", "/console/static/{name}", "/console/sign-in", "/console/language")
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


class ConsoleAddress(NamedTuple):
    """A method, and the template of a path below /console."""

    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def filled(self, **ids: int) -> str:
        """The path with ids in it."""
        given = {name: str(number) for name, number in ids.items()}
        return _PARAMETER.sub(lambda found: given[found[1]], self.path)


def addresses() -> list[ConsoleAddress]:
    """All addresses that need a session."""
    found = []
    for route in console_routes():
        methods = (route.methods or set()) - {"HEAD"}
        if route.path not in (*OPEN, "/console/{path:path}"):
            (method,) = methods
            found.append(ConsoleAddress(method, route.path.removeprefix("/console")))
    return found
