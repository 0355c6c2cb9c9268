package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// box is an outbox in memory: the rules of webhook.Store, and the journal.
type box struct {
	mu     sync.Mutex
	rows   []Delivery
	next   map[int64]time.Time
	log    []journal.Change
	gone   bool // the session is deleted
	broken error
}

func (b *box) put(session string, seq int64, typ holdfast.EventType, data string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = map[int64]time.Time{}
	}
	row := int64(len(b.next) + 1)
	b.next[row] = time.Now()
	b.rows = append(b.rows, Delivery{
		Row: row, Hook: hook("").Name(), Created: time.Now(),
		Event: holdfast.Event{Session: holdfast.SessionID(session), Seq: seq, Type: typ, Turn: "t", Data: json.RawMessage(data), Time: time.Now().UTC()},
	})
}

func (b *box) free(i int) bool {
	for _, p := range b.rows[:i] {
		if p.Session == b.rows[i].Session && p.Attempts < HoldTries {
			return false
		}
	}
	return true
}

func (b *box) Deliveries(_ context.Context, _ string, now time.Time, limit int) (out []Delivery, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, d := range b.rows {
		if len(out) < limit && !b.next[d.Row].After(now) && b.free(i) {
			out = append(out, d)
		}
	}
	return out, b.broken
}

func (b *box) NextDelivery(context.Context, string) (at time.Time, ok bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, d := range b.rows {
		if n := b.next[d.Row]; b.free(i) && (!ok || n.Before(at)) {
			at, ok = n, true
		}
	}
	return at, ok, b.broken
}

func (b *box) Delivered(_ context.Context, row int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = slices.DeleteFunc(b.rows, func(d Delivery) bool { return d.Row == row })
	return b.broken
}

func (b *box) RetryDelivery(_ context.Context, row int64, next time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.rows {
		if b.rows[i].Row == row {
			b.rows[i].Attempts++
			b.next[row] = next
		}
	}
	return b.broken
}

func (b *box) ForgetDeliveries(context.Context, []string) (int64, error) { return 0, nil }

func (b *box) Commit(_ context.Context, c journal.Change) (journal.Committed, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.gone {
		return journal.Committed{}, holdfast.Errorf(holdfast.KindNotFound, "store", "gone")
	}
	b.log = append(b.log, c)
	b.rows = slices.DeleteFunc(b.rows, func(d Delivery) bool { return slices.Contains(c.Undelivered, d.Row) })
	return journal.Committed{}, nil
}

func (b *box) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.rows)
}

func hook(url string) Hook {
	return Hook{URL: url, Secrets: [][]byte{[]byte("a secret of the receiver")}, Events: config.WebhookEvents()}
}

// got is a request as a receiver saw it.
type got struct {
	at   time.Time
	id   string
	body holdfast.Webhook
}

// verify checks a request as a receiver does that uses the library of Standard Webhooks.
func verify(secret, body []byte, header http.Header) error {
	w, err := standardwebhooks.NewWebhookRaw(secret)
	if err == nil {
		err = w.Verify(body, header)
	}
	return err
}

// receiver answers with the status that answer names and remembers what came.
type receiver struct {
	mu     sync.Mutex
	got    []got
	answer func(n int, w holdfast.Webhook) int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err == nil {
		err = verify(hook("").Secrets[0], body, req.Header)
	}
	var one got
	if err == nil {
		err = json.Unmarshal(body, &one.body)
	}
	one.at, one.id = time.Now(), req.Header.Get(standardwebhooks.HeaderWebhookID)
	if err != nil || req.Method != http.MethodPost || one.id == "" || one.id != one.body.ID || req.Header.Get("Content-Type") != "application/json" {
		http.Error(w, fmt.Sprint(err), http.StatusTeapot)
		return
	}
	r.mu.Lock()
	r.got = append(r.got, one)
	status := http.StatusNoContent
	if r.answer != nil {
		status = r.answer(len(r.got), one.body)
	}
	r.mu.Unlock()
	if status/100 == 3 {
		w.Header().Set("Location", "http://elsewhere.example/")
	}
	w.WriteHeader(status)
}

func (r *receiver) all() []got {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

// pipes connects the deliverer with a handler without a network, so that it runs
// in a bubble of virtual time.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

func (p pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case p.conns <- theirs:
		return ours, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// bubble runs a test in virtual time with a deliverer, which dial leads to h.
func bubble(t *testing.T, h http.Handler, b *box, run func(t *testing.T, d *Deliverer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		p := pipes{make(chan net.Conn)}
		srv := &http.Server{Handler: h}
		served := make(chan error, 1)
		go func() { served <- srv.Serve(p) }()
		d := New(Config{
			Hooks: []Hook{hook("http://receiver.example/hook")}, Store: b, Journal: b, Now: time.Now, Rand: func() float64 { return 0.5 },
			Warn: func(error) {}, Dial: p.dial,
		})
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		run(t, d)
		d.Close(t.Context())
		d.Close(t.Context())
		close(p.conns)
		_ = srv.Close()
		<-served
	})
}

// pass lets virtual time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
