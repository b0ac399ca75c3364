"""Finds settings of Kafka's security that contradict each other."""

_OAUTH = "OAUTHBEARER"
_OF_OAUTH = "kafka_sasl_oauth_"
_OF_A_PASSWORD = ("kafka_sasl_username", "kafka_sasl_password")
_REQUIRED_BY_OAUTH = tuple(_OF_OAUTH + name for name in ("token_url", "client_id", "client_secret"))


def kafka_security_fault(protocol: str, given: dict[str, object]) -> tuple[str, str] | None:
    """The setting that contradicts the others, and why; None if there is none.

    `given` has the settings that were set, by their names without the prefix.
    """
    tls, sasl = "SSL" in protocol.split("_"), protocol.startswith("SASL")
    of_sasl = [name for name in given if name.startswith("kafka_sasl_")]
    of_tls = [name for name in given if name.startswith("kafka_ssl_")]
    if not sasl and of_sasl:
        also = "SASL_SSL" if tls or of_tls else "SASL_SSL or SASL_PLAINTEXT"
        reason = f"has no effect with KAFKA_SECURITY_PROTOCOL {protocol}: set it to {also}"
        return of_sasl[0], reason
    if not tls and of_tls:
        also = "SASL_SSL" if sasl else "SSL or SASL_SSL"
        return of_tls[0], f"has no effect with KAFKA_SECURITY_PROTOCOL {protocol}: set it to {also}"
    if sasl and (fault := _sasl_fault(protocol, given)):
        return fault
    if "kafka_ssl_keyfile" in given and "kafka_ssl_certfile" not in given:
        return "kafka_ssl_certfile", "is required beside KAFKA_SSL_KEYFILE"
    return None


def _sasl_fault(protocol: str, given: dict[str, object]) -> tuple[str, str] | None:
    mechanism = given.get("kafka_sasl_mechanism", "PLAIN")
    if mechanism != _OAUTH:
        for name in given:
            if name.startswith(_OF_OAUTH):
                reason = f"has no effect with KAFKA_SASL_MECHANISM {mechanism}: set it to {_OAUTH}"
                return name, reason
        for name in _OF_A_PASSWORD:
            if name not in given:
                return name, f"is required by KAFKA_SECURITY_PROTOCOL {protocol}"
        return None
    for name in _OF_A_PASSWORD:
        if name in given:
            return name, f"has no effect with KAFKA_SASL_MECHANISM {_OAUTH}"
    for name in _REQUIRED_BY_OAUTH:
        if name not in given:
            return name, f"is required by KAFKA_SASL_MECHANISM {_OAUTH}"
    return None
