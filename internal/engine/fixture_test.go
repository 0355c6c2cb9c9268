package engine_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/approvals"
	"github.com/holdfast-run/holdfast/internal/choices"
	"github.com/holdfast-run/holdfast/internal/direct"
	"github.com/holdfast-run/holdfast/internal/engine"
	brought "github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/network"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/internal/store/sqlite"
	"github.com/holdfast-run/holdfast/internal/trash"
	"github.com/holdfast-run/holdfast/internal/trees"
	"github.com/holdfast-run/holdfast/internal/views"
	"github.com/holdfast-run/holdfast/policy"
)

// patience bounds every wait of these tests.
const patience = 60 * time.Second

// world is one data directory with the server that runs on it.
type world struct {
	t     testing.TB
	dir   string
	rt    runtime.Runtime
	pools func() map[holdfast.Trust]*pool.Pool
	tune  func(*engine.Config)
	// refuse, when set, answers a commit in the store's place.
	refuse    atomic.Pointer[func(journal.Encoded) error]
	refused   atomic.Int64
	committed atomic.Pointer[func(journal.Encoded)]
	// reads counts how often a log was read.
	reads atomic.Int64
	// dirtyClose: the store may fail to close, its disk was full.
	dirtyClose bool
	// stopBoxes is the on_start setting of the next start.
	stopBoxes bool
	store     *sqlite.Store
	journal   *journal.Journal
	*engine.Engine
	// These are the engine's.
	*direct.Work
	*views.Views
	*approvals.Questions
}

// Delete deletes a session as a server does.
func (w *world) Delete(ctx context.Context, id holdfast.SessionID, req holdfast.EndSession) error {
	return trash.New(trash.Config{
		Sessions: w.Engine, Boxes: w.Boxes(), Store: w.store.Sessions, Snapshots: noPurge{}, Journal: w.journal,
		Keep: time.Hour, Clock: time.Now,
	}).Delete(ctx, id, req)
}

// noPurge is the purge of a server without snapshots.
type noPurge struct{}

func (noPurge) Purge(context.Context, journal.Row) error { return nil }

// gate is the store as the engine and its journal see it: commits can be refused.
type gate struct {
	*sqlite.Sessions
	w *world
}

func (g gate) Commit(ctx context.Context, c journal.Encoded) (journal.Committed, error) {
	if refuse := g.w.refuse.Load(); refuse != nil {
		if err := (*refuse)(c); err != nil {
			g.w.refused.Add(1)
			return journal.Committed{}, err
		}
	}
	done, err := g.Sessions.Commit(ctx, c)
	if told := g.w.committed.Load(); told != nil && err == nil {
		(*told)(c)
	}
	return done, err
}

func (g gate) Head(ctx context.Context, id holdfast.SessionID) (int64, error) {
	g.w.reads.Add(1)
	return g.Sessions.Head(ctx, id)
}

// whenCommitted calls act when a change with an event of that type is durable,
// before its author hears of it.
func (w *world) whenCommitted(typ holdfast.EventType, act func()) {
	var once sync.Once
	told := func(c journal.Encoded) {
		if has(c, typ) {
			once.Do(act)
		}
	}
	w.committed.Store(&told)
}

// refuseWhile makes commits fail for which pick says so.
func (w *world) refuseWhile(pick func(journal.Encoded) bool) {
	refuse := func(c journal.Encoded) error {
		if pick(c) {
			return holdfast.Errorf(holdfast.KindUnavailable, "store.commit", "the store is read-only: no space left")
		}
		return nil
	}
	w.refuse.Store(&refuse)
}

func (w *world) acceptAll() { w.refuse.Store(nil) }

// has reports that a change holds an event of a type.
func has(c journal.Encoded, typ holdfast.EventType) bool {
	return slices.ContainsFunc(c.Events, func(d journal.Draft) bool { return d.Type == typ })
}

// newWorld starts an engine over a real store with the given runtime.
func newWorld(t testing.TB, rt runtime.Runtime, tune func(*engine.Config)) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), rt: rt, tune: tune}
	w.start()
	t.Cleanup(func() { w.stop(true) })
	return w
}

func (w *world) start() {
	w.t.Helper()
	if err := w.try(); err != nil {
		w.t.Fatal(err)
	}
}

