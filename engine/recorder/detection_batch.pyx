# cython: language_level=3, boundscheck=False, wraparound=False
"""Reads the detections of a batch into C, without an object for each of them.

It reads what detections.py (engine.kafka) reads, with the same content, and leaves to the decoder
what it cannot read for certain; tests/property/recording/test_columns.py compares both.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject
from libc.math cimport pow
from libc.string cimport memcmp, memcpy

from engine.kafka.detection_scan cimport DetectionText, Text, number_of, scan_detection

from engine.kafka.detections import beacon_key
from engine.kafka.timestamps import LATEST_MS, parse_text
from engine.recorder.aggregate import arrived_at, stored_address, update_device
from rules.proximity import DEFAULT_TX_POWER, IMMEDIATE_BELOW, NEAR_UP_TO, USUAL_NAMES

cdef extern from "Python.h":
    int PyUnicode_1BYTE_KIND
    object PyUnicode_FromKindAndData(int kind, const void *buffer, Py_ssize_t size)

cdef enum:
    _LONGEST_UDID = 255
    _LONGEST_UUID = 36
    _MOST_DIGITS = 5
    _LONGEST_TRIPLE = 49  # of uuid, major and minor, each with a NUL
    _LONGEST_MEMO = 40
    _MOST_TRIPLES = 65_536
    # The numbers of rules.model.Zone.
    _UNKNOWN = 0
    _IMMEDIATE = 1
    _NEAR = 2
    _FAR = 3
    _UNREADABLE_ZONE = -2

cdef double _UNREADABLE = -1.0  # a time before 1970 is left to the decoder, too
cdef double _DEFAULT_TX_POWER = DEFAULT_TX_POWER
cdef double _IMMEDIATE_BELOW = IMMEDIATE_BELOW
cdef double _NEAR_UP_TO = NEAR_UP_TO
cdef long long _LATEST_MS = LATEST_MS
cdef long long _EXACT = 2**53  # milliseconds; up to here they are exact in a double


cdef class _Triple:
    """A triple as written: its key, and its position in the keys of batch `batch`."""

    cdef object key
    cdef long long batch
    cdef int number


# The text that was met last. The next record often has the same.
cdef struct _Memo:
    char text[_LONGEST_MEMO]
    Py_ssize_t size


cdef class DetectionBatch:
    """The detections of a batch. `keys` and `udids` have no repeats, but a key may be there in
    several spellings; `others` are (changes of the device, address) of what the decoder has read.
    """

    def __cinit__(self, Py_ssize_t size):
        self.keys, self.udids, self.others, self.numbers, self.values = [], [], [], {}, []
        self.entries = <Entry *>PyMem_Calloc(size + 1, sizeof(Entry))
        if self.entries == NULL:
            raise MemoryError
        self.size = size

    def __dealloc__(self):
        PyMem_Free(self.entries)

    cdef int udid_number(self, object udid) except -1:
        cdef PyObject *found = PyDict_GetItem(self.numbers, udid)
        if found != NULL:
            return <int><object>found
        self.numbers[udid] = len(self.udids)
        self.udids.append(udid)
        return len(self.udids) - 1

    def fill(self, list messages, dead_positions):
        """Put the decoder's detections in their places, in order; `dead_positions` are the
        positions, among the records that it got, of those that are no detections."""
        cdef set dead = set(dead_positions)
        cdef Entry *entry
        cdef Py_ssize_t i
        cdef int asked = 0
        decoded = iter(messages)
        for i in range(self.size):
            entry = &self.entries[i]
            if entry.other >= 0:
                if asked not in dead:
                    self._put(entry, next(decoded))
                asked += 1

    cdef int _put(self, Entry *entry, detection) except -1:
        entry.detected_at, entry.arrived_at = detection.detected_at, arrived_at(detection.record)
        entry.zone = detection.zone
        message = detection.message
        entry.udid = self.udid_number(message.device.udid)
        entry.beacon = len(self.keys)
        self.keys.append(detection.key)
        entry.other = len(self.others)
        changes = update_device({}, None, message.device)
        self.others.append((changes, stored_address(message.ip)))
        return 0


cdef class DetectionScanner:
    """Reads batches of all partitions. `path_loss_exponent` is that of the settings."""

    cdef dict _triples
    cdef double _path_loss_exponent, _last_at
    cdef long long _batch
    cdef _Memo _time, _zone_name
    cdef int _last_zone

    def __init__(self, double path_loss_exponent):
        self._triples = {}
        self._path_loss_exponent = path_loss_exponent
        self._batch = 0
        self._time.size = self._zone_name.size = -1

    def read(self, list records):
        """The batch, and the records that the decoder must read for it (`fill`)."""
        cdef DetectionBatch batch = DetectionBatch(len(records))
        cdef list others = []
        cdef Py_ssize_t i
        self._batch += 1
        if len(self._triples) > _MOST_TRIPLES:
            self._triples.clear()
        for i in range(len(records)):
            record = records[i]
            batch.entries[i].other = -1
            if not self._read(record, batch, &batch.entries[i]):
                batch.entries[i].beacon, batch.entries[i].other = -1, len(others)
                others.append(record)
        return batch, others

    cdef bint _read(self, record, DetectionBatch batch, Entry *entry) except -1:
        cdef DetectionText text
        cdef long long timestamp
        value = record.value
        if type(value) is not bytes:
            return False
        if not scan_detection(PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value), &text):
            return False
        timestamp = record.timestamp
        if text.udid.size > _LONGEST_UDID or not -_EXACT < timestamp < _EXACT:
            return False
        entry.arrived_at = <double>timestamp / 1000
        entry.zone = self._zone(&text)
        entry.detected_at = self._detected_at(entry.arrived_at, &text)
        if entry.zone == _UNREADABLE_ZONE or entry.detected_at == _UNREADABLE:
            return False
        entry.beacon = self._beacon(batch, &text)
        if entry.beacon < 0:
            return False
        entry.udid = batch.udid_number(text_of(&text.udid))
        entry.facts, entry.ip = text.facts, text.ip
        batch.values.append(value)  # `facts` and `ip` point into it
        return True

    cdef int _beacon(self, DetectionBatch batch, DetectionText *text) except -2:
        """The position of the beacon's key, or -1 if this is no triple."""
        cdef char written[_LONGEST_TRIPLE]
        cdef Py_ssize_t size
        cdef PyObject *found
        cdef _Triple triple
        if text.uuid.size > _LONGEST_UUID:
            return -1
        if text.major.size > _MOST_DIGITS or text.minor.size > _MOST_DIGITS:
            return -1
        size = _append(written, 0, &text.uuid)
        size = _append(written, size, &text.major)
        size = _append(written, size, &text.minor)
        spelling = PyBytes_FromStringAndSize(written, size)
        found = PyDict_GetItem(self._triples, spelling)
        if found == NULL:
            triple = self._new_triple(spelling)
            if triple is None:
                return -1
        else:
            triple = <_Triple>found
        if triple.batch != self._batch:
            triple.batch, triple.number = self._batch, len(batch.keys)
            batch.keys.append(triple.key)
        return triple.number

    cdef _Triple _new_triple(self, bytes spelling):
        cdef _Triple triple = _Triple.__new__(_Triple)
        uuid, major, minor, _ = spelling.decode().split("\0")
        try:
            triple.key = beacon_key(uuid, major, minor)
        except ValueError:
            return None
        self._triples[spelling] = triple
        return triple

    cdef int _zone(self, DetectionText *text) except -3:
        cdef double rssi, power, metres
        if text.zone.size >= 0:
            return self._zone_named(&text.zone)
        rssi = number_of(&text.rssi)
        if not rssi < 0:
            return _UNKNOWN
        power = number_of(&text.tx_power) if text.tx_power.size >= 0 else _DEFAULT_TX_POWER
        metres = pow(10.0, (power - rssi) / (10 * self._path_loss_exponent))
        if metres < _IMMEDIATE_BELOW:
            return _IMMEDIATE
        return _NEAR if metres <= _NEAR_UP_TO else _FAR

    cdef int _zone_named(self, Text *name) except -3:
        if name.size > _LONGEST_MEMO:
            return _UNREADABLE_ZONE
        if not _is_same(&self._zone_name, name):
            zone = USUAL_NAMES.get(text_of(name))
            if zone is None:
                return _UNREADABLE_ZONE
            self._last_zone = zone
            _note(&self._zone_name, name)
        return self._last_zone

    cdef double _detected_at(self, double arrived, DetectionText *text) except? -2.0:
        cdef double milliseconds
        if text.detected_at.size < 0:
            return arrived if arrived >= 0 else _UNREADABLE
        if text.detected_at_is_number:
            milliseconds = number_of(&text.detected_at)
            return milliseconds / 1000 if milliseconds <= _LATEST_MS else _UNREADABLE
        if text.detected_at.size > _LONGEST_MEMO:
            return _UNREADABLE
        if not _is_same(&self._time, &text.detected_at):
            try:
                self._last_at = parse_text(text_of(&text.detected_at))
            except ValueError:
                return _UNREADABLE
            _note(&self._time, &text.detected_at)
        return self._last_at if self._last_at >= 0 else _UNREADABLE


cdef object text_of(Text *text):
    """The text as str; it is ASCII."""
    return PyUnicode_FromKindAndData(PyUnicode_1BYTE_KIND, text.at, text.size)


cdef inline Py_ssize_t _append(char *triple, Py_ssize_t size, Text *part) noexcept:
    memcpy(triple + size, part.at, part.size)
    triple[size + part.size] = 0
    return size + part.size + 1


cdef inline bint _is_same(_Memo *memo, Text *text) noexcept:
    return text.size == memo.size and memcmp(text.at, memo.text, text.size) == 0


cdef inline void _note(_Memo *memo, Text *text) noexcept:
    memcpy(memo.text, text.at, text.size)
    memo.size = text.size
