# cython: language_level=3, boundscheck=False, wraparound=False
"""Reads the detections of a batch into C, without an object for each of them.

It reads what detections.py (engine.kafka) reads, with the same content, and leaves to the decoder
what it cannot read for certain; tests/property/recording/test_columns.py compares both.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.object cimport PyObject

from engine.kafka.detection_scan cimport DetectionText, scan_detection
from engine.kafka.detection_values cimport (
    UNREADABLE_ZONE, DetectionClock, text_of, triple_of, zone_of
)

from engine.kafka.detection_values import key_of
from engine.recorder.aggregate import arrived_at, stored_address, update_device

cdef enum:
    _LONGEST_UDID = 255
    _MOST_TRIPLES = 65_536

cdef long long _EXACT = 2**53  # milliseconds; up to here they are exact in a double


cdef class _Triple:
    """A triple as written: its key, and its position in the keys of batch `batch`."""

    cdef object key
    cdef long long batch
    cdef int number


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
    cdef double _path_loss_exponent
    cdef DetectionClock _clock
    cdef long long _batch

    def __init__(self, double path_loss_exponent):
        self._triples = {}
        self._path_loss_exponent = path_loss_exponent
        self._batch = 0
        self._clock = DetectionClock()

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
        entry.zone = zone_of(&text, self._path_loss_exponent)
        entry.detected_at = self._clock.detected_at(&text, entry.arrived_at)
        if entry.zone == UNREADABLE_ZONE or entry.detected_at < 0:
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
        cdef PyObject *found
        cdef _Triple triple
        written = triple_of(text)
        if written is None:
            return -1
        found = PyDict_GetItem(self._triples, written)
        if found == NULL:
            key = key_of(written)
            if key is None:
                return -1
            triple = self._triples[written] = _Triple.__new__(_Triple)
            triple.key = key
        else:
            triple = <_Triple>found
        if triple.batch != self._batch:
            triple.batch, triple.number = self._batch, len(batch.keys)
            batch.keys.append(triple.key)
        return triple.number
