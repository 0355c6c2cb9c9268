package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// Store is the outbox. Safe for concurrent use.
type Store interface {
	// Deliveries returns up to limit deliveries to a receiver that are due, oldest
	// first. One that has failed fewer than HoldTries times holds back the later
	// ones of its session.
	Deliveries(ctx context.Context, hook string, now time.Time, limit int) ([]Delivery, error)
	// NextDelivery is when the next one is due; false when none waits.
	NextDelivery(ctx context.Context, hook string) (time.Time, bool, error)
	// Delivered takes one out of the outbox, RetryDelivery counts a failure.
	Delivered(ctx context.Context, row int64) error
	RetryDelivery(ctx context.Context, row int64, next time.Time) error
	// ForgetDeliveries drops those of receivers that are not in keep.
	ForgetDeliveries(ctx context.Context, keep []string) (int64, error)
}

// Journal records that a delivery was given up.
type Journal interface {
	Commit(ctx context.Context, c journal.Change) (journal.Committed, error)
}

const (
	// HoldTries is how often a delivery may fail before later ones of its session
	// overtake it: about four minutes.
	HoldTries = 8

	parallel  = 4 // requests to one receiver at once
	batch     = 16
	firstWait = time.Second
	longWait  = time.Hour
	giveUp    = 24 * time.Hour
	timeout   = 15 * time.Second
	// storeWait is how long a store that fails is left alone.
	storeWait = 5 * time.Second
	answerMax = 64 << 10
)

// NoticeCode is the code of the notice that a delivery was given up.
const NoticeCode = "webhook.failed"

// Config configures a Deliverer. All but Client are required.
type Config struct {
	Hooks   []Hook
	Store   Store
	Journal Journal
	Now     func() time.Time
	// Rand is uniform in [0, 1).
	Rand func() float64
	// Warn hears of receivers that are given up and of a store that fails.
	Warn func(error)
	// Dial is for tests; nil dials.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Deliverer posts what is in the outbox. Safe for concurrent use.
type Deliverer struct {
	cfg    Config
	client *http.Client
	wakes  []chan struct{}
	stop   chan struct{}
	once   sync.Once
	run    sync.WaitGroup
	cancel atomic.Pointer[context.CancelFunc]
}

// New makes a deliverer; Start makes it work.
func New(cfg Config) *Deliverer {
	d := &Deliverer{cfg: cfg, stop: make(chan struct{})}
	for range cfg.Hooks {
		d.wakes = append(d.wakes, make(chan struct{}, 1))
	}
	dial := cfg.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	d.client = &http.Client{
		Timeout: timeout,
		// A redirect would carry what was signed for one address to another.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dial, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: parallel,
			IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: answerMax, DisableCompression: true,
		},
	}
	return d
}