// try is start that may fail; stop is due in any case.
func (w *world) try() error {
	w.t.Helper()
	store, err := sqlite.Open(w.t.Context(), sqlite.Config{Path: filepath.Join(w.dir, "holdfast.db")})
	if err != nil {
		w.t.Fatal(err)
	}
	sessions := gate{store.Sessions, w}
	w.store, w.journal = store, journal.New(journal.Config{Store: sessions, Leases: store.Leases})
	cfg := engine.Config{
		Stores: engine.Stores{
			Sessions: sessions, Views: sessions, Boots: sessions, Search: store.Index,
			Approvals: store.Approvals, Rules: store.Approvals, Facts: store.Facts,
		},
		Journal: w.journal, Runtimes: []runtime.Runtime{w.rt}, Agents: oneAgent{}, Sealer: plainSealer{},
		Policy: new(policy.Engine), Boxes: place.Config{Dir: filepath.Join(w.dir, "sessions"), Files: trees.Local{}}, Clock: time.Now, Rand: rand.Reader,
		Network: network.Config{Key: func(id holdfast.SessionID) string { return string(id) }},
		Turns:   engine.Turns{Accepts: func(holdfast.SessionID) error { return nil }},
		Defaults: choices.Defaults{
			Workspace: func(context.Context, string, string, string) (*holdfast.Workspace, error) { return nil, nil },
			Trust:     holdfast.Untrusted, Model: func(context.Context) (string, error) { return "scripted", nil }, CheckModel: checkModel,
		},
	}
	if w.pools != nil {
		cfg.Boxes.Drivers = drivers(w.pools())
	}
	if w.tune != nil {
		w.tune(&cfg)
	}
	if w.Engine, err = engine.New(cfg); err != nil {
		w.t.Fatal(err)
	}
	w.Work, w.Views, w.Questions = w.Direct(), w.Engine.Views(), w.Engine.Questions()
	return w.Engine.Start(context.WithoutCancel(w.t.Context()), w.stopBoxes)
}

// drivers are the pools by what they serve.
func drivers(pools map[holdfast.Trust]*pool.Pool) (out []place.Driver) {
	for _, trust := range []holdfast.Trust{holdfast.Untrusted, holdfast.Trusted} {
		p := pools[trust]
		i := slices.IndexFunc(out, func(d place.Driver) bool { return d.Pool == p })
		switch {
		case p == nil:
		case i >= 0:
			out[i].Serves = append(out[i].Serves, trust)
		default:
			out = append(out, place.Driver{Pool: p, Serves: []holdfast.Trust{trust}})
		}
	}
	return out
}

func (w *world) Containers(ctx context.Context) ([]holdfast.Container, error) {
	return w.Boxes().Containers(ctx)
}

func (w *world) StopContainers(ctx context.Context, req holdfast.StopContainers) ([]holdfast.Container, error) {
	return w.Boxes().StopContainers(ctx, req)
}

func (w *world) PruneContainers(ctx context.Context, dryRun bool) (holdfast.PrunedContainers, error) {
	return w.Boxes().PruneContainers(ctx, dryRun)
}

// stop ends the engine as a crash would, as far as the log goes.
func (w *world) stop(boxes bool) {
	if w.Engine == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(w.t.Context()), patience)
	defer cancel()
	if err := w.Engine.Close(ctx, boxes); err != nil {
		w.t.Error(err)
	}
	if err := w.store.Close(); err != nil && !w.dirtyClose {
		w.t.Error(err)
	}
	w.Engine = nil
}

func (w *world) restart() {
	w.t.Helper()
	w.stop(false)
	w.start()
}

func (w *world) create(req holdfast.CreateSession) holdfast.SessionID {
	w.t.Helper()
	s, _, err := w.Create(w.t.Context(), req, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return s.ID
}

func (w *world) send(id holdfast.SessionID, text string) holdfast.Turn {
	w.t.Helper()
	return w.sendAs(id, holdfast.SendMessage{Text: text})
}

func (w *world) sendAs(id holdfast.SessionID, msg holdfast.SendMessage) holdfast.Turn {
	w.t.Helper()
	sent, err := w.Send(w.t.Context(), id, msg)
	if err != nil {
		w.t.Fatal(err)
	}
	return sent.Turn
}

// ended waits for a turn's terminal event and returns the turn.
func (w *world) ended(id holdfast.SessionID, turn holdfast.TurnID) holdfast.Turn {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), patience)
	defer cancel()
	r, err := w.Follow(ctx, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	for {
		evs, err := r.Next(ctx)
		if err != nil {
			w.t.Fatalf("turn %s has no end: %v\n%s", turn, err, w.dump(id))
		}
		for _, ev := range evs {
			if ev.Turn == turn && ev.EndsTurn() {
				got, err := w.Turn(ctx, id, turn)
				if err != nil {
					w.t.Fatal(err)
				}
				return got
			}
		}
	}
}

// types lists the types of a session's events.
func (w *world) types(id holdfast.SessionID) []holdfast.EventType {
	w.t.Helper()
	var out []holdfast.EventType
	for _, ev := range w.log(id) {
		out = append(out, ev.Type)
	}
	return out
}

func (w *world) log(id holdfast.SessionID) []holdfast.Event {
	w.t.Helper()
	var all []holdfast.Event
	for {
		evs, err := w.Events(w.t.Context(), id, holdfast.EventFilter{After: int64(len(all)), Limit: 1000})
		if err != nil {
			w.t.Fatal(err)
		}
		if len(evs) == 0 {
			return all
		}
		all = append(all, evs...)
	}
}

func (w *world) dump(id holdfast.SessionID) string {
	out := ""
	for _, ev := range w.log(id) {
		out += fmt.Sprintf("%3d %s %s\n", ev.Seq, ev.Type, ev.Data)
	}
	return out
}

func (w *world) wantKind(err error, k holdfast.Kind) {
	w.t.Helper()
	if !holdfast.IsKind(err, k) {
		w.t.Errorf("error %v is of kind %q, want %q", err, holdfast.KindOf(err), k)
	}
}

