"""`proximity connector`: tests a connector with one call, and renews the encryption key."""

from typing import Annotated

from sqlalchemy import select
from sqlalchemy.orm import joinedload
from typer import Argument, Option

from catalog.errors import DecryptionError
from catalog.models import Connector
from catalog.secrets import MISSING_SECRET_KEY
from connectors.model import Declined, Pairs, Trial
from engine.cli.command import CommandError, begin_quietly, command
from engine.cli.output import say
from engine.cli.servers import company_named, open_migrated_database
from engine.connector.trial_call import SAMPLE_UDID
from engine.wiring.connector import connector_trials
from engine.wiring.parts import cipher_of


@command("connector test", 'connector test "Harbour Mall"')
async def call_once(
    company: Annotated[str, Argument(help="The company's name or id.")],
    udid: Annotated[str, Option(help="The udid of the sample device.")] = SAMPLE_UDID,
) -> None:
    """Call the connector of COMPANY once, about a sample detection by a test device.

    Shows request and reply with masked secrets, and the notification that would follow. Nothing is
    published, the call is not retried, and breakers do not count it.
    """
    settings = begin_quietly()
    async with open_migrated_database(settings) as database:
        async with database.read() as session:
            owner = await company_named(session, company)
        trial = await connector_trials(settings, database).run(owner.id, udid)
    _show(trial)
    if trial.result is None:
        raise CommandError(f"{trial.outcome}: {trial.detail}")


def _show(trial: Trial) -> None:
    if (request := trial.request) is not None:
        _show_message("request", f"{request.method} {request.url}", request.headers, request.body)
    if (reply := trial.reply) is not None:
        title = f"reply, after {1000 * (trial.seconds or 0):.0f} ms"
        _show_message(title, f"status {reply.status}", reply.headers, reply.body)
    if isinstance(trial.result, Declined):
        say("-- result")
        say("   no notification: the service declines")
    elif (result := trial.result) is not None:
        say("-- result")
        say("   a notification")
        texts = {"title": result.title, "push": result.push, result.format: result.content[:200]}
        for name, text in texts.items():
            say(f"     {name:8} " + (text or "(the campaign's)"))


def _show_message(title: str, first: str, headers: Pairs, body: str) -> None:
    say(f"-- {title}")
    say(f"   {first}")
    for name, value in headers:
        say(f"   {name}: {value}")
    for line in ["", *body.splitlines()] if body else []:
        say(f"   {line}")


@command("connector rekey")
async def rekey() -> None:
    """Encrypt the parameters and secrets of all connectors with the first key of SECRET_KEY.

    The other keys are then needed only for waiting calls, and for dead letters of calls. It is
    safe to run this again, and while the roles run.
    """
    settings = begin_quietly()
    cipher = cipher_of(settings)
    if cipher is None:
        raise CommandError(MISSING_SECRET_KEY)
    query = select(Connector).options(joinedload(Connector.company)).order_by(Connector.id)
    renewed, unreadable = 0, []
    async with (
        open_migrated_database(settings) as database,
        database.write.begin() as session,
    ):
        for each in await session.scalars(query.with_for_update(of=Connector)):
            try:
                parameters = cipher.encrypt(cipher.decrypt(each.parameters))
                secret = each.secret and cipher.encrypt(cipher.decrypt(each.secret))
            except DecryptionError:
                unreadable.append(each.company.name)
                continue
            each.parameters, each.secret = parameters, secret
            renewed += 1
    say(f"{renewed:,} connectors encrypted anew")
    if unreadable:
        raise CommandError(
            f"{len(unreadable):,} connectors are encrypted with none of the keys of "
            f"PROXIMITY_SECRET_KEY; their companies: {', '.join(unreadable)}"
        )
