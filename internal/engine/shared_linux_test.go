package engine_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/internal/stages"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// together lets sessions share the box and the files of the first of them.
type together struct {
	place.Private
	dir string
	// places: each session has a place of its own in the box.
	places bool
	mu     sync.Mutex
	ids    []holdfast.SessionID
}

func (s *together) add(id holdfast.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ids = append(s.ids, id)
}

func (s *together) members() []holdfast.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

func (s *together) Of(holdfast.SessionID) place.Scope {
	first := s.members()[0]
	dir := filepath.Join(s.dir, "shared")
	return place.Scope{Box: first.Box(), Files: first.Box(), Dir: dir, Home: dir, Owner: first, Shared: s.places}
}

func (s *together) Boxes(id holdfast.SessionID) []holdfast.BoxID {
	return []holdfast.BoxID{s.Of(id).Box}
}

func (s *together) Members(_ context.Context, box holdfast.BoxID) ([]holdfast.SessionID, error) {
	if ids := s.members(); len(ids) > 0 && ids[0].Box() == box {
		return ids, nil
	}
	return nil, nil
}

// house is a server on which all sessions share one box.
type house struct {
	*world
	shared *together
	pool   atomic.Pointer[pool.Pool]
	// open makes the driver of the next server, kill ends the box as a crash would.
	open func() sandbox.Driver
	kill func(holdfast.BoxID)
	// join is called when a session joins the box of the driver sharer.
	join func(holdfast.BoxID) error
}

// sharer is a driver whose boxes sessions join; the places in them are those of mem, where all have one home.
type sharer struct {
	*mem.Driver
	h *house
}

func (d sharer) Ensure(ctx context.Context, spec sandbox.Spec) (sandbox.Info, error) {
	spec.Shared = false
	return d.Driver.Ensure(ctx, spec)
}

func (d sharer) Join(_ context.Context, box holdfast.BoxID, _ sandbox.Member) error {
	return d.h.join(box)
}

