"""Signing in and out, the profile, its password, and the company's mobile applications."""

import secrets
from typing import Annotated, Any

from fastapi import APIRouter
from pydantic import BeforeValidator, Field
from sqlalchemy.orm import joinedload
from starlette.requests import Request

from api.answers import (
    Answer,
    Count,
    DoneAnswer,
    Id,
    NamedAnswer,
    SignInErrorAnswer,
    Text,
    TimeOfDay,
    Timestamp,
)
from api.bodies import accepted, accepts, read_json
from api.permissions import (
    PREFIX,
    Caller,
    SignedInCaller,
    address_of,
    may_read,
    may_write,
    services_of,
)
from api.records import Records, Values, add_operations
from api.sessions import SessionAnswer
from api.tenancy import assign, find, of_company, writing
from catalog.fields import Fields
from catalog.inputs import (
    AREAS,
    FILLED,
    NOTHING,
    SECRET,
    STORABLE,
    ApplicationInput,
    CapInput,
    CompanyRulesInput,
)
from catalog.limits import check_quiet_hours, lock_company
from catalog.models import WEEKDAYS, Account, Application, Company
from catalog.passwords import MIN_PASSWORD_LENGTH

router = APIRouter(prefix=PREFIX)
Reader = Annotated[Caller, may_read("profile")]
_KEY_BYTES = 24
# In bytes. Small, because the sender is not known yet.
_LONGEST_CREDENTIALS = 16 * 1024


Password = Annotated[str, Field(max_length=1024), STORABLE, FILLED, SECRET]


class Credentials(Fields):
    """The e-mail and password of a sign-in."""

    email: Annotated[str, Field(max_length=1024), STORABLE, FILLED]
    password: Password


class PasswordChange(Fields):
    """The current password of an account, and the new one."""

    old_password: Password
    new_password: Annotated[
        str, Field(min_length=MIN_PASSWORD_LENGTH, max_length=1024), STORABLE, FILLED, SECRET
    ]


class SessionEnvelopeAnswer(DoneAnswer):
    session: SessionAnswer


class CompanyAnswer(NamedAnswer):
    image: Text
    description: Text
    active: bool
    create_on: Timestamp


class QuietHoursAnswer(Answer):
    start: TimeOfDay
    end: TimeOfDay
    weekdays: list[str] = Field(list(WEEKDAYS), description="Those on which the hours begin.")


class CompanyRulesAnswer(CompanyAnswer):
    """The company with what it sets for all of its campaigns."""

    time_zone: Text
    caps: list[CapInput]
    quiet_hours: QuietHoursAnswer | None
    presence: bool
    visit_silence: Count | None


class ProfileAnswer(Answer):
    id: Id
    email: str
    name: Text
    fonction: Text
    active: bool
    company: CompanyAnswer
    permission: Annotated[
        dict[str, int],
        BeforeValidator(lambda levels: {area: levels.get(area, NOTHING) for area in AREAS}),
    ]


class ApplicationAnswer(NamedAnswer):
    type: str
    api_key: str
    api_id: str
    active: bool
    expire_on: Timestamp | None


@router.post(
    "/auth",
    tags=["session"],
    openapi_extra={"security": []}
    | accepts(Credentials, {"email": "you@library.example", "password": "change-me-please"}),
    responses={"default": {"model": SignInErrorAnswer, "description": "An error."}},
)
async def authenticate(request: Request) -> SessionEnvelopeAnswer:
    """Create a session for an e-mail and a password.

    An unknown address and a wrong password get the same answer (404) in the same time; after too
    many failures the answer is 429.
    """
    values = accepted(Credentials, await read_json(request, _LONGEST_CREDENTIALS))
    sessions, address = services_of(request).sessions, address_of(request)
    session = await sessions.sign_in(values["email"], values["password"], address)
    return SessionEnvelopeAnswer(session=session)


@router.delete("/auth", tags=["session"])
async def sign_out(caller: SignedInCaller) -> DoneAnswer:
    """End the session of the request."""
    await caller.services.sessions.sign_out(caller.token)
    return DoneAnswer()


@router.get("/profile", tags=["profile"])
async def get_profile(caller: Reader) -> ProfileAnswer:
    """The account, its company and its permissions."""
    query = of_company(Account, caller.company_id).options(joinedload(Account.company))
    async with caller.services.database.read() as session:
        account = await find(session, query, caller.account.account_id)
        return ProfileAnswer.model_validate(account)


@router.get("/profile/company", tags=["profile"])
async def get_company(caller: Reader) -> CompanyRulesAnswer:
    """The company, with what it sets for all of its campaigns."""
    async with caller.services.database.read() as session:
        return CompanyRulesAnswer.model_validate(await session.get_one(Company, caller.company_id))


@router.put(
    "/profile/company",
    tags=["profile"],
    openapi_extra=accepts(
        CompanyRulesInput,
        {
            "time_zone": "Europe/Madrid",
            "caps": [{"max": 3, "per": "day"}],
            "quiet_hours": {"start": "22:00", "end": "08:00"},
        },
    ),
)
async def edit_company(caller: Annotated[Caller, may_write("company")]) -> CompanyRulesAnswer:
    """Set the caps, the quiet hours and what is asked of visits.

    A device receives at most `max` notifications of the company within any time of the length
    `per`. In quiet hours nothing is sent or kept for later: they are in the device's time zone
    where it is known, else in the venue's, else in the company's, and one of these two is required.
    `presence` asks for visits and messages about them, as does a campaign on visits; a visit ends
    after `visit_silence` seconds without a detection. Fields that are not given stay as they are.
    """
    values = await caller.values(CompanyRulesInput)
    async with writing(caller.services) as session:
        await lock_company(session, caller.company_id)
        company = await session.get_one(Company, caller.company_id)
        assign(company, values)
        await session.flush()
        await check_quiet_hours(session, caller.company_id, "quiet_hours")
        return CompanyRulesAnswer.model_validate(company)


@router.put(
    "/profile/password",
    tags=["profile"],
    openapi_extra=accepts(
        PasswordChange,
        {"old_password": "change-me-please", "new_password": "a longer passphrase of mine"},
    ),
)
async def change_password(caller: SignedInCaller) -> DoneAnswer:
    """Set a new password. The account's other sessions end."""
    values = await caller.values(PasswordChange)
    old, new = values["old_password"], values["new_password"]
    sessions, address = caller.services.sessions, address_of(caller.request)
    await sessions.change_password(caller.account, address, caller.token, old=old, new=new)
    return DoneAnswer()


async def _with_key(_session: Any, _scope: Any, values: Values, record: Any) -> Values:
    return values if record else {**values, "api_key": secrets.token_urlsafe(_KEY_BYTES)}


APPLICATIONS = Records(
    kind="application",
    path="/profile/application",
    model=Application,
    answer=ApplicationAnswer,
    created=ApplicationInput,
    example={"name": "Library for Android", "type": "android", "active": True},
    about="The service generates its `api_key`, which never changes.",
    columns=_with_key,
)

add_operations(router, APPLICATIONS)
