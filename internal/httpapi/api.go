package httpapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/body"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
	"github.com/holdfast-run/holdfast/internal/httpapi/spec"
	"github.com/holdfast-run/holdfast/internal/httpapi/stream"
	"github.com/holdfast-run/holdfast/internal/unsaved"
)

// Self gives the API access to the server's own health, models, boxes and metrics.
type Self struct {
	// Health returns the state of the server.
	Health func(ctx context.Context) holdfast.Health
	// Models lists the models of all providers; it returns within a few seconds.
	Models func(ctx context.Context) holdfast.Models
	// Server describes the running server, including its models; Containers manages its boxes.
	Server     func(ctx context.Context) (holdfast.Server, error)
	Containers Containers
	// Metrics answers GET /metrics (default: with an empty body). Answered is called after each
	// answer with the pattern of the route, empty if no route matched, and the status.
	Metrics  http.Handler
	Answered func(pattern string, status int)
	// Editors are the editors that lend unsaved texts to sessions.
	Editors *unsaved.Editors
	// Version is the server's version in the OpenAPI document.
	Version string
	// Held is the reason why the server refuses all requests but reads; nil if it accepts work.
	Held error
}

// Config configures an API. The fields up to Access are required.
type Config struct {
	Sessions    Sessions
	Trash       Trash
	Workspaces  Workspaces
	Views       Views
	Boxes       Boxes
	Approvals   Approvals
	Agents      Agents
	Keys        Keys
	Secrets     Secrets
	Audit       Audit
	Self        Self
	Checkpoints Checkpoints
	Snapshots   Snapshots
	Backups     Backups
	// Access lists the hosts and origins from which the API may be called, and holds the owner's token.
	Access guard.Access
	Bounds Bounds
	Waits  Waits
	// Now is the clock (default time.Now).
	Now func() time.Time
	// Rand is the source of request ids (default crypto/rand.Reader).
	Rand io.Reader
	// Log gets internal errors; nil discards them.
	Log *slog.Logger
}

// Waits are the times that the API waits for its callers. 0 takes the default, in parentheses.
type Waits struct {
	// Ping is how long a stream stays silent before it sends a sign of life (15 s).
	Ping time.Duration
	// Read is how long the sender of a body may pause before it is cut off (30 s). Write is how
	// long a reader may take to accept a piece of an answer (20 s).
	Read, Write time.Duration
}

// Bounds are the largest uploads, in bytes, and the highest rates of requests. 0 takes the default, in parentheses.
type Bounds struct {
	// File is the largest file (64 MiB), Agent the largest folder of an agent (256 MiB).
	File, Agent int64
	// Copy is the largest content of a tree that is copied into a session (20 GiB).
	Copy int64
	// Rate is the most requests of one key per second (10,000). Failures is the most requests
	// from one address per minute that fail to authenticate (30). Negative values set no limit.
	Rate, Failures int
}

