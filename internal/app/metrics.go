package app

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/internal/httpapi"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/obs"
	"github.com/holdfast-run/holdfast/internal/rooted"
)

func newMetrics(version string) *obs.Metrics {
	var tools []string
	for _, t := range builtin.All() {
		tools = append(tools, t.Spec().Name)
	}
	return obs.NewMetrics(obs.MetricsConfig{Version: version, Routes: httpapi.Routes(), Tools: tools, Now: time.Now})
}

// counted is the journal's store. It counts committed writes for the metrics, but not those that
// were skipped because an idempotency key was repeated.
type counted struct {
	journal.Store
	metrics *obs.Metrics
}

// Commit implements journal.Store.
func (c counted) Commit(ctx context.Context, e journal.Encoded) (journal.Committed, error) {
	done, err := c.Store.Commit(ctx, e)
	if err != nil || done.Duplicate != "" {
		return done, err
	}
	c.metrics.Committed(len(e.Events))
	for i := range e.Events {
		c.metrics.Event(e.Events[i].Type, e.Events[i].Data)
	}
	return done, nil
}

// lookEvery is the shortest time between two queries to the store for metrics, however many
// scrapers there are; lookTime is the longest time for one query.
const (
	lookEvery = 10 * time.Second
	lookTime  = 5 * time.Second
)

// looker queries the values that the metrics do not count themselves.
type looker struct {
	s *server

	mu     sync.Mutex
	at     time.Time
	counts journal.Counts
	err    error
}

func (l *looker) look(ctx context.Context) obs.State {
	h := l.s.health(ctx)
	out := obs.State{
		Ready: h.Status == "ok" && h.ReadOnly == "", Readers: l.s.journal.Readers(), Boxes: l.s.boxStates(),
		Unindexed: -1, Approvals: -1, DiskFree: -1, DiskSize: -1,
	}
	if c, err := l.count(ctx); err == nil {
		out.Sessions = byName(c.Sessions, holdfast.StatusStarting, holdfast.StatusActive, holdfast.StatusPaused, holdfast.StatusError, holdfast.StatusEnded)
		out.Turns = map[string]int64{"running": int64(h.RunningTurns), "queued": c.Turns[holdfast.TurnQueued]}
		out.Unindexed, out.Approvals = c.Unindexed, c.Approvals
	}
	if d, err := rooted.DiskSpace(l.s.cfg.Data); err == nil {
		out.DiskFree, out.DiskSize = d.Free, d.Bytes
	}
	return out
}

func (l *looker) count(ctx context.Context) (journal.Counts, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); l.at.IsZero() || now.Sub(l.at) >= lookEvery {
		// Do not use the time limit of this scraper's request, because other scrapers get the same answer.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
		defer cancel()
		if l.counts, l.err = l.s.store.Counts(ctx); l.err != nil {
			l.s.opt.Log.Warn("the metrics lack the number of sessions", "error", l.err)
		}
		l.at = now
	}
	return l.counts, l.err
}

func (s *server) boxStates() map[string]int64 {
	sum := map[holdfast.BoxState]int{}
	for _, d := range s.places.Drivers {
		for state, n := range d.Pool.States() {
			sum[state] += n
		}
	}
	return byName(sum, holdfast.BoxStarting, holdfast.BoxRunning, holdfast.BoxIdle, holdfast.BoxFrozen)
}

// adopted returns how many boxes of the previous server run on.
func (s *server) adopted() (n int64) {
	for _, one := range s.boxStates() {
		n += one
	}
	return n
}

// byName returns n with exactly the names of all; a missing name gets 0.
func byName[K ~string, N int | int64](n map[K]N, all ...K) map[string]int64 {
	out := map[string]int64{}
	for _, k := range all {
		out[string(k)] = int64(n[k])
	}
	return out
}

// metricsServer returns a server for the metrics only, without authentication.
func metricsServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: guard.Metrics(h), ReadTimeout: 10 * time.Second, WriteTimeout: 20 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 16 << 10, DisableGeneralOptionsHandler: true,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

// serveMetrics starts the separate listener for metrics, if one is configured; stop ends it.
func (s *server) serveMetrics(h http.Handler) (stop func(), err error) {
	if s.cfg.MetricsListen == "" {
		return func() {}, nil
	}
	ln, err := net.Listen("tcp", s.cfg.MetricsListen)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "serve", "the listener for metrics cannot listen on %s: %w", holdfast.Quote(s.cfg.MetricsListen), err).
			WithHint("choose another address with --set metrics_listen=HOST:PORT, or port 0")
	}
	srv := metricsServer(h, s.opt.Log)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(netutil.LimitListener(ln, 64)) }()
	s.opt.Log.Info("metrics are served", "url", "http://"+ln.Addr().String()+"/metrics")
	return func() {
		_ = srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			s.opt.Log.Warn("the listener of the metrics ended", "error", err)
		}
	}, nil
}
