"""The context of a page: one request of a signed-in user, with the objects that a page needs."""

from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from api.console.forms import PostedForm
from api.console.interface import InterfaceClient
from api.console.rendering import rendered
from api.console.session import PATH, SessionCookie
from api.console.translations import Translations
from api.permissions import AREAS
from api.sessions.check import SignedIn
from catalog.fields.company import READ, WRITE


@dataclass(frozen=True, kw_only=True)
class PageContext:
    """A request of a signed-in user; `form` is empty for a GET."""

    request: Request
    texts: Translations
    account: SignedIn
    session: SessionCookie
    interface: InterfaceClient
    form: PostedForm = field(default_factory=lambda: PostedForm({}))

    def may_read(self, record: str) -> bool:
        """Whether to show links to records of this kind. (/v2 checks the permission again.)"""
        return self.account.level(AREAS[record]) >= READ

    def may_write(self, record: str) -> bool:
        """Whether to show forms that change records of this kind."""
        return self.account.level(AREAS[record]) >= WRITE

    def path_number(self, name: str) -> int:
        """A numeric parameter of the path."""
        return int(self.request.path_params[name])

    def query(self, name: str) -> str:
        """A query parameter; empty if it is absent."""
        return self.request.query_params.get(name, "")

    def query_number(self, name: str) -> int:
        """A query parameter that is a number; 0 if it is absent or invalid."""
        text = self.query(name)
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0

    def page(self, template: str, status: int = HTTPStatus.OK, **values: Any) -> Response:
        """Render a template, which is a page or a part of one."""
        return rendered(template, self.texts, self._common() | values, status)

    def redirect(self, path: str) -> Response:
        """Redirect to another page of the console, after a form was handled."""
        return RedirectResponse(f"{PATH}{path}", HTTPStatus.SEE_OTHER)

    def _common(self) -> dict[str, Any]:
        return {
            "context": self,
            "email": self.account.email,
            "forgery_token": self.session.forgery_token,
            "path": self.request.url.path,
        }
