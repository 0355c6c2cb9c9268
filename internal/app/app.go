// Package app wires a server together: store, journal, drivers, runtimes,
// engine and HTTP API, started in order and stopped in reverse.
//
// Only cmd/holdfast and tests may import it, and it is the only package that may import every other. Invariant: when Run
// calls Ready, the server answers and has adopted the boxes and turns of its predecessor; when Run returns, nothing of
// the server runs, except boxes that the configuration keeps.
package app

import (
	"context"
	"crypto/rand"
	"errors"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/net/netutil"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool/builtin"
	"github.com/holdfast-run/holdfast/internal/agents"
	"github.com/holdfast-run/holdfast/internal/audit"
	"github.com/holdfast-run/holdfast/internal/auditlog"
	"github.com/holdfast-run/holdfast/internal/boots"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/durable"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/httpapi"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/keys"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/internal/loop"
	"github.com/holdfast-run/holdfast/internal/network"
	"github.com/holdfast-run/holdfast/internal/obs"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/runtime/native"
	"github.com/holdfast-run/holdfast/internal/secrets"
	"github.com/holdfast-run/holdfast/internal/snapshot"
	"github.com/holdfast-run/holdfast/internal/snapshot/collect"
	"github.com/holdfast-run/holdfast/internal/stages"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/internal/trash"
	"github.com/holdfast-run/holdfast/internal/trees"
	"github.com/holdfast-run/holdfast/internal/trim"
	"github.com/holdfast-run/holdfast/internal/unsaved"
	"github.com/holdfast-run/holdfast/internal/webhook"
	"github.com/holdfast-run/holdfast/internal/workspaces"
	"github.com/holdfast-run/holdfast/sandbox"
)

// spoolBytes is how many bytes of each output stream of a call can be read again. Of a longer one
// the head and the tail are kept.
const spoolBytes = 16 << 20

// Options are the inputs of Run besides the configuration.
type Options struct {
	Version string
	// Environ is the environment of the server's process, as NAME=VALUE.
	Environ []string
	// Drivers are the drivers of this program, one of which the configuration names.
	Drivers Drivers
	// Log is the server's log; nil discards it.
	Log *slog.Logger
	// Ready is called with the API's URL once the server answers.
	Ready func(url string)
	// Models is called once with the models, at most a few seconds after Ready. It may be nil.
	Models func(holdfast.Models)
	// Died is called once if the disk under the store failed, that is, if a write or an fsync failed. It must end the
	// process at once, without closing anything: an orderly end could treat missing data as durable. Boxes go on, and the
	// next start adopts them. If it is nil, which is for tests only, the store becomes read-only.
	Died func(err error)
	// Resolve and Dial replace the network that the boxes' proxy uses, for tests only; nil means
	// the machine's own.
	Resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	Dial    func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	// AcceptCopy makes a copied data directory a server of its own, which runs turns.
	AcceptCopy bool
	// DiskPoll is how often the disk is checked while boxes run, for tests only; 0 means every two
	// seconds.
	DiskPoll time.Duration
	// At is called when a turn or a snapshot passes a named kill point, for crash tests only.
	At func(session holdfast.SessionID, point string)
}

