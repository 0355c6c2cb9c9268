package torture

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// full is how many rounds a run needs to prove what it should; it includes a reserve, because
// some kills of boxd find no box to kill.
const full = 160

// Config configures one run of the kill loop. Zero counts mean the defaults.
type Config struct {
	// Binary is the holdfast program.
	Binary string
	// Dir is an empty directory for the server's data. The users of boxes must be able to pass
	// through its parents.
	Dir string
	// Rounds is the total number of kills (default 160), a third of them of boxd; Sessions is how
	// many sessions work at the same time (default 6).
	Rounds, Sessions int
	Seed             uint64
	// Env is the environment of the server.
	Env []string
	// Out receives one line for each kill.
	Out io.Writer
}

// Result is the outcome of a run.
type Result struct {
	ServerKills int            `json:"server_kills"`
	BoxKills    int            `json:"box_kills"`
	InTurn      int            `json:"in_turn"`
	Points      map[string]int `json:"points"`
	Turns       int            `json:"turns"`
	Lines       int            `json:"lines"`
	Unknown     int            `json:"unknown_outcomes"`
	Violations  []string       `json:"violations"`
	// Shortfalls are the minimums that a full run (160 rounds or more) missed, so that it proves
	// less than it should.
	Shortfalls []string `json:"shortfalls"`
	Leftovers  []string `json:"leftovers"`
	DurationS  float64  `json:"duration_s"`
}

// OK reports whether the run found no problem.
func (r Result) OK() bool {
	return len(r.Violations) == 0 && len(r.Leftovers) == 0 && len(r.Shortfalls) == 0
}

// shortfalls checks a full run against its minimums: 100 kills of the server and 50 of boxd, 70 %
// of the kills during a turn, and each named point 5 times.
func (r Result) shortfalls() []string {
	var out []string
	least := func(what string, got, want int) {
		if got < want {
			out = append(out, fmt.Sprintf("%s: %d, but at least %d are required", what, got, want))
		}
	}
	least("kills of the server", r.ServerKills, 100)
	least("kills of boxd", r.BoxKills, 50)
	least("percent of kills in a turn", 100*r.InTurn/max(r.ServerKills+r.BoxKills, 1), 70)
	for _, p := range Points {
		least("kills at "+p, r.Points[p], 5)
	}
	return out
}

// harness is the state of one run.
type harness struct {
	cfg    Config
	rng    *rand.Rand
	args   []string
	points *points
	result Result

	mu  sync.Mutex
	srv *child.Server
	api *api
	// changed is closed, and replaced by a new channel, whenever api changes.
	changed chan struct{}

	workers []*worker
}

// Run runs the kill loop against one server and returns the result. An error means that the run
// itself could not be carried out; violations that it found are in the Result.
func Run(ctx context.Context, cfg Config) (Result, error) {
	if cfg.Rounds == 0 {
		cfg.Rounds = full
	}
	if cfg.Sessions == 0 {
		cfg.Sessions = 6
	}
	sockets, err := os.MkdirTemp("", "hft")
	if err != nil {
		return Result{}, err
	}
	defer os.RemoveAll(sockets)
	h := &harness{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), changed: make(chan struct{}),
		result: Result{Points: map[string]int{}},
	}
	socket := filepath.Join(sockets, "p")
	if h.points, err = listenPoints(socket); err != nil {
		return Result{}, err
	}
	defer h.points.close()
	h.args = []string{
		"--data", cfg.Dir, "--listen", "127.0.0.1:0", "--kill-points", socket,
		"--set", "limits.mode=best-effort", "--set", "drain_timeout=20s",
	}
	began := time.Now()
	err = h.run(ctx)
	h.result.DurationS = time.Since(began).Seconds()
	if cfg.Rounds >= full {
		h.result.Shortfalls = h.result.shortfalls()
	}
	return h.result, err
}

func (h *harness) run(ctx context.Context) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	defer func() { h.server().Kill() }()
	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var load sync.WaitGroup
	for i := range h.cfg.Sessions {
		w, err := h.newWorker(ctx, i)
		if err != nil {
			return err
		}
		h.workers = append(h.workers, w)
	}
	for _, w := range h.workers {
		load.Go(func() { w.work(loadCtx) })
	}
	for round := range h.cfg.Rounds {
		if err := h.round(ctx, round); err != nil {
			stopLoad()
			load.Wait()
			return err
		}
	}
	for _, w := range h.workers {
		w.stop.Store(true)
	}
	done := make(chan struct{})
	go func() { load.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		stopLoad()
		<-done
		h.result.Violations = append(h.result.Violations, "the load did not end within 2 minutes: a turn never got its terminal event")
	}
	return h.judge(ctx)
}

func (h *harness) server() *child.Server {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.srv
}

