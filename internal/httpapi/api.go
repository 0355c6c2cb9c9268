// budget: struct Config 26: the parts of the API, each named once

package httpapi

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"

	"github.com/holdfast-run/holdfast"
)

// The default limits.
const (
	DefaultPing         = 15 * time.Second
	DefaultWriteTimeout = 20 * time.Second
	DefaultReadTimeout  = 30 * time.Second
	DefaultMaxFile      = 64 << 20
	DefaultMaxAgent     = 256 << 20
	DefaultMaxCopy      = 20 << 30
	DefaultRateLimit    = 10_000
	DefaultAuthFailures = 30

	// loggedRefusals is how many requests without a valid token are logged in a minute.
	loggedRefusals = 6

	// maxJSON bounds a JSON body: a message of holdfast.MaxText bytes, escaped.
	maxJSON = 2*holdfast.MaxText + 1<<20
	// maxSmall bounds the JSON bodies that hold settings only.
	maxSmall = 1 << 20
)

// Self is what the server tells of itself.
type Self struct {
	// Health is the state of the server.
	Health func(ctx context.Context) holdfast.Health
	// Models tells of the models; it takes a few seconds at most.
	Models func(ctx context.Context) holdfast.Models
	// Server tells of the running server, its models included; Containers are its boxes.
	Server     func(ctx context.Context) (holdfast.Server, error)
	Containers Containers
}

// Config configures an API. The first eight fields are required.
type Config struct {
	Sessions  Sessions
	Turns     Turns
	Boxes     Boxes
	Approvals Approvals
	Agents    Agents
	Credentials
	Audit Audit
	Self
	// Metrics answers GET /metrics (default: with nothing); Answered is told the
	// pattern of the route, empty for none, and the status of each answer.
	Metrics  http.Handler
	Answered func(pattern string, status int)
	// Token is the owner's bearer token. Empty admits nobody.
	Token string
	// Version is shown by the OpenAPI document.
	Version string
	// Listen is the address the server listens on, host:port. If it is a loopback
	// address, only requests that name a loopback host, or one of Hosts, are
	// answered: a web page cannot reach the server by a DNS name of its own.
	Listen string
	// Hosts are further host names, without port, that a request may be for.
	Hosts []string
	// Origins are further web origins, as "https://example.com", whose pages may
	// call the API. The server's own origin always may.
	Origins []string
	// Ping is how long a stream is silent before it says it is alive (15 s);
	// WriteTimeout how long a reader may take to accept data before it is cut
	// (20 s); ReadTimeout the same for a sender (30 s).
	Ping, WriteTimeout, ReadTimeout time.Duration
	Bounds                          Bounds
	// Held is why the server only answers requests that read the log; nil: it takes work.
	Held error
	// Now is the clock (default time.Now).
	Now func() time.Time
	// Rand names requests (default crypto/rand.Reader).
	Rand io.Reader
	// Log takes internal errors; nil discards them.
	Log *slog.Logger
}

// Bounds are what requests may bring, in bytes, and how many there may be; 0 is the default.
type Bounds struct {
	// File is the largest file, Agent the largest folder of an agent (64 MiB, 256 MiB).
	File, Agent int64
	// Copy is the most content of a tree that is copied into a session (20 GiB).
	Copy int64
	// Rate is how many requests a key may send per second, Failures how many of an address
	// may fail to authenticate per minute; negative is no limit.
	Rate, Failures int
}

// API is the handler of all routes. Safe for concurrent use.
type API struct {
	cfg      Config
	loopback bool
	token    [sha256.Size]byte
	mux      *http.ServeMux
	huma     huma.API
	spec     []byte
	docs     []byte
	// bodies are the described routes by their pattern, and whether each takes a body.
	bodies   map[string]bool
	room     room
	live     streams
	rates    *limits
	failures *limits
	// refusals are those that are logged.
	refusals *limits
	follow   func(ctx context.Context, id holdfast.SessionID, after int64) (source, error)
}

