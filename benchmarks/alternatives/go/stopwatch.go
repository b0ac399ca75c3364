package main

import (
	"encoding/json"
	"fmt"
	"syscall"
	"time"
)

// Stopwatch runs from the first tenth of the records to the last one.
type stopwatch struct {
	wanted, done, first, notifications int
	begin                              time.Time
	processor                          time.Duration
}

func (w *stopwatch) note(records, notifications int) {
	w.done += records
	w.notifications += notifications
	if w.first == 0 && w.done >= w.wanted/10 {
		w.first, w.begin = w.done, time.Now()
		w.processor = used()
	}
	if w.done >= w.wanted {
		w.print()
	}
}

func (w *stopwatch) print() {
	processor := used()
	line, _ := json.Marshal(map[string]any{
		"records":           w.done - w.first,
		"seconds":           time.Since(w.begin).Seconds(),
		"seconds_processor": (processor - w.processor).Seconds(),
		"notifications":     w.notifications,
	})
	fmt.Println(string(line))
}

// used is the processor time of all threads so far.
func used() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
