// The job with franz-go and a go-redis pipeline a batch; claims that are held are remembered here.
//
// It may lose notifications where the process dies between the claim in Redis and the
// acknowledgement. Arguments: the number of records, and a processor that is ignored: the caller
// has pinned the process.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	json "github.com/goccy/go-json"
	"github.com/redis/go-redis/v9"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	batch       = 5000
	mostHeld    = 1_000_000
	instantForm = "2006-01-02T15:04:05-0700"
)

type claim struct {
	campaign int
	udid     string
}

// asked is a claim that Redis is asked for.
type asked struct {
	claim    claim
	record   *kgo.Record
	seen     detection
	campaign *campaign
	at       time.Time
	answer   *redis.BoolCmd
}

type worker struct {
	kafka     *kgo.Client
	redis     *redis.Client
	campaigns map[place][]campaign
	held      map[claim]int64 // until, in seconds
	maxAge    time.Duration
	watch     stopwatch
}

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	wanted, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	w, err := newWorker(wanted)
	if err != nil {
		return err
	}
	defer w.kafka.Close()
	for w.watch.done < w.watch.wanted {
		fetched := w.kafka.PollRecords(ctx, batch)
		if err := fetched.Err(); err != nil {
			return err
		}
		records := fetched.Records()
		sent, err := w.handle(ctx, records)
		if err != nil {
			return err
		}
		if err := w.kafka.CommitUncommittedOffsets(ctx); err != nil {
			return err
		}
		w.watch.note(len(records), sent)
	}
	return nil
}

func newWorker(wanted int) (*worker, error) {
	campaigns, err := campaignsByBeacon()
	if err != nil {
		return nil, err
	}
	age, err := strconv.ParseFloat(os.Getenv("BENCH_MAX_AGE"), 64)
	if err != nil {
		return nil, err
	}
	options, err := redis.ParseURL(os.Getenv("BENCH_REDIS"))
	if err != nil {
		return nil, err
	}
	kafka, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Getenv("BENCH_KAFKA"), ",")...),
		kgo.ConsumerGroup(os.Getenv("BENCH_GROUP")),
		kgo.ConsumeTopics(os.Getenv("BENCH_DETECTIONS")),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.DefaultProduceTopic(os.Getenv("BENCH_NOTIFICATIONS")),
		kgo.ProducerLinger(5*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	return &worker{
		kafka: kafka, redis: redis.NewClient(options), campaigns: campaigns,
		held: map[claim]int64{}, maxAge: time.Duration(age * float64(time.Second)),
		watch: stopwatch{wanted: wanted},
	}, nil
}

// handle decides a batch, takes its claims in one round trip, and publishes what was granted.
func (w *worker) handle(ctx context.Context, records []*kgo.Record) (int, error) {
	now := time.Now()
	pipeline := w.redis.Pipeline()
	var claims []*asked
	for _, record := range records {
		found, err := w.decide(ctx, record, now, pipeline)
		if err != nil {
			return 0, err
		}
		claims = append(claims, found...)
	}
	if len(claims) == 0 {
		return 0, nil
	}
	if _, err := pipeline.Exec(ctx); err != nil {
		return 0, err
	}
	return w.publish(ctx, claims, now)
}

func (w *worker) decide(
	ctx context.Context, record *kgo.Record, now time.Time, pipeline redis.Pipeliner,
) ([]*asked, error) {
	var seen detection
	if err := json.Unmarshal(record.Value, &seen); err != nil {
		return nil, err
	}
	at, err := time.Parse(instantForm, seen.DetectedAt)
	if err != nil {
		return nil, err
	}
	if !nearEnough(seen.Proximity) {
		return nil, nil
	}
	var claims []*asked
	campaigns := w.campaigns[place{strings.ToLower(seen.UUID), seen.Major, seen.Minor}]
	for number := range campaigns {
		each := &campaigns[number]
		if !each.fires(at, now, w.maxAge) {
			continue
		}
		// The key of the record is the device's udid.
		wanted := claim{each.number, string(record.Key)}
		if until, held := w.held[wanted]; held && at.Unix() < until {
			continue
		}
		key := "claim:" + strconv.Itoa(each.number) + ":" + wanted.udid
		claims = append(claims, &asked{
			claim: wanted, record: record, seen: seen, campaign: each, at: at,
			answer: pipeline.SetNX(ctx, key, 1, each.delay),
		})
	}
	return claims, nil
}

func (w *worker) publish(ctx context.Context, claims []*asked, now time.Time) (int, error) {
	if len(w.held) > mostHeld {
		w.held = map[claim]int64{}
	}
	var granted []*kgo.Record
	for _, each := range claims {
		w.held[each.claim] = each.at.Add(each.campaign.delay).Unix()
		if each.answer.Val() {
			id := fmt.Sprintf("%d-%d-%d", each.record.Partition, each.record.Offset, each.claim.campaign)
			value := each.campaign.notification(id, &each.seen, each.at, now)
			granted = append(granted, &kgo.Record{Key: each.record.Key, Value: value})
		}
	}
	return len(granted), w.kafka.ProduceSync(ctx, granted...).FirstErr()
}
