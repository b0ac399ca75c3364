package main

import (
	"os"
	"strconv"
	"strings"
	"time"

	json "github.com/goccy/go-json"
)

const lifetime = 300 * time.Second

// A detection as far as the job looks at it; the device goes into the notification as it came.
type detection struct {
	UUID       string          `json:"uuid"`
	Major      int             `json:"major"`
	Minor      int             `json:"minor"`
	Proximity  string          `json:"proximity"`
	Device     json.RawMessage `json:"device"`
	DetectedAt string          `json:"detected_at"`
}

type place struct {
	uuid         string
	major, minor int
}

// A campaign of one beacon. constant is what each of its notifications says, without the last brace.
type campaign struct {
	number     int
	delay      time.Duration
	start, end float64
	constant   []byte
}

type catalogEntry struct {
	UUID   string          `json:"uuid"`
	Major  int             `json:"major"`
	Minor  int             `json:"minor"`
	Delay  int             `json:"delay"`
	Start  float64         `json:"start"`
	End    float64         `json:"end"`
	Fields json.RawMessage `json:"fields"`
}

func campaignsByBeacon() (map[place][]campaign, error) {
	written, err := os.ReadFile(os.Getenv("BENCH_CATALOG"))
	if err != nil {
		return nil, err
	}
	var entries []catalogEntry
	if err := json.Unmarshal(written, &entries); err != nil {
		return nil, err
	}
	found := make(map[place][]campaign, len(entries))
	for _, each := range entries {
		var fields struct {
			Campaign struct {
				ID int `json:"id"`
			} `json:"campaign"`
		}
		if err := json.Unmarshal(each.Fields, &fields); err != nil {
			return nil, err
		}
		at := place{strings.ToLower(each.UUID), each.Major, each.Minor}
		found[at] = append(found[at], campaign{
			number:   fields.Campaign.ID,
			delay:    time.Duration(each.Delay) * time.Second,
			start:    each.Start,
			end:      each.End,
			constant: each.Fields[:len(each.Fields)-1],
		})
	}
	return found, nil
}

func nearEnough(proximity string) bool {
	return proximity == "immediate" || proximity == "near" || proximity == "far"
}

// fires says whether the campaign is open for a detection of that moment.
func (c *campaign) fires(at, now time.Time, maxAge time.Duration) bool {
	if age := now.Sub(at); age > maxAge || age < -maxAge {
		return false
	}
	seconds := float64(at.UnixMicro()) / 1e6
	return c.start <= seconds && seconds <= c.end
}

func (c *campaign) notification(id string, seen *detection, at, now time.Time) []byte {
	value := make([]byte, 0, len(c.constant)+len(seen.Device)+256)
	value = append(value, c.constant...)
	value = append(value, `,"id":"`...)
	value = append(value, id...)
	value = append(value, `","proximity":`...)
	value = strconv.AppendQuote(value, seen.Proximity)
	value = append(value, `,"device":`...)
	value = append(value, seen.Device...)
	value = appendInstant(value, `,"detected_at":"`, at)
	value = appendInstant(value, `,"triggered_at":"`, now)
	value = appendInstant(value, `,"expires_at":"`, at.Add(lifetime))
	return append(value, '}')
}

func appendInstant(value []byte, name string, at time.Time) []byte {
	value = append(value, name...)
	value = at.UTC().AppendFormat(value, "2006-01-02T15:04:05-0700")
	return append(value, '"')
}
