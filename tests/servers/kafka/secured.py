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

from engine.cli.local_servers import free_port
from tests.servers.kafka.server import KafkaServer
from tests.servers.token_endpoint import TokenKey

USER, PASSWORD = "engine", "s3cret-of-the-broker"
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
# Of the listener SASL_SSL only; its user is `USER` once `add_scram_user` has been called.
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
# A second user, who may do nothing but what a test allows.
LIMITED = "limited"
# A listener with a login by token. A connection lives no longer than its token.
OAUTH = "OAUTH"
_OAUTH_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
_OAUTH_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
_OAUTH_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.BrokerJwtValidator"
_JAAS = f'{_MODULE} required user_{USER}="{PASSWORD}" user_{LIMITED}="{PASSWORD}";'


class SecuredKafkaServer(KafkaServer):
    """`addresses` by security protocol, and of `OAUTH`; `authority` is the PEM file that verifies
    it, `token_key` the provider whose tokens it believes."""

    def __init__(self, directory: Path, port: int) -> None:
        super().__init__(directory, port)
        names = ("SSL", "SASL_PLAINTEXT", "SASL_SSL", OAUTH)
        self.addresses = {"PLAINTEXT": f"127.0.0.1:{port}"} | {
            name: f"127.0.0.1:{free_port()}" for name in names
        }
        self.authority = directory / "ca.pem"
        self.token_key = TokenKey()
        self._jwks = directory / "jwks.json"

    def prepare(self) -> None:
        super().prepare()
        keystore = self.directory / "keystore.pem"
        _write_keystore(keystore, self.authority)
        self.token_key.write_jwks(self._jwks)
        plain = f"PLAINTEXT://{self.addresses['PLAINTEXT']}"
        more = [f"{name}://{place}" for name, place in self.addresses.items()]
        text = self._properties.read_text()
        lines = [
            line.replace(plain, ",".join(more)) if "listeners=" in line else line
            for line in text.splitlines()
        ]
        protocols = {name: name for name in self.addresses} | {OAUTH: "SASL_PLAINTEXT"}
        kinds = ",".join(f"{name}:{protocol}" for name, protocol in protocols.items())
        lines += [
            f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,{kinds}",
            "inter.broker.listener.name=PLAINTEXT",
            "sasl.enabled.mechanisms=PLAIN",
            f"listener.name.sasl_plaintext.plain.sasl.jaas.config={_JAAS}",
            f"listener.name.sasl_ssl.plain.sasl.jaas.config={_JAAS}",
            f"listener.name.sasl_ssl.sasl.enabled.mechanisms=PLAIN,{','.join(SCRAM)}",
            *(
                f"listener.name.sasl_ssl.{name.lower()}.sasl.jaas.config={_SCRAM_MODULE} required;"
                for name in SCRAM
            ),
            *self._of_oauth(),
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            f"super.users=User:ANONYMOUS;User:{USER}",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={keystore}",
        ]
        self._properties.write_text("\n".join(lines) + "\n")

    def _of_oauth(self) -> list[str]:
        of = f"listener.name.{OAUTH.lower()}."
        return [
            f"{of}sasl.enabled.mechanisms=OAUTHBEARER",
            f"{of}connections.max.reauth.ms=3600000",
            # (The broker itself never logs in here, but its login must be configured.)
            f"{of}oauthbearer.sasl.jaas.config={_OAUTH_MODULE} required "
            'unsecuredLoginStringClaim_sub="broker";',
            f"{of}oauthbearer.sasl.server.callback.handler.class={_OAUTH_HANDLER}",
            # By default Kafka 4.1.0 verifies no signature.
            f"{of}sasl.oauthbearer.jwt.validator.class={_OAUTH_VALIDATOR}",
            f"{of}sasl.oauthbearer.jwks.endpoint.url={self._jwks.as_uri()}",
        ]

    def java_options(self) -> list[str]:
        allowed = "-Dorg.apache.kafka.sasl.oauthbearer.allowed"
        return [
            *super().java_options(),
            f"{allowed}.urls={self._jwks.as_uri()}",
            f"{allowed}.files={self._jwks}",
        ]

    def add_scram_user(self) -> None:
        """Let `USER` in by both kinds of SCRAM, with `PASSWORD`."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
        infos = [ScramCredentialInfo(kind, 4096) for kind in kinds]
        changes = [UserScramCredentialUpsertion(USER, each, PASSWORD.encode()) for each in infos]
        for change in changes:
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(timeout=10)


def _write_keystore(keystore: Path, authority: Path) -> None:
    ca = trustme.CA()
    server = ca.issue_cert("127.0.0.1", "localhost")
    key = load_pem_private_key(server.private_key_pem.bytes(), None)
    # Kafka takes a key in this form only.
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = b"".join(blob.bytes() for blob in server.cert_chain_pems)
    keystore.write_bytes(pem + chain)
    ca.cert_pem.write_to_path(authority)