func newHouse(t *testing.T, driver string, after ...stages.Stage) *house {
	w := &world{t: t, dir: testkit.BaseDir(t), rt: loop(t)}
	h := &house{world: w, shared: &together{dir: filepath.Join(w.dir, "sessions")}}
	var uids uint32
	switch driver {
	case "mem":
		d := mem.New(mem.Config{})
		h.open = func() sandbox.Driver { return d.Reopen() }
		h.kill = func(box holdfast.BoxID) { d.KillBox(box) }
	case "sharer":
		d := mem.New(mem.Config{})
		h.shared.places, h.join = true, func(holdfast.BoxID) error { return nil }
		h.open = func() sandbox.Driver { return sharer{d.Reopen(), h} }
		h.kill = func(box holdfast.BoxID) { d.KillBox(box) }
	case "local":
		if os.Geteuid() == 0 {
			uids = 1_878_900_000
		}
		program := testkit.Boxd(t)
		h.open = func() sandbox.Driver {
			d, err := local.New(local.Config{
				Home: w.dir, Boxd: boxd.File(program), LimitsMode: sandbox.LimitsBestEffort,
				Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(w.dir),
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			h.kill = func(box holdfast.BoxID) {
				list, err := d.List(t.Context())
				if err != nil {
					t.Error(err)
				}
				for _, b := range list {
					if b.Box == box && b.PID > 1 {
						_ = syscall.Kill(b.PID, syscall.SIGKILL)
					}
				}
			}
			return d
		}
	}
	w.pools = func() map[holdfast.Trust]*pool.Pool {
		p := pool.New(pool.Config{
			Driver: h.open(), Token: w.store.Epoch(), FreezeAfter: -1, StopAfter: -1,
			OnEvent: func(ev pool.Event) { h.BoxEvent(ev) },
			Resting: func(ctx context.Context, box holdfast.BoxID) []holdfast.CallID { return h.Boxes().Resting(ctx, box) },
		})
		h.pool.Store(p)
		return map[holdfast.Trust]*pool.Pool{holdfast.Untrusted: p}
	}
	w.tune = func(c *engine.Config) { c.Boxes.Scopes, c.Boxes.UIDBase, c.After = h.shared, uids, after }
	w.start()
	t.Cleanup(func() { w.stop(true) })
	for range 2 {
		id := holdfast.SessionID(newUUID(t))
		h.shared.add(id)
		h.create(holdfast.CreateSession{ID: string(id)})
	}
	return h
}

func (h *house) file(name string) string {
	b, _ := os.ReadFile(filepath.Join(h.shared.dir, "shared", "workspace", name))
	return string(b)
}

// TestHZ22_TwoSessionsInOneBox kills the server, the box, or both, right before and right after
// each commit of the turns of two sessions that work in one box, both of them at the same
// place. Each call runs once, and its outcome is known unless the box died.
//
// WS-R51.
func TestHZ22_TwoSessionsInOneBox(t *testing.T) {
	for _, driver := range []string{"mem", "local"} {
		for _, fault := range []string{"server", "box", "both"} {
			t.Run(driver+"/"+fault, func(t *testing.T) {
				h := newHouse(t, driver)
				h.wantNothingHeld() // the box runs: one that is being started did not die in use
				for _, after := range []bool{false, true} {
					n := 2 // a message that was not committed is nobody's
					for ; h.round(fault, n, after); n++ {
					}
					// The message, before and after each call, and the end.
					if n-1 < 2+2*calls {
						t.Errorf("turns of %d calls made %d commits", calls, n-1)
					}
				}
			})
		}
	}
}

// calls is how many commands each turn runs.
const calls = 3

// steps holds two turns in step with each other, and both of them at their n-th commit.
type steps struct {
	ids   []holdfast.SessionID
	n     int
	after bool
	// lost: what stands before its commit does not get to make it.
	lost bool

	mu      sync.Mutex
	changed *sync.Cond
	made    [2]int
	// at counts the turns that stand at their n-th commit, over those that ended.
	at, over int
	let      bool
}

// mine is the index of the turn that a change belongs to.
func (s *steps) mine(c journal.Encoded) (int, bool) {
	i := slices.Index(s.ids, c.Session)
	return i, i >= 0 && slices.ContainsFunc(c.Events, func(d journal.Draft) bool { return d.Turn != "" })
}

func (s *steps) before(c journal.Encoded) error {
	i, ok := s.mine(c)
	if !ok {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.made[1-i] < s.made[i] && s.over == 0 && !s.let {
		s.changed.Wait()
	}
	if s.after || s.made[i]+1 != s.n || !s.stand() || !s.lost {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, "store.commit", "the server is gone")
}

func (s *steps) committed(c journal.Encoded) {
	i, ok := s.mine(c)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made[i]++
	s.changed.Broadcast()
	if s.after && s.made[i] == s.n {
		s.stand()
	}
	if has(c, holdfast.EventTurnCompleted) {
		s.over++
		s.changed.Broadcast()
	}
}

// stand waits until everybody may go on; false when that was so before.
func (s *steps) stand() bool {
	if s.let {
		return false
	}
	s.at++
	s.changed.Broadcast()
	for !s.let {
		s.changed.Wait()
	}
	return true
}

// wait returns when both turns stand, or have ended; it says whether any stands.
func (s *steps) wait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.at+s.over < 2 {
		s.changed.Wait()
	}
	return s.at > 0
}

func (s *steps) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.let = true
	s.changed.Broadcast()
}

// round runs a turn of each session, with a fault at their n-th commits. It answers false when
// the turns made fewer.
func (h *house) round(fault string, n int, after bool) bool {
	ids := h.shared.members()
	s := &steps{ids: ids, n: n, after: after, lost: fault != "box"}
	s.changed = sync.NewCond(&s.mu)
	before, committed := s.before, s.committed
	h.refuse.Store(&before)
	h.committed.Store(&committed)
	name := fmt.Sprintf("%d-%t", n, after)
	var turns [2]holdfast.TurnID
	sent := make(chan error, 2)
	engine := h.Engine
	for i, id := range ids {
		var does []step
		for k := range calls {
			does = append(does, bash(fmt.Sprintf("echo %s-%d >> lines-%d", name, k, i)))
		}
		text := script(append(does, say("ok"))...)
		go func() {
			s, err := engine.Send(context.WithoutCancel(h.t.Context()), id, holdfast.SendMessage{Text: text})
			turns[i] = s.Turn.ID
			sent <- err
		}()
	}
	stood := s.wait()
	if stood {
		h.strike(fault, ids[0].Box(), s.letGo)
	}
	for range ids {
		if err := <-sent; err != nil {
			h.t.Fatal(err)
		}
	}
	for i, id := range ids {
		h.wantOnce(fault, name, i, id, turns[i])
	}
	h.wantNothingHeld()
	return stood
}

// wantNothingHeld waits until the box holds no call, once each session has used it.
func (h *house) wantNothingHeld() {
	h.t.Helper()
	ids := h.shared.members()
	for _, id := range ids {
		if _, err := h.Exec(h.t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil); err != nil {
			h.t.Error(err)
		}
	}
	live := h.pool.Load().Live(ids[0].Box())
	until(h.t, func() bool {
		held, err := live.Calls(h.t.Context())
		return err == nil && len(held) == 0
	})
}

// strike kills what the fault says while the turns stand still, and lets go of them.
func (h *house) strike(fault string, box holdfast.BoxID, letGo func()) {
	pool := h.pool.Load()
	if fault == "box" {
		h.kill(box)
		until(h.t, func() bool { return pool.Live(box) == nil })
		letGo()
		return
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); h.stop(false) }()
	until(h.t, func() bool { return pool.Live(box) == nil })
	letGo()
	<-stopped
	if fault == "both" {
		h.kill(box)
	}
	h.start()
}