// withDefaults returns the configuration with the defaults in place of zero values.
func (cfg Config) withDefaults() Config {
	orDefault(&cfg.Waits.Ping, 15*time.Second)
	orDefault(&cfg.Waits.Read, 30*time.Second)
	orDefault(&cfg.Waits.Write, 20*time.Second)
	orDefault(&cfg.Bounds.File, 64<<20)
	orDefault(&cfg.Bounds.Agent, 256<<20)
	orDefault(&cfg.Bounds.Copy, 20<<30)
	if cfg.Bounds.Rate == 0 {
		cfg.Bounds.Rate = guard.DefaultRate
	}
	if cfg.Bounds.Failures == 0 {
		cfg.Bounds.Failures = 30
	}
	if cfg.Self.Metrics == nil {
		cfg.Self.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	}
	if cfg.Self.Answered == nil {
		cfg.Self.Answered = func(string, int) {}
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return cfg
}

func orDefault[T ~int64](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// API is the handler of all routes. Safe for concurrent use.
type API struct {
	// Handler is the guard, which passes requests on to the routes.
	http.Handler
	cfg      Config
	mux      *http.ServeMux
	huma     huma.API
	doc      spec.Document
	guard    *guard.Guard
	problems *problem.Reporter
	streams  *stream.Streams
}

// New returns the API with all its routes.
func New(cfg Config) *API {
	cfg = cfg.withDefaults()
	problem.UseForHuma()
	a := &API{cfg: cfg, mux: http.NewServeMux(), problems: problem.NewReporter(cfg.Log)}
	a.streams = stream.New(stream.Config{Ping: cfg.Waits.Ping, KeyOf: guard.KeyOf, Revoked: cfg.Keys.Revoked, Log: cfg.Log})
	a.huma = humago.New(a.mux, a.humaConfig())
	a.routes()
	rules := describedRules(a.huma.OpenAPI())
	a.guard = guard.New(guard.Config{
		Access: cfg.Access, Keys: cfg.Keys, Sessions: cfg.Views, Routes: a.mux, Rules: rules, Rate: cfg.Bounds.Rate, Failures: cfg.Bounds.Failures,
		ReadTimeout: cfg.Waits.Read, WriteTimeout: cfg.Waits.Write, Held: cfg.Self.Held, Answered: cfg.Self.Answered, Now: cfg.Now, Rand: cfg.Rand, Log: cfg.Log,
	})
	a.Handler = a.guard
	var err error
	a.doc, err = spec.Finish(a.huma.OpenAPI(), func(pattern string) (honours bool, why string) {
		return rules[pattern].HonoursKey, rules[pattern].WhyNoKey
	})
	if err != nil {
		// Only a mistake in our own schemas can cause this; the tests would find it.
		cfg.Log.Error("the OpenAPI document does not encode", "error", err.Error())
	}
	return a
}

func (a *API) humaConfig() huma.Config {
	conf := huma.DefaultConfig("Holdfast", a.cfg.Self.Version)
	conf.OpenAPIPath, conf.DocsPath, conf.SchemasPath = "", "", ""
	conf.CreateHooks = nil // huma's default hook would add absolute $schema links to answers
	format := body.JSON()
	conf.Formats = map[string]huma.Format{"application/json": format, "json": format}
	conf.Transformers = []huma.Transformer{a.problems.Transform}
	conf.RejectUnknownQueryParameters = true
	spec.Describe(conf.OpenAPI)
	return conf
}

// NewServer returns an http.Server for the API. Its Shutdown ends the streams, terminals
// and execs, which would not end by themselves; other requests may finish. It sets no timeouts
// for answers and bodies, because the guard limits both.
func NewServer(cfg Config) *http.Server {
	a := New(cfg)
	srv := &http.Server{
		Handler:           a,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		// Without this net/http itself would answer OPTIONS *, even to a request without a token.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(a.cfg.Log.Handler(), slog.LevelWarn),
	}
	srv.RegisterOnShutdown(a.Stop)
	return srv
}

func (a *API) routes() {
	a.agentRoutes()
	a.policyRoutes()
	a.sessionRoutes()
	a.workspaceRoutes()
	a.checkpointRoutes()
	a.turnRoutes()
	a.eventRoutes()
	a.fileRoutes()
	a.treeRoutes()
	a.execRoutes()
	a.editorRoutes()
	a.boxRoutes()
	a.snapshotRoutes()
	a.backupRoutes()
	a.approvalRoutes()
	a.keyRoutes()
	a.secretRoutes()
	a.selfRoutes()
	a.auditRoutes()
	a.healthRoutes()
	a.docRoutes()
}

// Spec returns the OpenAPI 3.1 document.
func (a *API) Spec() []byte { return a.doc.JSON }

// Stop ends the open streams, terminals and execs, and refuses new ones. Idempotent.
func (a *API) Stop() { a.streams.Stop() }

// writeJSON answers a request with v as JSON, without huma.
func (a *API) writeJSON(w http.ResponseWriter, r *http.Request, status int, v any) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		a.problems.Answer(w, r, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(buf.Bytes()) // ignore the error: the client may have disconnected
}
