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

// Turns gives the broker the budgets and the log of a session's running turn; denied if no turn runs.
type Turns interface {
	Traffic(ctx context.Context, id holdfast.SessionID) (runtime.Traffic, error)
}

// Book maps a model to its provider and computes prices.
type Book interface {
	// Provider returns the name of the provider of a model; empty for the scripted model.
	Provider(model string) string
	Price(model string, u holdfast.Usage) holdfast.Usage
}

// Upstream says how to reach the API of a model provider.
type Upstream struct {
	// URL is the base URL, to which the paths of the API are appended.
	URL string
	// Key returns the API key. It is called before each request, and its error refuses the
	// request. If the key is empty, the request is sent without one.
	Key func() (string, error)
	// Transport carries the requests.
	Transport http.RoundTripper
}

// The names of the model providers. Requests to a provider must be in its own API; the scripted test double
// accepts both APIs.
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
	// Upstreams are keyed by provider. A provider without an entry is not configured.
	Upstreams map[string]Upstream
	// Grants are the features that requests may use beyond the built-in list; see Grant.
	Grants []Grant
	// Content makes the broker record the texts of requests and answers, not only their sizes.
	Content bool
	// Decisions records refused requests in the log of their session; nil does not record them.
	Decisions Recorder
	Now       func() time.Time
	// Log is the server's log; nil means that nothing is logged.
	Log *slog.Logger
	// MaxBody is the largest request in bytes (default 32 MiB), MaxBuffered the bytes of all
	// requests in progress (default 256 MiB), MaxRequests the most requests of one session in
	// progress (default 16).
	MaxBody, MaxBuffered int64
	MaxRequests          int
}

// Broker answers the model requests of boxes: it checks each and sends it to the provider with the
// server's key. Safe for concurrent use.
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

// NewBroker returns a broker that serves until Close. ctx must not end before that.
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

// Serve serves a connection from the box of session id to the broker. If key is not empty, each request has to carry
// it. Serve closes conn.
func (b *Broker) Serve(id holdfast.SessionID, key string, conn net.Conn) { b.door.serve(id, key, conn) }

// Close closes all connections and waits until their requests have ended. From then on Serve closes each
// connection at once.
func (b *Broker) Close() error {
	err := b.door.close()
	b.door.wait()
	if b.ledger != nil {
		b.ledger.close()
	}
	return err
}

// maxLimits is the most sessions whose last rate limit is remembered.
const maxLimits = 4096

// LastLimit implements runtime.Limits.
func (b *Broker) LastLimit(id holdfast.SessionID) (runtime.Limit, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l, ok := b.limits[id]
	return l, ok
}

// limited stores the rate limit with which a provider answered a session. A nil l, after a successful answer,
// removes the stored one.
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

// load is the number and the bytes of a session's requests in progress.
type load struct {
	requests int
	bytes    int64
}

// enter counts a new request among those of a session in progress; leave removes it. It returns busy if the
// session has too many in progress.
func (b *Broker) enter(id holdfast.SessionID) (leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.active[id]
	if l == nil {
		l = &load{}
		b.active[id] = l
	}
	if l.requests >= b.cfg.MaxRequests {
		return nil, holdfast.Errorf(holdfast.KindBusy, "broker", "session %s has %d model requests in progress, the most that are allowed", id, l.requests)
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

// keep reserves memory for n more bytes of a session's request. All requests of a session together may use a
// quarter of MaxBuffered, or MaxBody if that is more. It returns busy if there is no room.
func (b *Broker) keep(id holdfast.SessionID, n int64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.active[id]
	if b.bytes+n > b.cfg.MaxBuffered || l.bytes+n > max(b.cfg.MaxBuffered/4, b.cfg.MaxBody) {
		return holdfast.Errorf(holdfast.KindBusy, "broker", "no memory to buffer this model request: the requests in progress hold %d bytes, those of this session %d", b.bytes, l.bytes)
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