// New makes the API.
func New(cfg Config) *API {
	setDefaults(&cfg)
	hookHuma()
	a := &API{cfg: cfg, loopback: Loopback(cfg.Listen), token: sha256.Sum256([]byte(cfg.Token)), mux: http.NewServeMux(), bodies: map[string]bool{}}
	a.room = room{limits: map[string]int64{}, sem: semaphore.NewWeighted(roomBytes)}
	a.rates, a.failures, a.refusals = newLimits(cfg.Bounds.Rate, time.Second), newLimits(cfg.Bounds.Failures, time.Minute), newLimits(loggedRefusals, time.Minute)
	a.live.revoked = cfg.Keys.Revoked
	a.follow = func(ctx context.Context, id holdfast.SessionID, after int64) (source, error) {
		return cfg.Turns.Follow(ctx, id, after)
	}
	conf := huma.DefaultConfig("Holdfast", cfg.Version)
	conf.OpenAPIPath, conf.DocsPath, conf.SchemasPath = "", "", ""
	conf.CreateHooks = nil // the default one adds absolute $schema links
	format := strictJSON()
	conf.Formats = map[string]huma.Format{"application/json": format, "json": format}
	conf.Transformers = []huma.Transformer{a.finish}
	conf.RejectUnknownQueryParameters = true
	describeAPI(conf.OpenAPI)
	a.huma = humago.New(a.mux, conf)
	a.huma.UseMiddleware(checkLength)
	a.routes()
	a.render()
	return a
}

// NewServer is an http.Server for the API. Its Shutdown ends the streams,
// terminals and execs, which would not end by themselves; other requests run on.
// It has no timeout on writing and on bodies: ServeHTTP guards both.
func NewServer(cfg Config) *http.Server {
	a := New(cfg)
	srv := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// net/http would answer OPTIONS * itself, to anybody.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(a.cfg.Log.Handler(), slog.LevelWarn),
	}
	srv.RegisterOnShutdown(a.Stop)
	return srv
}

func setDefaults(cfg *Config) {
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&cfg.Ping, DefaultPing)
	def(&cfg.WriteTimeout, DefaultWriteTimeout)
	def(&cfg.ReadTimeout, DefaultReadTimeout)
	if cfg.Metrics == nil {
		cfg.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}
	if cfg.Answered == nil {
		cfg.Answered = func(string, int) {}
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Bounds.Rate == 0 {
		cfg.Bounds.Rate = DefaultRateLimit
	}
	if cfg.Bounds.Failures == 0 {
		cfg.Bounds.Failures = DefaultAuthFailures
	}
	if cfg.Bounds.File <= 0 {
		cfg.Bounds.File = DefaultMaxFile
	}
	if cfg.Bounds.Copy <= 0 {
		cfg.Bounds.Copy = DefaultMaxCopy
	}
	if cfg.Bounds.Agent <= 0 {
		cfg.Bounds.Agent = DefaultMaxAgent
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
}

func (a *API) routes() {
	a.agentRoutes()
	a.policyRoutes()
	a.sessionRoutes()
	a.turnRoutes()
	a.eventRoutes()
	a.fileRoutes()
	a.treeRoutes()
	a.execRoutes()
	a.boxRoutes()
	a.approvalRoutes()
	a.keyRoutes()
	a.secretRoutes()
	a.selfRoutes()
	a.auditRoutes()
	a.healthRoutes()
	a.docRoutes()
}

// render makes the OpenAPI document and the docs page from the routes.
func (a *API) render() {
	for path, item := range a.huma.OpenAPI().Paths {
		for _, op := range operations(item) {
			a.bodies[op.Method+" "+path] = op.RequestBody != nil
			if op.RequestBody != nil && op.MaxBodyBytes > maxSmall && op.Metadata[streamed] == nil {
				a.room.limits[op.Method+" "+path] = op.MaxBodyBytes
			}
		}
	}
	tidySpec(a.huma.OpenAPI())
	illustrate(a.huma.OpenAPI())
	describeKeys(a.huma.OpenAPI())
	describeHeaders(a.huma.OpenAPI())
	spec, err := json.MarshalIndent(a.huma.OpenAPI(), "", "  ")
	if err != nil {
		// Only a schema of ours could do this, and the tests read the document.
		a.cfg.Log.Error("the OpenAPI document does not encode", "error", err.Error())
	}
	a.spec = append(spec, '\n')
	a.docs = docsPage(a.huma.OpenAPI())
}

// Spec is the OpenAPI 3.1 document.
func (a *API) Spec() []byte { return a.spec }

// Stop ends the streams, terminals and execs, and refuses new ones. Idempotent.
func (a *API) Stop() { a.live.stop() }

// fail renders an error for huma; finish logs what nobody expected.
func (a *API) fail(err error) error { return newProblem(err) }
