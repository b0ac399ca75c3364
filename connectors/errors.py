"""What can go wrong with a customer's connector (a failed call is `connectors.model.Failed`)."""


class ConnectorError(Exception):
    """Base of all errors below. The message never quotes a url, a request or a reply."""


class EgressError(ConnectorError):
    """A url must not or cannot be called. The message is for the person who wrote the url.

    It never holds the addresses: they may be those of the platform's own network.
    """


class UrlForbiddenError(EgressError):
    """The url leads where no connector may lead: only another url helps."""


class HostUnresolvedError(EgressError):
    """The host name does not resolve now: the same url may work later."""


class ReplyLimitError(ConnectorError, OSError):
    """A reply exceeds a limit; the message names the limit."""


class EndpointError(ConnectorError):
    """A stored connector cannot be used: its owner has to save it again, or SECRET_KEY is wrong."""


class NothingToTryError(ConnectorError):
    """There is no connector that a trial call could go to; the message says why."""


class CertificatesError(ConnectorError):
    """CONNECTOR_CA_FILE cannot be used: the process must not start."""
