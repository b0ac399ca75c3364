"""Finds the fields of a detection in its JSON, without making objects. In C, by Cython.

`scan_detection` reads the usual JSON only: ASCII without escapes, numbers of at most 15 digits
without an exponent, no known field twice, no text that is too long, no nested value but `device`.
Whatever it accepts, the decoder (engine/kafka/detections.py) accepts too, with the same content; it
accepts less. Each function that reads returns the position after what it has read, or NULL if that
is not usual. The text of a bytes object ends with a NUL, which is part of no token, so nothing
reads beyond it.
"""

from libc.string cimport memcmp


cdef enum:
    _MOST_DIGITS = 15  # of a number, so that they are exact in a double
    _LONGEST_UDID = 255
    _LONGEST_TOKEN = 4096
    _LONGEST_WORD = 128
    _LONGEST_IP = 64
    _NULL = -1
    _MISSING = -2


# A part of the JSON; its size is below 0 if the field is missing or null.
cdef struct Text:
    const char *at
    Py_ssize_t size


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
    Text name
    Text version
    Text model
    Text token_push
    Text id_connector
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
    found.size = _NULL
    return _word(at, b"null", 4)


cdef inline const char *_text_or_null(
    const char *at, Text *found, Py_ssize_t longest
) noexcept nogil:
    at = _string(at, found) if at[0] == b'"' else _null(at, found)
    return at if found.size <= longest else NULL


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


cdef inline const char *_digits(const char *at, Text *found) noexcept nogil:
    """`major` or `minor`: an integer, or a string of digits."""
    cdef Py_ssize_t i
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
        return _string(at, &found.udid) if found.udid.size == _MISSING else NULL
    if _is(name, b"name", 4):
        return _first_text(at, &found.name, _LONGEST_WORD)
    if _is(name, b"version", 7):
        return _first_text(at, &found.version, _LONGEST_WORD)
    if _is(name, b"model", 5):
        return _first_text(at, &found.model, _LONGEST_WORD)
    if _is(name, b"token_push", 10):
        return _first_text(at, &found.token_push, _LONGEST_TOKEN)
    if _is(name, b"id_connector", 12):
        if found.id_connector.size != _MISSING:
            return NULL
        return _integer_or_null(at, &found.id_connector)
    if _is_reserved(name):
        return NULL
    return _scalar(at, &ignored)


cdef inline const char *_first_text(const char *at, Text *found, Py_ssize_t longest) noexcept nogil:
    return _text_or_null(at, found, longest) if found.size == _MISSING else NULL


cdef inline const char *_device(const char *at, DetectionText *found) noexcept nogil:
    if found.udid.size != _MISSING:
        return NULL
    at = _object(at, _device_field, found)
    return at if 0 < found.udid.size <= _LONGEST_UDID else NULL


cdef inline const char *_zone(const char *at, Text *found) noexcept nogil:
    if found.size != _MISSING:
        return NULL
    return _integer(at, found) if b"0" <= at[0] <= b"9" else _text_or_null(at, found, _LONGEST_WORD)


cdef inline const char *_detected_at(const char *at, DetectionText *found) noexcept nogil:
    if found.detected_at.size != _MISSING:
        return NULL
    found.detected_at_is_number = b"0" <= at[0] <= b"9"
    if found.detected_at_is_number:
        return _integer(at, &found.detected_at)
    return _text_or_null(at, &found.detected_at, _LONGEST_WORD)


cdef inline const char *_detection_field(
    const char *at, Text *name, DetectionText *found
) noexcept nogil:
    cdef Text ignored
    if _is(name, b"uuid", 4):
        return _string(at, &found.uuid) if found.uuid.size == _MISSING else NULL
    if _is(name, b"major", 5):
        return _digits(at, &found.major) if found.major.size == _MISSING else NULL
    if _is(name, b"minor", 5):
        return _digits(at, &found.minor) if found.minor.size == _MISSING else NULL
    if _is(name, b"device", 6):
        return _device(at, found)
    if _is(name, b"proximity", 9):
        return _zone(at, &found.zone)
    if _is(name, b"detected_at", 11):
        return _detected_at(at, found)
    if _is(name, b"rssi", 4):
        return _number_or_null(at, &found.rssi) if found.rssi.size == _MISSING else NULL
    if _is(name, b"tx_power", 8):
        return _number_or_null(at, &found.tx_power) if found.tx_power.size == _MISSING else NULL
    if _is(name, b"ip", 2):
        return _first_text(at, &found.ip, _LONGEST_IP)
    if _is_reserved(name):
        return NULL
    return _scalar(at, &ignored)


cdef inline bint _is_reserved(Text *name) noexcept nogil:
    """Whether the contract knows the field and this scanner does not."""
    return (
        _is(name, b"geofence", 8)
        or _is(name, b"position", 8)
        or _is(name, b"tag", 3)
        or _is(name, b"api_key", 7)
        or _is(name, b"time_zone", 9)
    )


cdef inline bint _is_whole(DetectionText *found) noexcept nogil:
    if found.uuid.size < 0 or found.major.size < 0 or found.minor.size < 0 or found.udid.size < 0:
        return False
    return found.zone.size >= 0 or found.rssi.size >= 0


cdef inline bint scan_detection(
    const char *at, Py_ssize_t size, DetectionText *found
) noexcept nogil:
    """Whether the text is the usual JSON of a detection."""
    cdef const char *end = at + size
    found.uuid.size = found.major.size = found.minor.size = found.udid.size = _MISSING
    found.zone.size = found.rssi.size = found.tx_power.size = found.detected_at.size = _MISSING
    found.name.size = found.version.size = found.model.size = found.token_push.size = _MISSING
    found.id_connector.size = found.ip.size = _MISSING
    at = _object(_after_space(at), _detection_field, found)
    return at != NULL and _after_space(at) == end and _is_whole(found)
