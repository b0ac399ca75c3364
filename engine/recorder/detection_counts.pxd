"""The detections of a batch that count, in C."""

from engine.recorder.detection_batch cimport DetectionBatch, Entry

cdef enum:
    FACTS = 5


# A device of a company, both by their positions in lists, and the positions of the last entries
# with each fact, or -1. `next` is the device with the same udid in another company, or -1. `id`
# is -1 until SQL has told it; `is_new` if it was created by this transaction.
cdef struct Device:
    int udid
    int company
    int next
    int last[FACTS]
    long long nb_beacon
    long long id
    bint is_test
    bint is_new
    int marked


cdef struct Place:
    long long beacon_id
    long long venue_id
    int company


cdef class Counted:
    cdef readonly object rule
    cdef readonly list places
    cdef readonly Py_ssize_t counted
    cdef DetectionBatch batch
    cdef Place *places_c
    cdef Device *devices
    cdef int *device_of
    cdef int *place_of
    cdef int *first_of
    cdef int device_count
    cdef list company_ids
    cdef dict company_numbers
    cdef int _place_positions(self, beacons) except -1
    cdef int _count(self) except -1
    cdef int _company(self, number) except -1
    cdef int _device(self, int udid, int company) noexcept
    cdef int _found_device(self, int udid, int company) noexcept
    cdef int _note_facts(self, Entry *entry, int i, Device *device) except -1
    cdef object _fact(self, int number, Device *device)
