"""Finds the fields of a detection in its JSON, without making objects. In C, by Cython.

`scan_detection` reads the usual JSON only: printable ASCII without escapes, numbers of at most 15
digits without an exponent, no field twice whose content counts, no text that is too long, one
place, no nested value but that and `device`.
Whatever it accepts, the decoder (engine/kafka/detections.py) accepts too, with the same content; it
accepts less. Each function that reads returns the position after what it has read, or NULL if that
is not usual. The text of a bytes object ends with a NUL, which is part of no token, so nothing
reads beyond it.
"""

from libc.math cimport INFINITY, isnan
from libc.stdlib cimport strtod
from libc.string cimport memcmp, memset, strchr


cdef enum:
    _MOST_DIGITS = 15  # of a number, so that they are exact in a double
    _LONGEST_UDID = 255
    _LONGEST_TOKEN = 4096
    _LONGEST_WORD = 128
    _LONGEST_IP = 64
    _LONGEST_VALUE = 1024
    _LONGEST_KEY = 255
    _MISSING = -1
    _NULL = -2

# What names the place of a detection.
cdef enum:
    BEACON
    GEOFENCE
    POSITION
    TAG


# A part of the JSON; its size is below 0 if the field is missing or null.
cdef struct Text:
    const char *at
    Py_ssize_t size


# `zone` is a name or a digit, `major` and `minor` have only digits. A beacon has `zone` or `rssi`,
# a position and a tag have `api_key`. `accuracy` is NaN if there is none.
cdef struct DetectionText:
    int place
    Text id
    Text transition
    double latitude
    double longitude
    double accuracy
    Text kind
    Text value
    Text api_key
    Text uuid
    Text major
    Text minor
    Text device
    Text udid
    Text zone
    Text rssi
    Text tx_power
    Text detected_at
    bint detected_at_is_number


cdef inline bint _is_printable(const char *text, Py_ssize_t size) noexcept nogil:
    """Whether all is printable ASCII without escapes. (Compilers make many bytes at once of it.)"""
    cdef unsigned char others = 0
    cdef Py_ssize_t i
    for i in range(size):
        others |= (<unsigned char>(text[i] - 0x20) > 0x5E) | (text[i] == b"\\")
    return not others


cdef inline const char *_after_space(const char *at) noexcept nogil:
    while at[0] == b" ":
        at += 1
    return at


cdef inline const char *_string(const char *at, Text *found) noexcept nogil:
    if at[0] != b'"':
        return NULL
    found.at = at + 1
    at = strchr(found.at, b'"')
    if at == NULL:
        return NULL
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
        if at == fraction:
            return NULL
    found.at = begin
    found.size = at - begin
    return at


cdef inline double number_of(Text *number) noexcept nogil:
    """The value of a number that was read."""
    return strtod(number.at, NULL)


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
    if _is(name, b"name", 4) or _is(name, b"version", 7) or _is(name, b"model", 5):
        return _text_or_null(at, &ignored, _LONGEST_WORD)
    if _is(name, b"token_push", 10):
        return _text_or_null(at, &ignored, _LONGEST_TOKEN)
    if _is(name, b"id_connector", 12):
        return _integer_or_null(at, &ignored)
    if _is(name, b"time_zone", 9):  # the decoder looks it up
        return NULL
    return _scalar(at, &ignored)


cdef inline const char *_device(const char *at, DetectionText *found) noexcept nogil:
    if found.udid.size != _MISSING:
        return NULL
    found.device.at = at
    at = _object(at, _device_field, found)
    found.device.size = at - found.device.at
    return at if 0 < found.udid.size <= _LONGEST_UDID else NULL


