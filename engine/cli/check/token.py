"""Checks the token of the login at Kafka, if KAFKA_SASL_MECHANISM is OAUTHBEARER."""

from engine.cli.check.finding import Finding, bad, ok
from engine.kafka.client_options import OAUTHBEARER
from engine.kafka.errors import LoginTokenError
from engine.kafka.login_token import TokenEndpoint, shown_endpoint
from engine.kafka.token_provider import token_client
from engine.process.settings import Settings

_PART, _SUBJECT = "Kafka", "token"


async def check_token(settings: Settings) -> list[Finding]:
    """Request a token. Bounded by KAFKA_SASL_OAUTH_TIMEOUT."""
    if settings.kafka_sasl_mechanism != OAUTHBEARER:
        return []
    client = token_client(settings)
    try:
        token = await TokenEndpoint(client).fetch()
    except LoginTokenError as error:
        return [bad(_PART, _SUBJECT, error.args[0])]
    return [ok(_PART, _SUBJECT, f"{shown_endpoint(client.url)}, good for {token.seconds:g} s")]
