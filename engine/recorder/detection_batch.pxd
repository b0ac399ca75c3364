"""The detections of a batch, in C."""

from engine.kafka.detection_scan cimport FactsText, Text


# A detection. Instants are epoch seconds; `beacon` and `udid` are positions in the batch's lists.
# `other` is the position among the detections that the decoder has read, or -1: then `facts` and
# `ip` are parts of the record. `beacon` is -1 if the record is no detection.
cdef struct Entry:
    double detected_at
    double arrived_at
    int beacon
    int udid
    int zone
    int other
    FactsText facts
    Text ip


cdef class DetectionBatch:
    cdef readonly list keys, udids, others
    cdef dict numbers  # of the udids
    cdef list values
    cdef Entry *entries
    cdef Py_ssize_t size
    cdef int udid_number(self, object udid) except -1
    cdef int _put(self, Entry *entry, detection) except -1
