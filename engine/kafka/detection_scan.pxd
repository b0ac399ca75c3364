"""Finds the fields of a detection in its JSON, without making objects. In C, by Cython.

`scan_detection` reads the usual JSON only: ASCII without escapes, numbers of at most 15 digits
without an exponent, no required field twice (of the others the last one counts), no nested value
but `device`. Whatever it accepts, the decoder (detections.py) accepts too, with the same content;
it accepts less. Each function that reads
returns the position after what it has read, or NULL if that is not usual. The text of a bytes
object ends with a NUL, which is part of no token, so nothing reads beyond it.
"""

from libc.string cimport memcmp


cdef enum:
    _MOST_DIGITS = 15  # of a number, so that they are exact in a double


# A part of the JSON; of size -1 if the field is missing or null.
cdef struct Text:
    const char *at
    Py_ssize_t size


# What a message says of its device besides the udid; `id_connector` has only digits.
cdef struct FactsText:
    Text name
    Text version
    Text model
    Text token_push
    Text id_connector


# `zone` is a name or a digit, `major` and `minor` have only digits. If there is no `zone` there is
# `rssi`.
cdef struct DetectionText:
    Text uuid
    Text major
    Text minor
    Text udid
    Text zone
    Text rssi
    Text tx_power
    Text detected_at
    Text ip
    FactsText facts
    bint detected_at_is_number


cdef inline const char *_after_space(const char *at) noexcept nogil:
    while at[0] == b" " or at[0] == b"\n" or at[0] == b"\t" or at[0] == b"\r":
        at += 1
    return at


cdef inline const char *_string(const char *at, Text *found) noexcept nogil:
    cdef unsigned char byte
    if at[0] != b'"':
        return NULL
    at += 1
    found.at = at
    while at[0] != b'"':
        byte = <unsigned char>at[0]
        if byte < 0x20 or byte > 0x7E or byte == b"\\":
            return NULL
        at += 1
    found.size = at - found.at
    return at + 1


cdef inline const char *_integer(const char *at, Text *found) noexcept nogil:
    found.at = at
    while b"0" <= at[0] <= b"9":
        at += 1
    found.size = at - found.at
    if not 1 <= found.size <= _MOST_DIGITS or (found.at[0] == b"0" and found.size > 1):
        return NULL
    return at


cdef inline const char *_number(const char *at, Text *found) noexcept nogil:
    cdef Text digits
    cdef const char *begin = at
    cdef const char *fraction
    if at[0] == b"-":
        at += 1
    at = _integer(at, &digits)
    if at == NULL:
        return NULL
    if at[0] == b".":
        fraction = at = at + 1
        while b"0" <= at[0] <= b"9":
            at += 1
        if at == fraction or digits.size + at - fraction > _MOST_DIGITS:
            return NULL
    found.at = begin
    found.size = at - begin
    return at


cdef inline double number_of(Text *number) noexcept nogil:
    """The value of a number that was read."""
    cdef double value = 0, scale = 0
    cdef Py_ssize_t i
    for i in range(number.size):
        if number.at[i] == b".":
            scale = 1
        elif number.at[i] != b"-":
            value = 10 * value + (number.at[i] - c"0")
            scale *= 10
    if scale:
        value /= scale
    return -value if number.at[0] == b"-" else value


