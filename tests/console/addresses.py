"""Every address of the console that needs a session, so that no test forgets one."""

import re
from typing import NamedTuple

from fastapi.routing import APIRoute

from api.console.routes import ROUTERS

OPEN = ("/static/{name}", "/sign-in", "/language", "/{path:path}")
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")


class ConsoleAddress(NamedTuple):
    """A method, and the template of a path below /console."""

    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def filled(self, **ids: int) -> str:
        """The path with ids in it."""
        return _PARAMETER.sub(lambda found: str(ids[found[1]]), self.path)


def addresses() -> list[ConsoleAddress]:
    """All addresses that need a session."""
    return [
        ConsoleAddress(method, route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute) and route.path not in OPEN
        for method in route.methods or ()
    ]