// Wake says that the outbox has grown. It never blocks.
func (d *Deliverer) Wake() {
	for _, w := range d.wakes {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// Start begins to deliver, one goroutine for each receiver, until Close.
func (d *Deliverer) Start(ctx context.Context) error {
	var names []string
	for _, h := range d.cfg.Hooks {
		names = append(names, h.Name())
	}
	n, err := d.cfg.Store.ForgetDeliveries(ctx, names)
	if err != nil {
		return err
	}
	if n > 0 {
		d.cfg.Warn(fmt.Errorf("webhooks: %d deliveries to receivers that are configured no longer were dropped", n))
	}
	ctx, cancel := context.WithCancel(ctx)
	d.cancel.Store(&cancel)
	for i, h := range d.cfg.Hooks {
		d.run.Go(func() { d.serve(ctx, h, d.wakes[i]) })
	}
	return nil
}

// Close lets requests that are under way end, until ctx does, and begins no other.
// What is left is delivered by the next server. Idempotent.
func (d *Deliverer) Close(ctx context.Context) {
	d.once.Do(func() { close(d.stop) })
	done := make(chan struct{})
	go func() {
		d.run.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
	if cancel := d.cancel.Load(); cancel != nil {
		(*cancel)()
	}
	<-done
	d.client.CloseIdleConnections()
}

func (d *Deliverer) stopping() bool {
	select {
	case <-d.stop:
		return true
	default:
		return false
	}
}

// serve delivers to one receiver.
func (d *Deliverer) serve(ctx context.Context, h Hook, wake <-chan struct{}) {
	name := h.Name()
	for !d.stopping() {
		wait, err := d.round(ctx, h, name)
		if err != nil && !d.stopping() {
			d.cfg.Warn(err)
			wait = storeWait
		}
		if wait != 0 && !d.rest(wait, wake, err != nil) {
			return
		}
	}
}

// rest waits for a while, negative for ever, or until there is more to do; false:
// the deliverer closes.
func (d *Deliverer) rest(wait time.Duration, wake <-chan struct{}, deaf bool) bool {
	var due <-chan time.Time
	if wait > 0 {
		t := time.NewTimer(wait)
		defer t.Stop()
		due = t.C
	}
	if deaf {
		wake = nil
	}
	select {
	case <-d.stop:
		return false
	case <-wake:
	case <-due:
	}
	return true
}

// round delivers what is due and says how long to wait then: 0 when there may be
// more at once, negative when nothing waits.
func (d *Deliverer) round(ctx context.Context, h Hook, name string) (time.Duration, error) {
	due, err := d.cfg.Store.Deliveries(ctx, name, d.cfg.Now(), batch)
	if err != nil {
		return 0, err
	}
	if len(due) == 0 {
		next, ok, err := d.cfg.Store.NextDelivery(ctx, name)
		if err != nil || !ok {
			return -1, err
		}
		return max(next.Sub(d.cfg.Now()), time.Millisecond), nil
	}
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	slots := make(chan struct{}, parallel)
	for _, one := range due {
		slots <- struct{}{}
		if d.stopping() || failed.Load() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := d.deliver(ctx, h, one); err != nil {
				failed.CompareAndSwap(nil, &err)
			}
		})
	}
	wg.Wait()
	if e := failed.Load(); e != nil {
		return 0, *e
	}
	return 0, nil
}

// deliver makes one attempt and records its outcome; the error is the store's.
func (d *Deliverer) deliver(ctx context.Context, h Hook, one Delivery) error {
	err := d.post(ctx, h, one)
	if ctx.Err() != nil {
		return nil // cut off by the shutdown: the next server tries again
	}
	if err == nil {
		return d.cfg.Store.Delivered(ctx, one.Row)
	}
	now := d.cfg.Now()
	if now.Sub(one.Created) < giveUp {
		return d.cfg.Store.RetryDelivery(ctx, one.Row, now.Add(d.backoff(one.Attempts)))
	}
	d.cfg.Warn(fmt.Errorf("webhooks: %s of session %s was not delivered for %s: %w", one.Type, one.Session, giveUp, err))
	c := journal.NewChange(one.Session)
	c.Undelivered = []int64{one.Row}
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Turn: one.Turn, Data: holdfast.Notice{
		Code: NoticeCode, Text: fmt.Sprintf("a webhook was not told of %s (#%d): its receiver took it not for %s", one.Type, one.Seq, giveUp),
	}}}
	_, cerr := d.cfg.Journal.Commit(ctx, c)
	if holdfast.IsKind(cerr, holdfast.KindNotFound) {
		return d.cfg.Store.Delivered(ctx, one.Row) // its session is gone: nobody to tell
	}
	return cerr
}

// backoff is the wait after so many failures: doubling, and never the same for all.
func (d *Deliverer) backoff(failed int) time.Duration {
	wait := firstWait << min(failed, 20)
	wait = min(wait, longWait)
	return wait/2 + time.Duration(d.cfg.Rand()*float64(wait))
}

func (d *Deliverer) post(ctx context.Context, h Hook, one Delivery) error {
	body, err := one.body()
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("the address is none")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "holdfast-webhook")
	req.Header.Set(holdfast.WebhookEventHeader, string(one.Type))
	req.Header.Set(holdfast.WebhookDeliveryHeader, one.ID())
	req.Header.Set(holdfast.WebhookSignatureHeader, Sign(h.Secrets, d.cfg.Now(), body))
	resp, err := d.client.Do(req)
	if err != nil {
		return reason(err)
	}
	// A little of the answer is read, so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, answerMax)
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("it answered %d", resp.StatusCode)
	}
	return nil
}

// reason is an error of a request without its URL, which may be a secret.
func reason(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
