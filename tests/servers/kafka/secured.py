"""A real Kafka that also listens with TLS, with a login (by password or by token), and with both,
and has access rules."""

from pathlib import Path

import trustme
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # imported there by name
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from tests.servers.kafka.server import KafkaServer
from tests.servers.process import free_ports
from tests.servers.token_endpoint import TokenKey

USER, PASSWORD = "engine", "s3cret-of-the-broker"
# Of the listener SASL_SSL only; its user is `USER` once `add_scram_user` has been called.
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# A second user, who may do nothing but what a test allows.
LIMITED = "limited"
# A listener with a login by token. A connection lives no longer than its token.
OAUTH = "OAUTH"
_SECURITY = "org.apache.kafka.common.security"
_BEARER = f"{_SECURITY}.oauthbearer"
_PLAIN = (
    f"{_SECURITY}.plain.PlainLoginModule required "
    f'user_{USER}="{PASSWORD}" user_{LIMITED}="{PASSWORD}";'
)


class SecuredKafkaServer(KafkaServer):
    """`addresses` by security protocol, and of `OAUTH`; `authority` is the PEM file that verifies
    it, `token_key` the provider whose tokens it believes."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory, port)
        names = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", OAUTH)
        self.addresses = {"PLAINTEXT": f"127.0.0.1:{port}"} | {
            name: f"127.0.0.1:{free_ports()}" for name in names
        }
        self.authority = directory / "ca.pem"
        self.token_key = TokenKey()
        self._jwks = directory / "jwks.json"

    def prepare(self) -> None:
        self.token_key.write_jwks(self._jwks)
        ca = trustme.CA()
        ca.cert_pem.write_to_path(self.authority)
        server = ca.issue_cert("127.0.0.1", "localhost")
        key = load_pem_private_key(server.private_key_pem.bytes(), None)
        # Kafka takes a key in this form only.
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
        (self.directory / "keystore.pem").write_bytes(pem + chain)
        super().prepare()

    def properties(self) -> dict[str, object]:
        ours = super().properties()
        controller = str(ours["listeners"]).partition(",")[2]
        listeners = ",".join(f"{name}://{place}" for name, place in self.addresses.items())
        protocols = {name: name for name in self.addresses} | {
            "CONTROLLER": "PLAINTEXT",
            OAUTH: "SASL_PLAINTEXT",
        }
        scram = f"{_SECURITY}.scram.ScramLoginModule required;"
        return ours | {
            "listeners": f"{listeners},{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(map(":".join, protocols.items())),
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN",
            "listener.name.sasl_plaintext.plain.sasl.jaas.config": _PLAIN,
            "listener.name.sasl_ssl.plain.sasl.jaas.config": _PLAIN,
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": f"PLAIN,{','.join(SCRAM)}",
            **{f"listener.name.sasl_ssl.{n.lower()}.sasl.jaas.config": scram for n in SCRAM},
            **{f"listener.name.oauth.{n}": value for n, value in self._oauth().items()},
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:ANONYMOUS;User:{USER}",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self.directory / "keystore.pem",
        }

    def _oauth(self) -> dict[str, object]:
        handler = f"{_BEARER}.OAuthBearerValidatorCallbackHandler"
        # (The broker itself never logs in here, but its login must be configured.)
        login = f'{_BEARER}.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        return {
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "connections.max.reauth.ms": 3600000,
            "oauthbearer.sasl.jaas.config": login,
            "oauthbearer.sasl.server.callback.handler.class": handler,
            # By default Kafka 4.1.0 verifies no signature.
            "sasl.oauthbearer.jwt.validator.class": f"{_BEARER}.BrokerJwtValidator",
            "sasl.oauthbearer.jwks.endpoint.url": self._jwks.as_uri(),
        }

    def java_options(self) -> list[str]:
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        files = [f"{allowed}.urls={self._jwks.as_uri()}", f"{allowed}.files={self._jwks}"]
        return [*super().java_options(), *files]

    def add_scram_user(self) -> None:
        """Let `USER` in by both kinds of SCRAM, with `PASSWORD`."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            info = ScramCredentialInfo(kind, 4096)
            change = UserScramCredentialUpsertion(USER, info, PASSWORD.encode())
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(timeout=10)