// start starts the server and gives the workers its address.
func (h *harness) start(ctx context.Context) error {
	srv, err := child.Start(ctx, child.Config{Binary: h.cfg.Binary, Args: h.args, Env: h.cfg.Env, Log: filepath.Join(h.cfg.Dir, "server.log")})
	if err != nil {
		return err
	}
	c, err := srv.Client(h.cfg.Dir)
	if err != nil {
		srv.Kill()
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.srv, h.api = srv, &api{c}
	close(h.changed)
	h.changed = make(chan struct{})
	return nil
}

// current returns the API of the running server, and a channel that is closed when another server
// replaces it.
func (h *harness) current() (*api, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.api, h.changed
}

// round makes one kill: every third one of boxd, every second one at a named point.
func (h *harness) round(ctx context.Context, n int) error {
	box := n%3 == 2
	point := ""
	if n%2 == 0 {
		point = Points[(n/2)%len(Points)]
	}
	var at hit
	if point != "" {
		ch := h.points.arm(point)
		select {
		case at = <-ch:
		case <-time.After(5 * time.Second):
			h.points.disarm()
			point = ""
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if point == "" {
		select {
		case <-time.After(time.Duration(h.rng.IntN(120)) * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	inTurn := h.running()
	killed := time.Now()
	var err error
	if box {
		inTurn, err = h.killSomeBox(ctx, at)
	} else {
		err = h.killServer(ctx)
	}
	if at.conn != nil {
		at.pass()
		h.result.Points[point]++
	}
	if inTurn > 0 {
		h.result.InTurn++
	}
	target := "server"
	if box {
		target = "boxd"
	}
	fmt.Fprintf(h.cfg.Out, "%s  kill %3d  %-6s  at %-20s  turns running: %d\n", killed.Format("15:04:05.000"), n+1, target, orRandom(point), inTurn)
	return err
}

func orRandom(point string) string {
	if point == "" {
		return "a random moment"
	}
	return point
}

// running returns the number of sessions whose acknowledged turn has not ended.
func (h *harness) running() int {
	n := 0
	for _, w := range h.workers {
		if w.inTurn.Load() {
			n++
		}
	}
	return n
}

func (h *harness) killServer(ctx context.Context) error {
	h.server().Kill()
	h.result.ServerKills++
	return h.start(ctx)
}

// killSomeBox calls killBox until a box was killed or some time has passed: right after a kill of
// the server there may be no box for a moment.
func (h *harness) killSomeBox(ctx context.Context, at hit) (inTurn int, err error) {
	before := h.result.BoxKills
	for range 20 {
		if inTurn, err = h.killBox(ctx, at); err != nil || h.result.BoxKills > before {
			break
		}
		if err := clock.Pause(ctx, 20*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return inTurn, err
}

// killBox kills the boxd of the session that waits at a point, or of any session. It returns 1 if
// that session's turn was running, else 0.
func (h *harness) killBox(ctx context.Context, at hit) (int, error) {
	a, _ := h.current()
	list, err := a.containers(ctx)
	if err != nil {
		return 0, err
	}
	perm := h.rng.Perm(len(list))
	for _, i := range perm {
		c := list[i]
		w := h.worker(c.Session)
		if c.PID <= 0 || w == nil || at.conn != nil && c.Session != at.session {
			continue
		}
		from := time.Now()
		running := 0
		if w.inTurn.Load() {
			running = 1
		}
		err := syscall.Kill(c.PID, syscall.SIGKILL)
		w.killed(kill{from: from, to: time.Now(), boot: c.Boot})
		if err == nil {
			h.result.BoxKills++
		}
		return running, nil
	}
	return 0, nil
}

func (h *harness) worker(id holdfast.SessionID) *worker {
	for _, w := range h.workers {
		if w.id == id {
			return w
		}
	}
	return nil
}

// judge reads everything back through the API, shuts the server down and looks for what it left.
func (h *harness) judge(ctx context.Context) error {
	a, _ := h.current()
	for _, w := range h.workers {
		ev, err := w.evidence(ctx, a)
		if err != nil {
			return err
		}
		h.result.Violations = append(h.result.Violations, check(ev)...)
		h.result.Turns += len(ev.acked)
		h.result.Lines += len(ev.lines)
		for _, c := range foldCalls(ev.events) {
			if c.unknown {
				h.result.Unknown++
			}
		}
	}
	if !h.server().Terminate(time.Minute) {
		h.result.Violations = append(h.result.Violations, "the server did not end within a minute of SIGTERM")
	}
	var boxes []string
	for _, w := range h.workers {
		boxes = append(boxes, string(holdfast.SessionBox(w.id)), string(w.id))
	}
	h.result.Leftovers = Leftovers(h.cfg.Dir, boxes)
	return nil
}

// Print writes the result as text for people.
func (r Result) Print(w io.Writer) error {
	kills := r.ServerKills + r.BoxKills
	var b strings.Builder
	fmt.Fprintf(&b, "\n%d kills in %.1f s: %d of the server, %d of boxd; %d (%d %%) while a turn ran\n",
		kills, r.DurationS, r.ServerKills, r.BoxKills, r.InTurn, 100*r.InTurn/max(kills, 1))
	for _, p := range Points {
		fmt.Fprintf(&b, "  at %-22s %d\n", p, r.Points[p])
	}
	fmt.Fprintf(&b, "%d turns acknowledged, %d lines written, %d outcomes unknown\n", r.Turns, r.Lines, r.Unknown)
	for _, v := range slices.Concat(r.Violations, r.Leftovers, r.Shortfalls) {
		fmt.Fprintf(&b, "WRONG  %s\n", v)
	}
	if r.OK() {
		b.WriteString("nothing lost, nothing twice, nothing left behind\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