cdef inline const char *_geofence_field(
    const char *at, Text *name, DetectionText *found
) noexcept nogil:
    """A geofence that was left is no detection."""
    cdef Text ignored
    if _is(name, b"id", 2):
        return _integer(at, &found.id) if found.id.size == _MISSING and at[0] != b"0" else NULL
    if not _is(name, b"transition", 10):
        return _scalar(at, &ignored)
    at = _string(at, &found.transition)
    if at == NULL or _is(&found.transition, b"enter", 5) or _is(&found.transition, b"dwell", 5):
        return at
    return NULL


cdef inline const char *_position_field(
    const char *at, Text *name, DetectionText *found
) noexcept nogil:
    cdef Text ignored
    if _is(name, b"latitude", 8):
        return _from_to(at, &found.latitude, -90, 90)
    if _is(name, b"longitude", 9):
        return _from_to(at, &found.longitude, -180, 180)
    if _is(name, b"accuracy", 8):
        return _from_to(at, &found.accuracy, 0, INFINITY)
    return _scalar(at, &ignored)


cdef inline const char *_from_to(
    const char *at, double *found, double least, double most
) noexcept nogil:
    cdef Text number
    if not isnan(found[0]):
        return NULL
    at = _number(at, &number)
    if at == NULL:
        return NULL
    found[0] = number_of(&number)
    return at if least <= found[0] <= most else NULL


cdef inline const char *_tag_field(const char *at, Text *name, DetectionText *found) noexcept nogil:
    cdef Text ignored
    if _is(name, b"kind", 4):
        return _string(at, &found.kind) if found.kind.size == _MISSING else NULL
    if _is(name, b"value", 5):
        return _string(at, &found.value) if found.value.size == _MISSING else NULL
    return _scalar(at, &ignored)


cdef inline const char *_other_place(
    const char *at, int place, DetectionText *found
) noexcept nogil:
    """A place that is no beacon."""
    if found.place != BEACON:
        return NULL
    found.place = place
    if place == GEOFENCE:
        at = _object(at, _geofence_field, found)
        return at if found.id.size > 0 and found.transition.size > 0 else NULL
    if place == POSITION:
        at = _object(at, _position_field, found)
        return at if not isnan(found.latitude) and not isnan(found.longitude) else NULL
    at = _object(at, _tag_field, found)
    if not _is(&found.kind, b"nfc", 3) and not _is(&found.kind, b"qrcode", 6):
        return NULL
    return at if 0 < found.value.size <= _LONGEST_VALUE else NULL


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
        return _text_or_null(at, &ignored, _LONGEST_IP)
    if _is(name, b"geofence", 8):
        return _other_place(at, GEOFENCE, found)
    if _is(name, b"position", 8):
        return _other_place(at, POSITION, found)
    if _is(name, b"tag", 3):
        return _other_place(at, TAG, found)
    if _is(name, b"api_key", 7):
        if found.api_key.size != _MISSING:
            return NULL
        return _text_or_null(at, &found.api_key, _LONGEST_KEY)
    return _scalar(at, &ignored)


cdef inline bint _is_whole(DetectionText *found) noexcept nogil:
    if found.udid.size < 0 or found.api_key.size == 0:
        return False
    if found.place == BEACON:
        if found.uuid.size < 0 or found.major.size < 0 or found.minor.size < 0:
            return False
        return found.zone.size >= 0 or found.rssi.size >= 0
    if found.uuid.size >= 0 or found.major.size >= 0 or found.minor.size >= 0:
        return False
    # (Nobody looks at the zone, whose form the decoder checks.)
    return found.zone.size < 0 and (found.place == GEOFENCE or found.api_key.size > 0)


cdef inline bint scan_detection(
    const char *at, Py_ssize_t size, DetectionText *found
) noexcept nogil:
    """Whether the text is the usual JSON of a detection."""
    cdef const char *end = at + size
    if not _is_printable(at, size):
        return False
    memset(found, 0xFF, sizeof(found[0]))  # every size is _MISSING, every double NaN
    found.place = BEACON
    at = _object(_after_space(at), _detection_field, found)
    return at != NULL and _after_space(at) == end and _is_whole(found)