// Run serves until ctx ends, then drains and stops.
func Run(ctx context.Context, cfg config.Config, opt Options) (err error) {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	driver, err := opt.Drivers.find(cfg.Driver)
	if err != nil {
		return err
	}
	fresh, err := makeDirs(cfg.Data, opt.Log)
	if err != nil {
		return err
	}
	if err := checkDatabase(cfg.Data); err != nil {
		return err
	}
	hooks, err := webhooks(cfg.Webhooks)
	if err != nil {
		return err
	}
	var chain auditlog.Chain
	var bell bell
	store, err := openStore(ctx, cfg.Data, opt.Log, sqlite.Config{
		Audited: chain.Audited, Deliver: webhook.Filter(hooks), Outbox: bell.ring, Failed: opt.Died,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	identity, err := openIdentity(cfg.Data, opt, fresh)
	if err != nil {
		return err
	}
	if err := checkKeys(ctx, cfg.Data, opt.Environ, store); err != nil {
		return err
	}
	log, closeAudit, err := chain.Open(ctx, cfg.Data, store.Audit, opt.Log)
	if err != nil {
		return err
	}
	defer closeAudit()
	registry, err := openKeys(ctx, store.Keys, opt.Log, cfg.Listen)
	if err != nil {
		return err
	}
	if err := checkListen(cfg.Listen, cfg.Data, registry); err != nil {
		return err
	}
	token, err := lifecycle.OwnerToken(filepath.Join(cfg.Data, "token"), rand.Reader)
	if err != nil {
		return err
	}
	var drivers map[holdfast.Trust]sandbox.Driver
	if !identity.Copy { // the boxes that a copied data directory records belong to the original
		if err := makeRuntimesDir(cfg); err != nil {
			return err
		}
		if drivers, err = driver.Open(cfg, opt.Environ, identity.Owner); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, closeDrivers(drivers)) }()
	s := &server{
		cfg: cfg, opt: opt, identity: identity, store: store, keys: registry, audit: log,
		about: about{support: supportOf(ctx, drivers), started: time.Now()},
	}
	defer func() { err = errors.Join(err, s.closeEgress()) }()
	if err := s.build(ctx, drivers); err != nil {
		return err
	}
	if !identity.Copy {
		closeWebhooks, err := bell.start(ctx, hooks, store.Outbox, s.journal, opt.Log)
		if err != nil {
			return err
		}
		defer closeWebhooks()
	}
	return s.serve(ctx, token)
}

// makeDirs makes the data directory and the directories in it. fresh is true if it held no database.
func makeDirs(data string, log *slog.Logger) (fresh bool, err error) {
	was, err := lifecycle.PrivateDir(data)
	if err != nil {
		return false, err
	}
	if was != 0 {
		log.Warn("other users had access to the data directory; the server took it from them", "data", data, "mode", was.String())
	}
	for _, d := range []string{"sessions", "workspaces", "agents", "run"} {
		if err := durable.MkdirAll(filepath.Join(data, d), 0o700); err != nil {
			return false, holdfast.Errorf(holdfast.KindUnavailable, "serve", "a directory inside the data directory cannot be made: %w", err).
				WithHint("choose another data directory with --data DIR")
		}
	}
	_, err = os.Lstat(filepath.Join(data, "holdfast.db"))
	return errors.Is(err, fs.ErrNotExist), nil
}

// server holds the parts of the server that Run makes.
type server struct {
	cfg config.Config
	opt Options
	// identity tells whether the data directory is a copy; a server on a copy starts no turns.
	identity lifecycle.Identity

	store  *sqlite.Store
	keys   *keys.Registry
	audit  *audit.Log
	agents *agents.Registry
	engine *engine.Engine

	journal *journal.Journal
	metrics *obs.Metrics
	places  place.Config
	// snapshots and the engine use each other.
	snapshots  *snapshot.Snapshots
	collector  *collect.Collector
	vault      *secrets.Vault
	models     func(ctx context.Context) holdfast.Models
	workspaces *workspaces.Workspaces
	out        waysOut
	about      about
}

// about is what the server knows of its machine, its own start, and its users' editors.
type about struct {
	support func() holdfast.BoxSupport
	started time.Time
	editors unsaved.Editors
}

func (s *server) build(ctx context.Context, drivers map[holdfast.Trust]sandbox.Driver) error {
	var err error
	if s.vault, err = openVault(s.cfg.Data, s.opt.Environ, s.store.Secrets); err != nil {
		return err
	}
	choice, found, err := chooseModels(s.cfg, s.opt.Environ, s.secret(ctx))
	if err != nil {
		return err
	}
	if s.cfg.DefaultModel != autoModel {
		if err := choice.Check(s.cfg.DefaultModel); err != nil {
			return err
		}
	}
	s.models = func(ctx context.Context) holdfast.Models { return modelsOf(ctx, s.cfg, choice) }
	if s.agents, err = agents.Open(ctx, agents.Config{Dir: filepath.Join(s.cfg.Data, "agents"), Store: s.store.Agents, Check: checkAgent(choice.Check, func(name string) error { return s.engine.Runtimes().Check(name) }), Tools: Tools()}); err != nil {
		return err
	}
	loop, err := native.New(native.Config{
		Provider: choice, Book: choice, Tools: builtin.All(), MaxTokens: s.cfg.Models.MaxTokens, Now: time.Now, Rand: mathrand.Float64,
		Retry: loop.Retry{NoPark: s.cfg.Models.Park == config.Off}, Unsaved: s.about.editors.For,
	})
	if err != nil {
		return err
	}
	base, err := Policy(s.cfg)
	if err != nil {
		return err
	}
	for _, l := range base.Lint() {
		s.opt.Log.Warn("permissions.sandbox", "note", l)
	}
	hooks, err := Hooks(s.cfg, s.opt.Environ)
	if err != nil {
		return err
	}
	s.metrics = newMetrics(s.opt.Version)
	if err := s.openWorkspaces(ctx, choice.Check, base, drivers[holdfast.Untrusted]); err != nil {
		return err
	}
	s.journal = journal.New(journal.Config{Store: workspaces.Following{Store: counted{s.store.Sessions, s.metrics}, To: s.workspaces}, Leases: s.store.Leases})
	if err := s.openEgress(ctx, choice, found); err != nil {
		return err
	}
	runtimes, err := s.runtimes(loop)
	if err != nil {
		return err
	}
	if s.snapshots, err = s.openSnapshots(); err != nil {
		return err
	}
	s.places = s.boxes(drivers)
	s.engine, err = engine.New(engine.Config{
		Stores:   stores(s),
		Journal:  s.journal,
		Runtimes: runtimes,
		Agents:   s.agents, Sealer: s.vault, Policy: base, Hooks: hooks,
		Boxes: s.places, Snapshots: s.snapshots, After: []stages.Stage{s.snapshots},
		Before: func(ctx context.Context) error { return finishRewinds(ctx, s) },
		Boot:   boots.Here(s.cfg.Data, s.opt.Log), MaxCopy: int64(s.cfg.Limits.Copy),
		Network: network.Config{Allow: s.cfg.Network.Allow, Default: s.cfg.Network.Default, Workspace: workspaces.Networks(s.workspaces), Changed: s.out.proxy.Changed, Key: s.out.keys.Of},
		Defaults: choices.Defaults{
			Trust: s.cfg.DefaultTrust, Runtime: s.cfg.DefaultRuntime, CheckModel: choice.Check, Bounds: boundsOf(s),
			Model:     func(ctx context.Context) (string, error) { return defaultModel(ctx, s.cfg, choice) },
			Workspace: s.workspaces.For, Environment: workspaces.Environment(s.workspaces), Mount: s.workspaces.Mounts.Choose,
			Budget: holdfast.Budget(s.cfg.Models.Budget), TurnBudget: holdfast.Budget(s.cfg.Models.TurnBudget),
		},
		Turns: engine.Turns{Silence: s.cfg.TurnSilence, Warm: s.cfg.Claude.Warm, ApprovalTimeout: s.cfg.ApprovalTimeout, Accepts: workspaces.Accepting(s.workspaces)},
		At:    s.opt.At, Clock: time.Now, Rand: rand.Reader, Log: s.opt.Log,
	})
	if err == nil {
		err = s.engine.Runtimes().Check(s.cfg.DefaultRuntime)
	}
	return err
}

// boxes returns the configuration of the sessions' boxes.
func (s *server) boxes(drivers map[holdfast.Trust]sandbox.Driver) place.Config {
	return place.Config{
		Scopes: &place.Shared{Private: place.Private{Dir: filepath.Join(s.cfg.Data, "sessions")}, Workspaces: s.workspaces, UIDBase: s.uidBase(), Share: shares(s, drivers[holdfast.Untrusted])},
		Dir:    filepath.Join(s.cfg.Data, "sessions"), Files: trees.Local{}, Drivers: s.pools(drivers), Ready: s.snapshots.Ready,
		LimitsOf: limitsOf(s), LimitsMode: s.cfg.Limits.Mode, Landlock: s.cfg.Landlock, OrphanAfter: s.cfg.OrphanAfter,
		SpoolBytes: spoolBytes, UIDBase: s.uidBase(), Log: s.opt.Log,
	}
}

// uidBase is the first host uid of boxes; 0 if the server is not root.
func (s *server) uidBase() uint32 {
	if os.Getuid() != 0 {
		return 0
	}
	return uint32(s.cfg.Root.UIDBase)
}

// stores returns the parts of the database that the engine reads.
func stores(s *server) engine.Stores {
	return engine.Stores{
		Sessions: s.store.Sessions, Views: s.store.Sessions, Boots: s.store.Sessions, Search: s.store.Index,
		Approvals: s.store.Approvals, Rules: workspaces.Ruled{Stored: s.store.Approvals, Of: s.workspaces}, Facts: s.store.Facts,
	}
}

// pools returns the drivers, each with its pool of boxes.
func (s *server) pools(drivers map[holdfast.Trust]sandbox.Driver) []place.Driver {
	var out []place.Driver
	made := map[sandbox.Driver]int{}
	for _, trust := range []holdfast.Trust{holdfast.Untrusted, holdfast.Trusted} {
		d := drivers[trust]
		if d == nil {
			continue
		}
		if i, ok := made[d]; ok {
			out[i].Serves = append(out[i].Serves, trust)
			continue
		}
		made[d] = len(out)
		out = append(out, place.Driver{Serves: []holdfast.Trust{trust}, Pool: pool.New(pool.Config{
			Driver: d, Token: s.store.Epoch(), MaxBoxes: s.cfg.MaxBoxes, MaxTurns: s.cfg.MaxTurns,
			FreezeAfter: never(s.cfg.FreezeAfter), StopAfter: never(s.cfg.StopAfter), Prewarm: s.cfg.Prewarm,
			OnEvent: func(ev pool.Event) { s.engine.BoxEvent(ev) }, Disk: s.disk(trust), Accepted: s.accepted,
			Resting: func(ctx context.Context, box holdfast.BoxID) []holdfast.CallID {
				return s.engine.Boxes().Resting(ctx, box)
			},
		})})
	}
	return out
}

// disk returns the watch on the disk space of a driver's boxes.
func (s *server) disk(trust holdfast.Trust) *pool.Disk {
	return &pool.Disk{
		Every: s.opt.DiskPoll, Reserve: float64(s.cfg.DiskReserve) / 100, Limit: int64(s.cfg.Limits.Disk), Hostile: trust == holdfast.Untrusted,
		Space: func() (pool.DiskSpace, error) {
			d, err := rooted.DiskSpace(s.cfg.Data)
			return pool.DiskSpace(d), err
		},
		Usage: func(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error) {
			return s.engine.Boxes().Disk(ctx, box)
		},
		LimitOf: diskLimitOf(s),
	}
}

// never converts the configuration's 0, which means never, to the pool's negative value for it.
func never(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// unlimited converts 0, which means no limit in the configuration, to -1, which means no limit in other packages.
func unlimited[T int | time.Duration](n T) T {
	if n == 0 {
		return -1
	}
	return n
}

func (s *server) serve(ctx context.Context, token string) error {
	backups, err := s.newBackups()
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", s.cfg.Listen)
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "serve", "the server cannot listen on %s: %w", holdfast.Quote(s.cfg.Listen), err).
			WithHint("choose another address with --listen, or port 0")
	}
	defer ln.Close()
	held := s.held()
	if held == nil {
		_, err := s.collector.Start(ctx)
		if err == nil {
			err = s.engine.Start(context.WithoutCancel(ctx), s.cfg.OnStart == config.StartStop)
		}
		if err == nil {
			err = s.workspaces.Resume(context.WithoutCancel(ctx))
		}
		if err != nil {
			return errors.Join(err, s.engine.Close(context.WithoutCancel(ctx), false))
		}
	}
	metrics := s.metrics.Handler((&looker{s: s}).look)
	stopMetrics, err := s.serveMetrics(metrics)
	if err != nil {
		return errors.Join(err, s.engine.Close(context.WithoutCancel(ctx), false))
	}
	defer stopMetrics()
	bin := trash.New(trash.Config{
		Sessions: s.engine, Boxes: s.engine.Boxes(), Store: workspaces.Purging{Sessions: s.store.Sessions, To: s.workspaces}, Snapshots: s.snapshots, Journal: s.journal,
		Keep: s.cfg.KeepTrash, Clock: time.Now, Log: s.opt.Log,
	})
	srv := httpapi.NewServer(httpapi.Config{
		Sessions: s.engine, Trash: bin, Checkpoints: s.branches(), Snapshots: snapshotStore{s.store.Checkpoints, s.collector}, Backups: backups, Views: s.engine.Views(), Boxes: s.engine.Direct(), Approvals: s.engine.Questions(), Agents: s.agents, Keys: s.keys, Secrets: s.vault, Audit: s.audit, Workspaces: s.workspaces,
		Self: httpapi.Self{
			Health: s.health, Editors: &s.about.editors, Models: s.models, Server: s.describe, Containers: s.engine.Boxes(),
			Metrics: metrics, Answered: s.metrics.Answered, Version: s.opt.Version, Held: held,
		},
		Access: guard.Access{Token: token, Listen: ln.Addr().String(), Hosts: s.cfg.Hosts, Origins: s.cfg.Origins},
		Log:    s.opt.Log,
		Bounds: httpapi.Bounds{Copy: int64(s.cfg.Limits.Copy), Rate: unlimited(s.cfg.RateLimit), Failures: unlimited(s.cfg.AuthFailures)},
	})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(netutil.LimitListener(ln, s.cfg.MaxConnections)) }()
	url := lifecycle.LocalURL(ln.Addr())
	if err := lifecycle.WriteAddress(s.cfg.Data, url); err != nil {
		s.opt.Log.Warn("the server's address cannot be recorded: give it to clients with --url", "url", url, "error", err)
	}
	if s.opt.Ready != nil {
		s.opt.Ready("http://" + ln.Addr().String())
	}
	s.opt.Log.Info("started", "version", s.opt.Version, "data", s.cfg.Data, "driver", s.cfg.Driver, "url", url, "boxes_running", s.adopted())
	// The start does not wait for providers and drivers.
	telling, stop := context.WithCancel(ctx)
	told := make(chan struct{})
	defer func() {
		stop()
		<-told
	}()
	go func() {
		defer close(told)
		s.tell(telling)
		trimmed(telling)
		if held == nil {
			s.collects(telling, bin)
		}
	}()
	select {
	case err = <-served:
	case <-ctx.Done():
		err = s.stop(context.WithoutCancel(ctx), srv)
		_ = lifecycle.RemoveAddress(s.cfg.Data, url) // if the address file stays, the next start overwrites it
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	return err
}