// wantOnce checks that the calls of a turn ran once, or may not have run, as their outcomes say.
func (h *house) wantOnce(fault, name string, i int, id holdfast.SessionID, turn holdfast.TurnID) {
	h.t.Helper()
	if got := h.ended(id, turn); got.Status != holdfast.TurnCompleted || got.Result != "ok" {
		h.t.Fatalf("%s at commit %s: session %d: turn = %+v\n%s", fault, name, i, got, h.dump(id))
	}
	unknown := 0
	for _, ev := range h.log(id) {
		if ev.Turn == turn && ev.Type == holdfast.EventToolUnknown {
			unknown++
		}
	}
	if unknown > 0 && fault == "server" {
		h.t.Errorf("at commit %s: the box lived, and outcomes of session %d are unknown\n%s", name, i, h.dump(id))
	}
	ran := 0
	for k := range calls {
		line := fmt.Sprintf("%s-%d\n", name, k)
		times := strings.Count(h.file(fmt.Sprintf("lines-%d", i)), line)
		ran += min(times, 1)
		if times > 1 {
			h.t.Errorf("%s at commit %s: a call of session %d ran %d times\n%s", fault, name, i, times, h.dump(id))
		}
	}
	if ran+unknown < calls {
		h.t.Errorf("%s at commit %s: %d calls of session %d ran, and %d outcomes are unknown\n%s", fault, name, ran, i, unknown, h.dump(id))
	}
	h.sound(id)
}

// TestHZ22_OneOfTwoEnds: the end of a session ends what it runs in the box, and nothing of the
// session that shares it. The box and the files go with the last one.
func TestHZ22_OneOfTwoEnds(t *testing.T) {
	h := newHouse(t, "mem")
	ids := h.shared.members()
	run := func(id holdfast.SessionID, command string) <-chan holdfast.ExecResult {
		done := make(chan holdfast.ExecResult, 1)
		go func() {
			res, err := h.Exec(context.WithoutCancel(t.Context()), id, holdfast.ExecRequest{Command: command}, nil, nil)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		return done
	}
	waits := "echo > up-%d; until [ -f go ]; do sleep 0.01; done"
	ends, stays := run(ids[0], fmt.Sprintf(waits, 0)), run(ids[1], fmt.Sprintf(waits, 1))
	until(t, func() bool { return h.file("up-0") != "" && h.file("up-1") != "" })
	if _, err := h.End(t.Context(), ids[0], holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if res := <-ends; res.Class != holdfast.ExitCanceled {
		t.Errorf("the command of the session that ended: %+v", res)
	}
	<-run(ids[1], "echo > go")
	if res := <-stays; res.Class != holdfast.ExitOK {
		t.Errorf("the command of the other session: %+v", res)
	}
	if err := h.Delete(t.Context(), ids[0], holdfast.EndSession{Purge: true}); err != nil {
		t.Fatal(err)
	}
	if h.file("go") == "" {
		t.Error("the files of the other session are gone")
	}
	if _, err := h.End(t.Context(), ids[1], holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	if list, err := h.Containers(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the box of nobody: %+v, %v", list, err)
	}
}

// TestWSR64_ABoxThatDiesWhileASessionJoins: the session joins the next box, once. A box that lives and refuses is not
// asked again.
func TestWSR64_ABoxThatDiesWhileASessionJoins(t *testing.T) {
	h := newHouse(t, "sharer")
	id := h.shared.members()[0]
	for _, c := range []struct {
		deaths, refusals, joins int
		ok                      bool
	}{{joins: 1, ok: true}, {deaths: 1, joins: 2, ok: true}, {deaths: 2, joins: 2}, {refusals: 1, joins: 1}} {
		joins := 0
		h.join = func(box holdfast.BoxID) error {
			if joins++; joins > c.deaths+c.refusals {
				return nil
			}
			if joins <= c.deaths {
				h.kill(box)
			}
			return holdfast.Errorf(holdfast.KindUnavailable, "join", "the connection was reset")
		}
		res, err := h.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo there"}, nil, nil)
		if ok := err == nil && string(res.Stdout) == "there\n"; ok != c.ok || joins != c.joins {
			t.Errorf("%+v: %+v, %v after %d joins", c, res, err, joins)
		}
		if _, err := h.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestHZ22_WhatEachSessionHas: both logs tell of the box, and each session has an environment
// of its own in it.
//
// WS-R46.
func TestHZ22_WhatEachSessionHas(t *testing.T) {
	h := newHouse(t, "mem")
	third := holdfast.SessionID(newUUID(t))
	h.shared.add(third)
	h.create(holdfast.CreateSession{ID: string(third), Env: map[string]string{"MINE": "third"}})
	for _, id := range h.shared.members() {
		res, err := h.Exec(t.Context(), id, holdfast.ExecRequest{Command: `echo "$HOLDFAST_SESSION $HOLDFAST_RUNTIME $MINE"`}, nil, nil)
		want := string(id) + " native \n"
		if id == third {
			want = string(id) + " native third\n"
		}
		if err != nil || string(res.Stdout) != want {
			t.Errorf("session %s has %q, want %q; %v", id, res.Stdout, want, err)
		}
	}
	if _, err := h.StopContainers(t.Context(), holdfast.StopContainers{All: true}); err != nil {
		t.Fatal(err)
	}
	for _, id := range h.shared.members() {
		types := h.types(id)
		if !slices.Contains(types, holdfast.EventBoxStarted) || !slices.Contains(types, holdfast.EventBoxStopped) {
			t.Errorf("session %s is not told of its box: %v", id, types)
		}
	}
}
