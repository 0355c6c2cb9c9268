package runtimetest

import (
	"context"
	"errors"
	"iter"
	goruntime "runtime"
	"slices"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Point is a place in the code where a server can die. If Name is BeforeRecord or AfterRecord, N counts the server's
// calls of Host.Keep from 0. Any other Name is a kill point of Host.At, and N counts the calls of At with this name
// from 0.
type Point struct {
	Name string
	N    int
}

// The names of the points before and after the transaction of Host.Keep.
const (
	BeforeRecord = "before-record"
	AfterRecord  = "after-record"
)

// Host is one run of a server, as a runtime sees it in a turn. It implements runtime.Host.
type Host struct {
	w     *World
	token uint64

	// OnAt is called at each kill point, OnRecord before each record, OnDelta for each delta; any of them may be nil.
	OnAt     func(point string)
	OnRecord func([]journal.Draft) error
	OnDelta  func(typ holdfast.EventType, data any)
	// Die is the point at which this server is killed; the zero Point means never.
	Die Point

	mu      sync.Mutex
	conn    *sandbox.Box
	dead    bool
	records int
	marks   map[string]int
	// Points are the points that the server has passed so far.
	Points []Point
	Deltas []holdfast.EventType
}

var _ runtime.Host = (*Host)(nil)

// NewHost starts the next server of the world.
func (w *World) NewHost() *Host {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.token++
	h := &Host{w: w, token: w.token, marks: map[string]int{}}
	w.T.Cleanup(h.Close)
	return h
}

// Close ends the server's connection to the box, which lives on.
func (h *Host) Close() {
	h.mu.Lock()
	conn := h.conn
	h.conn = nil
	h.mu.Unlock()
	if conn != nil {
		// Closing a broken connection fails, which does not matter.
		_ = conn.Close()
	}
}

// Kill ends the server as SIGKILL does: nothing is recorded after it. A goroutine that
// runs a Runtime ends when it next calls a method such as Keep, Log, At or Decide.
func (h *Host) Kill() {
	h.mu.Lock()
	h.dead = true
	h.mu.Unlock()
	h.w.kept.Forget(h.w.Session.ID) // the killed server had the cached conversation in its memory
	h.Close()
}

// died ends the calling goroutine when the server is dead.
func (h *Host) died() {
	h.mu.Lock()
	dead := h.dead
	h.mu.Unlock()
	if dead {
		goruntime.Goexit()
	}
}

// pass records that a point is passed, and kills the server if the point is h.Die.
func (h *Host) pass(name string, n int) {
	h.mu.Lock()
	p := Point{name, n}
	h.Points = append(h.Points, p)
	die := h.Die == p
	h.mu.Unlock()
	if die {
		h.Kill()
	}
	h.died()
}

// Log implements runtime.Host.
func (h *Host) Log(ctx context.Context, after int64) iter.Seq2[holdfast.Event, error] {
	return func(yield func(holdfast.Event, error) bool) {
		h.died()
		for _, e := range h.w.Events(after) {
			if err := ctx.Err(); err != nil {
				yield(holdfast.Event{}, err)
				return
			}
			if !yield(e, nil) {
				return
			}
		}
	}
}

// Conversation implements runtime.Host.
func (h *Host) Conversation(ctx context.Context, use func(*conversation.Conversation) error) error {
	return h.w.kept.Read(h.w.Session.ID, func(after int64) iter.Seq2[holdfast.Event, error] { return h.Log(ctx, after) }, use)
}

// AgentStates implements runtime.Host.
func (h *Host) AgentStates(context.Context) ([]holdfast.AgentState, error) {
	h.died()
	return h.w.States(), nil
}

// Keep implements runtime.Host.
func (h *Host) Keep(ctx context.Context, states []holdfast.AgentState, drafts ...journal.Draft) ([]holdfast.Event, error) {
	h.died()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if h.OnRecord != nil {
		if err := h.OnRecord(drafts); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	n := h.records
	h.records++
	h.mu.Unlock()
	h.pass(BeforeRecord, n)
	out := h.w.keep(states, drafts...)
	h.pass(AfterRecord, n)
	return out, nil
}

// Delta implements runtime.Host.
func (h *Host) Delta(typ holdfast.EventType, data any) {
	h.mu.Lock()
	h.Deltas = append(h.Deltas, typ)
	h.mu.Unlock()
	if h.OnDelta != nil {
		h.OnDelta(typ, data)
	}
}

// Steered implements runtime.Host.
func (h *Host) Steered(_ context.Context, after int64) ([]holdfast.Event, error) {
	h.died()
	return slices.DeleteFunc(h.w.Events(after), func(e holdfast.Event) bool {
		var m holdfast.UserMessage
		return e.Type != holdfast.EventMessageUser || e.Decode(&m) != nil || !m.Steer
	}), nil
}

var errDead = errors.New("the test has killed this server")

// Box implements runtime.Host.
func (h *Host) Box(ctx context.Context) (*sandbox.Box, error) { return h.connected(ctx, true) }

func (h *Host) connected(ctx context.Context, start bool) (*sandbox.Box, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.dead {
		return nil, errDead
	}
	if h.conn != nil {
		select {
		case <-h.conn.Done():
			_ = h.conn.Close()
			h.conn = nil
		default:
			return h.conn, nil
		}
	}
	conn, err := h.w.connect(ctx, h.token, start)
	if err != nil {
		return nil, err
	}
	h.conn = conn
	return conn, nil
}

// Outcome implements runtime.Host.
func (h *Host) Outcome(ctx context.Context, s holdfast.ToolStarted) (*sandbox.Box, bool, error) {
	h.died()
	box, err := h.connected(ctx, false)
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return nil, true, nil
	}
	if err != nil {
		return nil, false, err
	}
	if box.Boot() == s.Boot {
		return box, false, nil
	}
	calls, err := box.Calls(ctx)
	if err != nil {
		return nil, false, err
	}
	for _, c := range calls {
		if c.Call == s.Call {
			return box, false, nil
		}
	}
	return nil, true, nil
}

// Release implements runtime.Host.
func (h *Host) Release(box *sandbox.Box, calls ...holdfast.CallID) {
	h.died()
	box.Release(calls...)
}

// Decide implements runtime.Host.
func (h *Host) Decide(ctx context.Context, req policy.Request) (policy.Decision, error) {
	h.died()
	if req.Mode == "" {
		req.Mode = h.w.Session.Mode
	}
	return new(policy.Engine).Decide(ctx, req)
}

// Scope implements runtime.Host.
func (h *Host) Scope(ctx context.Context, req policy.Request) (policy.Scope, error) {
	h.died()
	return new(policy.Engine).Scope(ctx, req)
}

// NewCall implements runtime.Host.
func (h *Host) NewCall() (holdfast.CallID, error) { return holdfast.CallID(h.w.uuid()), nil }

// At implements runtime.Host.
func (h *Host) At(point string) {
	h.mu.Lock()
	n := h.marks[point]
	h.marks[point]++
	h.mu.Unlock()
	if h.OnAt != nil {
		h.OnAt(point)
	}
	h.pass(point, n)
}

// Turn returns the Turn with which the turn id runs in this world; again is its field Again.
func (w *World) Turn(id holdfast.TurnID, again bool) runtime.Turn {
	return runtime.Turn{Session: w.Session, Place: runtime.Box, ID: id, Instructions: "Be brief.", Again: again}
}

// Ran is the outcome of a Run.
type Ran struct {
	Result runtime.Result
	Err    error
	// Died is true if the server was killed during the Run.
	Died bool
}

// Run runs a turn on a new goroutine, so that the server can die in it.
func (h *Host) Run(ctx context.Context, r runtime.Runtime, t runtime.Turn) Ran {
	ran := Ran{Died: true}
	done := make(chan struct{})
	go func() {
		defer close(done)
		res, err := r.Run(ctx, t, h)
		ran = Ran{Result: res, Err: err}
	}()
	<-done
	return ran
}
