"""The errors between the topics and SQL, and what the recorder does about each."""


class RecorderError(Exception):
    """The base of all errors of the recorder."""


class OffsetsError(RecorderError):
    """SQL and Kafka do not belong together. The process stops; the message says what to do."""


class WriteAgainError(RecorderError):
    """The batch can be written again in a new transaction. None of it is written yet."""

    reason = "conflict"


class AlreadyCountedError(WriteAgainError):
    """Another transaction has just counted one of the batch's notifications."""

    reason = "already_counted"


class NewDeviceCountedError(WriteAgainError):
    """A device has figures already, although SQL called it new. From now on SQL is not asked."""

    reason = "new_device_counted"


class DayPartitionCreatedError(WriteAgainError):
    """The partition of a day was created while rows of that day were being written elsewhere."""

    reason = "day_partition_created"


class ReadAgainError(RecorderError):
    """The batch is out of date and its records must be read again. None of it is written."""

    reason = "stale"


class OffsetMovedError(ReadAgainError):
    """The offset in SQL is not the one that this recorder expects.

    Another recorder has written, or this one has and the answer to its commit was lost.
    """

    reason = "offset_moved"


class CompanyDeletedError(ReadAgainError):
    """A company was deleted after it was looked up."""

    reason = "company_deleted"


class TransactionTooSlowError(ReadAgainError):
    """A transaction has timed out several times: the batch may be too large."""

    reason = "too_slow"
