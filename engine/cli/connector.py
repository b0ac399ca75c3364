"""`proximity connector`: tests a connector with one call, and renews the encryption key."""

from typing import Annotated

from typer import Argument, Option

from api.connector import ConnectorTrialAnswer
from catalog.secrets import MISSING_SECRET_KEY, open_cipher, rekey_connectors
from engine.cli.command import CommandError, add_group, begin_quietly, command
from engine.cli.output import say
from engine.cli.servers import company_named, open_migrated_database
from engine.connector.trial_call import SAMPLE_UDID, ConnectorTrials
from engine.wiring.connector import endpoint_decryptor, service_callers, user_agent

add_group("connector", "Customers' web services, which provide the content of connector campaigns.")


@command("connector test", 'connector test "Harbour Mall"')
async def call_once(
    company: Annotated[str, Argument(help="The company's name or id.")],
    udid: Annotated[str, Option(help="The udid of the sample device.")] = SAMPLE_UDID,
) -> None:
    """Call the connector of COMPANY once, about a sample detection by a test device.

    Shows, as POST /connector/test does, request and reply with masked secrets, and the notification
    that would follow. Nothing is published, the call is not retried, and breakers do not count it.
    """
    settings = begin_quietly()
    decryptor, make_caller = endpoint_decryptor(settings), service_callers(settings)
    async with open_migrated_database(settings) as database:
        async with database.read() as session:
            owner = await company_named(session, company)
        trials = ConnectorTrials(database, decryptor, make_caller, agent=user_agent())
        trial = await trials.run(owner.id, udid)
    shown = ConnectorTrialAnswer.model_validate(trial).model_dump_json(indent=2)
    for line in shown.split("\n"):
        say(line)
    if trial.result is None:
        raise CommandError(f"{trial.outcome}: {trial.detail}")


@command("connector rekey")
async def rekey() -> None:
    """Encrypt the parameters and secrets of all connectors with the first key of SECRET_KEY.

    The other keys are then needed only for waiting calls, and for dead letters of calls. It is
    safe to run this again, and while the roles run.
    """
    settings = begin_quietly()
    if settings.secret_key is None:
        raise CommandError(MISSING_SECRET_KEY)
    cipher = open_cipher(settings.secret_key.get_secret_value())
    async with open_migrated_database(settings) as database:
        renewed, unreadable = await rekey_connectors(database, cipher)
    say(f"{renewed:,} connectors encrypted anew")
    if unreadable:
        raise CommandError(
            f"{len(unreadable):,} connectors are encrypted with none of the keys of "
            f"PROXIMITY_SECRET_KEY; their companies: {', '.join(unreadable)}"
        )
