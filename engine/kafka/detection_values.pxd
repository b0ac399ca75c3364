"""Values of the fields that detection_scan.pxd has found."""

from engine.kafka.detection_scan cimport DetectionText, Text

cdef enum:
    UNREADABLE_ZONE = -2

cdef object text_of(Text *text)
cdef bytes triple_of(DetectionText *text)
cdef int zone_of(DetectionText *text, double path_loss_exponent) noexcept


cdef class DetectionClock:
    cdef char _text[40]
    cdef Py_ssize_t _size
    cdef double _at
    cdef double detected_at(self, DetectionText *text, double arrived_at) except? -2.0