cdef inline const char *_word(const char *at, const char *word, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(size):
        if at[i] != word[i]:
            return NULL
    return at + size


cdef inline const char *_null(const char *at, Text *found) noexcept nogil:
    found.size = -1
    return _word(at, b"null", 4)


cdef inline const char *_text_or_null(const char *at, Text *found) noexcept nogil:
    return _string(at, found) if at[0] == b'"' else _null(at, found)


cdef inline const char *_number_or_null(const char *at, Text *found) noexcept nogil:
    return _null(at, found) if at[0] == b"n" else _number(at, found)


cdef inline const char *_integer_or_null(const char *at, Text *found) noexcept nogil:
    return _null(at, found) if at[0] == b"n" else _integer(at, found)


cdef inline const char *_scalar(const char *at, Text *found) noexcept nogil:
    if at[0] == b"t":
        return _word(at, b"true", 4)
    if at[0] == b"f":
        return _word(at, b"false", 5)
    return _string(at, found) if at[0] == b'"' else _number_or_null(at, found)


cdef inline const char *_first_string(const char *at, Text *found) noexcept nogil:
    return _string(at, found) if found.size < 0 else NULL


cdef inline const char *_first_digits(const char *at, Text *found) noexcept nogil:
    """`major` or `minor`: an integer, or a string of digits."""
    cdef Py_ssize_t i
    if found.size >= 0:
        return NULL
    if at[0] != b'"':
        return _integer(at, found)
    at = _string(at, found)
    if at == NULL:
        return NULL
    for i in range(found.size):
        if not b"0" <= found.at[i] <= b"9":
            return NULL
    return at


cdef inline const char *_name(const char *at, Text *found) noexcept nogil:
    """The name of a field, with its colon."""
    at = _string(at, found)
    if at == NULL:
        return NULL
    at = _after_space(at)
    return _after_space(at + 1) if at[0] == b":" else NULL


cdef inline bint _is(Text *name, const char *word, Py_ssize_t size) noexcept nogil:
    return name.size == size and memcmp(name.at, word, size) == 0


# Reads the value of the field `name`.
ctypedef const char *(*_ReadField)(const char *at, Text *name, DetectionText *found) noexcept nogil


cdef inline const char *_object(
    const char *at, _ReadField read_field, DetectionText *found
) noexcept nogil:
    """An object with at least one field."""
    cdef Text name
    if at[0] != b"{":
        return NULL
    while True:
        at = _name(_after_space(at + 1), &name)
        if at == NULL:
            return NULL
        at = read_field(at, &name, found)
        if at == NULL:
            return NULL
        at = _after_space(at)
        if at[0] == b"}":
            return at + 1
        if at[0] != b",":
            return NULL


cdef inline const char *_device_field(
    const char *at, Text *name, DetectionText *found
) noexcept nogil:
    cdef Text ignored
    if _is(name, b"udid", 4):
        return _first_string(at, &found.udid)
    if _is(name, b"name", 4):
        return _text_or_null(at, &found.facts.name)
    if _is(name, b"version", 7):
        return _text_or_null(at, &found.facts.version)
    if _is(name, b"model", 5):
        return _text_or_null(at, &found.facts.model)
    if _is(name, b"token_push", 10):
        return _text_or_null(at, &found.facts.token_push)
    if _is(name, b"id_connector", 12):
        return _integer_or_null(at, &found.facts.id_connector)
    return _scalar(at, &ignored)


cdef inline const char *_device(const char *at, DetectionText *found) noexcept nogil:
    if found.udid.size >= 0:
        return NULL
    at = _object(at, _device_field, found)
    return at if found.udid.size > 0 else NULL


cdef inline const char *_zone(const char *at, Text *found) noexcept nogil:
    return _integer(at, found) if b"0" <= at[0] <= b"9" else _text_or_null(at, found)


cdef inline const char *_detected_at(const char *at, DetectionText *found) noexcept nogil:
    found.detected_at_is_number = b"0" <= at[0] <= b"9"
    if found.detected_at_is_number:
        return _integer(at, &found.detected_at)
    return _text_or_null(at, &found.detected_at)


cdef inline const char *_detection_field(
    const char *at, Text *name, DetectionText *found
) noexcept nogil:
    cdef Text ignored
    if _is(name, b"uuid", 4):
        return _first_string(at, &found.uuid)
    if _is(name, b"major", 5):
        return _first_digits(at, &found.major)
    if _is(name, b"minor", 5):
        return _first_digits(at, &found.minor)
    if _is(name, b"device", 6):
        return _device(at, found)
    if _is(name, b"proximity", 9):
        return _zone(at, &found.zone)
    if _is(name, b"detected_at", 11):
        return _detected_at(at, found)
    if _is(name, b"rssi", 4):
        return _number_or_null(at, &found.rssi)
    if _is(name, b"tx_power", 8):
        return _number_or_null(at, &found.tx_power)
    if _is(name, b"ip", 2):
        return _text_or_null(at, &found.ip)
    return _scalar(at, &ignored)


cdef inline bint _is_whole(DetectionText *found) noexcept nogil:
    if found.uuid.size < 0 or found.major.size < 0 or found.minor.size < 0 or found.udid.size < 0:
        return False
    return found.zone.size >= 0 or found.rssi.size >= 0


cdef inline bint scan_detection(
    const char *at, Py_ssize_t size, DetectionText *found
) noexcept nogil:
    """Whether the text is the usual JSON of a detection."""
    cdef const char *end = at + size
    found.uuid.size = found.major.size = found.minor.size = found.udid.size = -1
    found.zone.size = found.rssi.size = found.tx_power.size = found.detected_at.size = -1
    found.facts.name.size = found.facts.version.size = found.facts.model.size = -1
    found.facts.token_push.size = found.facts.id_connector.size = found.ip.size = -1
    at = _object(_after_space(at), _detection_field, found)
    return at != NULL and _after_space(at) == end and _is_whole(found)
