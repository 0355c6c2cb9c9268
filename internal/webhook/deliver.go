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

// Store is the outbox of deliveries, in the database. Safe for concurrent use.
type Store interface {
	// Deliveries returns up to limit due deliveries to the receiver hook, oldest first. A delivery
	// that has failed fewer than HoldTries times holds back later ones of its session.
	Deliveries(ctx context.Context, hook string, now time.Time, limit int) ([]Delivery, error)
	// NextDelivery returns when the next delivery to a receiver is due; false if there is none.
	NextDelivery(ctx context.Context, hook string) (time.Time, bool, error)
	// Delivered removes a delivery from the outbox. RetryDelivery records a failed attempt and
	// makes the delivery due at next.
	Delivered(ctx context.Context, row int64) error
	RetryDelivery(ctx context.Context, row int64, next time.Time) error
	// ForgetDeliveries removes the deliveries to receivers that are not in keep, and returns how
	// many it removed.
	ForgetDeliveries(ctx context.Context, keep []string) (int64, error)
}

// Journal commits the change that records that a delivery was given up.
type Journal interface {
	Commit(ctx context.Context, c journal.Change) (journal.Committed, error)
}

const (
	// HoldTries is how often a delivery may fail before later ones of its session may be sent
	// first, after about four minutes.
	HoldTries = 8

	parallel  = 4 // the most requests to one receiver at the same time
	batch     = 16
	firstWait = time.Second
	longWait  = time.Hour
	giveUp    = 24 * time.Hour
	timeout   = 15 * time.Second
	// storeWait is the wait after an error of the store.
	storeWait = 5 * time.Second
	answerMax = 64 << 10
)

// NoticeCode is the code of the notice which says that a delivery was given up.
const NoticeCode = "webhook.failed"

// Config configures a Deliverer. All fields except Dial are required.
type Config struct {
	Hooks   []Hook
	Store   Store
	Journal Journal
	Now     func() time.Time
	// Rand returns random numbers, uniform in [0, 1).
	Rand func() float64
	// Warn is called when a delivery is given up or dropped and when the store fails.
	Warn func(error)
	// Dial replaces the network in tests; nil dials normally.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Deliverer posts the deliveries in the outbox to their receivers. Safe for concurrent use.
type Deliverer struct {
	cfg    Config
	client *http.Client
	wakes  []chan struct{}
	stop   chan struct{}
	once   sync.Once
	run    sync.WaitGroup
	cancel atomic.Pointer[context.CancelFunc]
}

// New returns a deliverer, which begins to work with Start.
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
		// Redirects are not followed: they would send what was signed for one address to another.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialContext: dial, TLSHandshakeTimeout: 10 * time.Second, MaxIdleConnsPerHost: parallel,
			IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: answerMax, DisableCompression: true,
		},
	}
	return d
}

// Wake tells the deliverer that the outbox has new deliveries. It never blocks.
func (d *Deliverer) Wake() {
	for _, w := range d.wakes {
		select {
		case w <- struct{}{}:
		default:
		}
	}
}

// Start drops deliveries to receivers that are no longer configured, and starts a goroutine for each
// receiver, which delivers until Close.
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
		d.cfg.Warn(fmt.Errorf("webhooks: dropped %d deliveries, because their receivers are no longer configured", n))
	}
	ctx, cancel := context.WithCancel(ctx)
	d.cancel.Store(&cancel)
	for i, h := range d.cfg.Hooks {
		d.run.Go(func() { d.serve(ctx, h, d.wakes[i]) })
	}
	return nil
}

// Close starts no more requests, and waits for those in progress until ctx ends, which cancels them.
// Remaining deliveries are left to the next server. Idempotent.
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

// serve delivers to one receiver until the deliverer closes.
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

// rest waits for the duration wait, or for ever if it is negative. Unless deaf is true, it returns
// early when wake signals new deliveries. It returns false if the deliverer closes.
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

// round makes an attempt at the due deliveries to a receiver, and returns how long to wait before
// the next round: 0 if more may be due now, negative if the outbox has none for the receiver.
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

// deliver makes one attempt at a delivery and records its result, unless the shutdown interrupts the attempt. It
// returns only errors of the store.
func (d *Deliverer) deliver(ctx context.Context, h Hook, one Delivery) error {
	err := d.post(ctx, h, one)
	if ctx.Err() != nil {
		return nil // the shutdown interrupted the attempt: the next server tries again
	}
	if err == nil {
		return d.cfg.Store.Delivered(ctx, one.Row)
	}
	now := d.cfg.Now()
	if now.Sub(one.Created) < giveUp {
		return d.cfg.Store.RetryDelivery(ctx, one.Row, now.Add(d.backoff(one.Attempts)))
	}
	d.cfg.Warn(fmt.Errorf("webhooks: gave up delivering the event %s of session %s to a webhook after %s: %w", one.Type, one.Session, giveUp, err))
	c := journal.NewChange(one.Session)
	c.Undelivered = []int64{one.Row}
	c.Events = []journal.Draft{{Type: holdfast.EventNotice, Turn: one.Turn, Data: holdfast.Notice{
		Code: NoticeCode, Text: fmt.Sprintf("gave up delivering the event %s (#%d) to a webhook after %s", one.Type, one.Seq, giveUp),
	}}}
	_, cerr := d.cfg.Journal.Commit(ctx, c)
	if holdfast.IsKind(cerr, holdfast.KindNotFound) {
		return d.cfg.Store.Delivered(ctx, one.Row) // the session was deleted, and with it the log for the notice
	}
	return cerr
}

// backoff returns the wait after a number of failures: it doubles with each, up to an hour, and is random
// within a range, so that deliveries do not retry all at once.
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
		return fmt.Errorf("the URL of the webhook is not valid")
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "holdfast-webhook")
	if err := sign(req.Header, h.Secrets, one.ID(), d.cfg.Now(), body); err != nil {
		return err
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return reason(err)
	}
	// Read a part of the answer, so that the connection can be used again.
	_, _ = io.CopyN(io.Discard, resp.Body, answerMax)
	_ = resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the receiver of the webhook answered with status %d", resp.StatusCode)
	}
	return nil
}

// reason returns the cause of a request's error without the URL, which may contain a secret.
func reason(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
