"""What can go wrong between the topics and SQL, and what follows from each."""


class RecorderError(Exception):
    """The base of all errors of the recorder."""


class OffsetsError(RecorderError):
    """SQL and Kafka do not belong together. The process stops; the message says what to do."""


class WriteAgainError(RecorderError):
    """The same batch can be written, in a new transaction. Nothing of it is written yet."""

    reason = "conflict"


class AlreadyCountedError(WriteAgainError):
    """Another transaction has just counted one of the batch's notifications."""

    reason = "already_counted"


class DayPartitionCreatedError(WriteAgainError):
    """A day's partition was created while rows of that day were on their way elsewhere."""

    reason = "day_partition_created"


class ReadAgainError(RecorderError):
    """The batch is no longer true: its records have to be read again. Nothing of it is written."""

    reason = "stale"


class OffsetMovedError(ReadAgainError):
    """The offset in SQL is not the one that this recorder knows: another recorder has written, or
    this one has and the answer to its commit was lost."""

    reason = "offset_moved"


class CompanyDeletedError(ReadAgainError):
    """A company was deleted after it was looked up."""

    reason = "company_deleted"


class TransactionTooSlowError(ReadAgainError):
    """Again and again a transaction did not end in its time: the batch may be too large."""

    reason = "too_slow"