// settled is how long a started server waits before it gives back the memory that only the start needed.
const settled = time.Second

// trimmed waits for settled, and then gives the memory that only the start needed back to the operating system.
func trimmed(ctx context.Context) {
	if clock.Pause(ctx, settled) == nil {
		trim.Memory()
	}
}

// stop waits at most DrainTimeout for the running turns, then ends the API's streams, then the engine.
func (s *server) stop(ctx context.Context, srv *http.Server) error {
	defer s.opt.Log.Info("the server has stopped")
	if n := s.engine.Health(ctx).RunningTurns; n > 0 {
		s.opt.Log.Info("draining: running turns may finish; a second signal ends the server now", "turns", n, "up_to", s.cfg.DrainTimeout)
	}
	drain, cancel := context.WithTimeout(ctx, s.cfg.DrainTimeout)
	defer cancel()
	if err := s.engine.Drain(drain); err != nil {
		s.opt.Log.Warn("turns still ran at the end; the next start continues them", "error", err)
	}
	closing, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if err := srv.Shutdown(closing); err != nil {
		_ = srv.Close() // cuts event streams, whose readers reconnect
	}
	ending, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return errors.Join(s.engine.Close(ending, s.cfg.OnShutdown == config.ShutdownStop), s.snapshots.Close())
}