// oneAgent is a registry with the default agent.
type oneAgent struct{}

const version = holdfast.VersionID("sha256:0000000000000000000000000000000000000000000000000000000000000000")

func (oneAgent) Get(_ context.Context, name holdfast.AgentName) (holdfast.Agent, error) {
	if name != holdfast.DefaultAgent {
		return holdfast.Agent{}, holdfast.Errorf(holdfast.KindNotFound, "agent", "no agent %q", name)
	}
	return holdfast.Agent{Name: name, Version: 1, VersionID: version, Runtime: "native"}, nil
}

func (oneAgent) Instructions(context.Context, holdfast.VersionID) (string, error) {
	return "Be brief.", nil
}

func (oneAgent) Settings(context.Context, holdfast.VersionID) (settings.Settings, error) {
	return settings.Settings{}, nil
}

var noFolder brought.Folder

func (oneAgent) Folder(context.Context, holdfast.VersionID) (*brought.Folder, error) {
	return &noFolder, nil
}

func (oneAgent) Plugin(context.Context, holdfast.VersionID) (string, error) { return "", nil }

func (oneAgent) Files(context.Context, holdfast.VersionID) ([]rooted.File, error) {
	return []rooted.File{{Path: "CLAUDE.md", Mode: 0o644, Content: []byte("Be brief.\n")}}, nil
}

// plainSealer reverses, which is enough to see that what is stored is not plain.
type plainSealer struct{}

func (plainSealer) Hold() func() { return func() {} }

func (plainSealer) SealEnvironment(_ holdfast.SessionID, b []byte) ([]byte, error) {
	return reversed(b), nil
}

func (plainSealer) OpenEnvironment(_ holdfast.SessionID, b []byte) ([]byte, error) {
	return reversed(b), nil
}

func reversed(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[len(b)-1-i] = c
	}
	return out
}

// puppet is a runtime whose turns do what the test says: each message's text
// names a behaviour.
type puppet struct {
	mu   sync.Mutex
	runs map[holdfast.TurnID]int
	// waits counts how often a turn has come to wait.
	waits   map[holdfast.TurnID]int
	entered chan holdfast.TurnID
	release chan struct{}
	box     func(ctx context.Context, host runtime.Host) error
}

func newPuppet() *puppet {
	return &puppet{runs: map[holdfast.TurnID]int{}, waits: map[holdfast.TurnID]int{}, entered: make(chan holdfast.TurnID, 100), release: make(chan struct{})}
}

func (p *puppet) Name() string                { return "native" }
func (p *puppet) Forget(_ holdfast.SessionID) {}

func (p *puppet) count(id holdfast.TurnID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[id]
}

func (p *puppet) waited(id holdfast.TurnID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.waits[id]
}

// Run obeys the newest message: "wait…" until released or cancelled, "deaf"
// until released only, "fail", "box"; anything else is answered at once.
func (p *puppet) Run(ctx context.Context, t runtime.Turn, host runtime.Host) (runtime.Result, error) {
	p.mu.Lock()
	p.runs[t.ID]++
	p.mu.Unlock()
	var text string
	var seen int64
	for ev, err := range host.Log(ctx, 0) {
		if err != nil {
			return runtime.Result{}, err
		}
		seen = ev.Seq
		if ev.Type == holdfast.EventMessageUser {
			var d holdfast.UserMessage
			if err := ev.Decode(&d); err != nil {
				return runtime.Result{}, err
			}
			text = d.Text()
		}
	}
	select {
	case p.entered <- t.ID:
	default: // a test that does not look
	}
	switch text {
	case "wait", "wait again":
		p.mu.Lock()
		p.waits[t.ID]++
		p.mu.Unlock()
		select {
		case <-p.release:
		case <-ctx.Done():
			return runtime.Result{}, context.Cause(ctx)
		}
	case "deaf":
		<-p.release
	case "fail":
		return runtime.Result{}, holdfast.Errorf(holdfast.KindUnauthenticated, "model", "no key").WithHint("set one")
	case "box":
		if err := p.box(ctx, host); err != nil {
			return runtime.Result{}, err
		}
	}
	return runtime.Result{
		Final: []journal.Draft{{Type: holdfast.EventMessageAssistant, Data: holdfast.AssistantMessage{Parts: []holdfast.Part{{Type: holdfast.PartText, Text: "re: " + text}}, Seen: seen}}},
		Seen:  seen, Text: "re: " + text, StopReason: "end_turn", Steps: 1,
	}, nil
}

func (p *puppet) wait(t *testing.T) holdfast.TurnID {
	t.Helper()
	select {
	case id := <-p.entered:
		return id
	case <-time.After(patience):
		t.Fatal("no turn entered the runtime")
	}
	return ""
}

func checkModel(name string) error {
	if name == "scripted" || name == "other" {
		return nil
	}
	return holdfast.Errorf(holdfast.KindInvalid, "session", "%s is not a model of this server", holdfast.Quote(name)).
		WithHint("use one of: scripted, other")
}
