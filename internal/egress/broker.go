package egress

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

var quiet = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)

// Turns finds the running turn of a session; denied when none runs.
type Turns interface {
	Traffic(ctx context.Context, id holdfast.SessionID) (runtime.Traffic, error)
}

// Book says whose a model is and what it costs.
type Book interface {
	// Provider names who is asked for a model; empty for the scripted one.
	Provider(model string) string
	Price(model string, u holdfast.Usage) holdfast.Usage
}

// Upstream is where a provider answers.
type Upstream struct {
	// URL is the base address; the API's paths follow it.
	URL string
	// Key is asked before each request; an error refuses it. An empty key sends none.
	Key func() (string, error)
	// Transport carries the requests.
	Transport http.RoundTripper
}

// Providers of the broker: who is asked by which API. Scripted answers both.
const (
	Anthropic = "anthropic"
	OpenAI    = "openai"
	Scripted  = ""
)

// BrokerConfig configures a Broker. All fields but Grants, Content, Decisions, Log and the limits
// must be set.
type BrokerConfig struct {
	Turns Turns
	Book  Book
	// Upstreams are by provider; one that is not there is not configured.
	Upstreams map[string]Upstream
	// Grants are what requests may ask for beyond the list; see Grant.
	Grants []Grant
	// Content records requests and answers with what they say.
	Content bool
	// Decisions takes what was refused; nil is nobody.
	Decisions Recorder
	Now       func() time.Time
	// Log is the server's; nil is none.
	Log *slog.Logger
	// MaxBody bounds a request (default 32 MiB), MaxBuffered all that are under way
	// (default 256 MiB), MaxRequests those of a session (default 16).
	MaxBody, MaxBuffered int64
	MaxRequests          int
}

// Broker lends models to boxes. Safe for concurrent use.
type Broker struct {
	cfg    BrokerConfig
	grants grants
	door   *door
	ledger *ledger

	mu     sync.Mutex
	active map[holdfast.SessionID]*load
	bytes  int64
	limits map[holdfast.SessionID]runtime.Limit
}

// NewBroker makes a broker that serves until Close; ctx outlives it.
func NewBroker(ctx context.Context, cfg BrokerConfig) *Broker {
	if cfg.MaxBody == 0 {
		cfg.MaxBody = 32 << 20
	}
	if cfg.MaxBuffered == 0 {
		cfg.MaxBuffered = 256 << 20
	}
	if cfg.MaxRequests == 0 {
		cfg.MaxRequests = 16
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	b := &Broker{
		cfg: cfg, grants: newGrants(cfg.Grants),
		active: map[holdfast.SessionID]*load{}, limits: map[holdfast.SessionID]runtime.Limit{},
	}
	if cfg.Decisions != nil {
		b.ledger = newLedger(ctx, cfg.Decisions, cfg.Now, cfg.Log)
	}
	b.door = newDoor(http.HandlerFunc(b.route), cfg.Log)
	return b
}

// Serve takes over a connection that the box of a session made to its models.
func (b *Broker) Serve(id holdfast.SessionID, conn net.Conn) { b.door.serve(id, conn) }

// Close drops all connections. A box's client finds a new one held for the next
// server.
func (b *Broker) Close() error {
	err := b.door.close()
	b.door.wait()
	if b.ledger != nil {
		b.ledger.close()
	}
	return err
}

// maxLimits bounds how many sessions' limits are remembered.
const maxLimits = 4096

// LastLimit implements runtime.Limits.
func (b *Broker) LastLimit(id holdfast.SessionID) (runtime.Limit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.limits[id]
	return l, ok
}

// limited remembers what a provider answered; nil is that it answered well.
func (b *Broker) limited(id holdfast.SessionID, l *runtime.Limit) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l == nil {
		delete(b.limits, id)
		return
	}
	for old := range b.limits {
		if len(b.limits) < maxLimits {
			break
		}
		delete(b.limits, old)
	}
	b.limits[id] = *l
}

// load is what a session has under way.
type load struct {
	requests int
	bytes    int64
}

// enter counts a request of a session; too many at once are busy.
func (b *Broker) enter(id holdfast.SessionID) (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.active[id]
	if l == nil {
		l = &load{}
		b.active[id] = l
	}
	if l.requests >= b.cfg.MaxRequests {
		return nil, holdfast.Errorf(holdfast.KindBusy, "broker", "session %s has %d requests under way", id, l.requests)
	}
	l.requests++
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if l.requests--; l.requests == 0 {
			delete(b.active, id)
		}
	}, nil
}

// keep reserves room for n bytes of a session's request, which is under way: of all
// that there is a session gets a quarter, or one request.
func (b *Broker) keep(id holdfast.SessionID, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.active[id]
	if b.bytes+n > b.cfg.MaxBuffered || l.bytes+n > max(b.cfg.MaxBuffered/4, b.cfg.MaxBody) {
		return holdfast.Errorf(holdfast.KindBusy, "broker", "requests of %d bytes are under way, %d of this session", b.bytes, l.bytes)
	}
	b.bytes += n
	l.bytes += n
	return nil
}

func (b *Broker) free(id holdfast.SessionID, n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= n
	b.active[id].bytes -= n
}
