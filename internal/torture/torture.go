package torture

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/internal/image"
)

// Kind is a kind of fault.
type Kind string

// The kinds of faults.
const (
	KillServer Kind = "server killed"
	StopServer Kind = "server stopped"
	StopBox    Kind = "box stopped"
	KillBox    Kind = "box killed"
	CutPower   Kind = "power cut"
	FillDisk   Kind = "disk full"
)

// Kinds lists every kind in the order of the report.
var Kinds = []Kind{KillServer, StopServer, StopBox, KillBox, CutPower, FillDisk}

// share is the number of faults of each kind in a run of 300 on a disk image.
var share = map[Kind]int{KillServer: 115, StopServer: 30, StopBox: 35, KillBox: 20, CutPower: 60, FillDisk: 40}

// full is the number of faults from which a run without a disk has to reach its minimums. fullDisk is the sum of the
// numbers in share.
const (
	full     = 160
	fullDisk = 300
)

// Config configures one run.
type Config struct {
	// Binary is the holdfast program, Env the environment of its servers.
	Binary string
	Env    []string
	// Dir is an empty directory for the server's data. The users of boxes must be able to pass
	// through its parents.
	Dir string
	// Disk puts the data on a disk image, which only root can do, and adds the faults of a disk to the
	// kills: then the faults are of every kind.
	Disk bool
	// Faults is the total number of faults. Without Disk, Snapshots and Workspace, a third of them are kills of boxd.
	// Sessions is how many sessions work at the same time.
	Faults, Sessions int
	// Snapshots makes the sessions change, rewind, restore and fork their files, and kills the server at
	// SnapshotPoints. Strays returns what is wrong with the snapshot store of a data directory that no
	// server uses; Snapshots needs it.
	Snapshots bool
	Strays    func(ctx context.Context, data string) ([]string, error)
	// Workspace makes the sessions share one workspace and its box, and kills the server and boxd alternately.
	Workspace bool
	Seed      uint64
	// Out receives one line for each fault.
	Out io.Writer
}

// patience limits each wait for the server to work again, restPatience the wait for the end of
// the load.
const (
	patience     = time.Minute
	restPatience = 3 * time.Minute
	// pointPatience limits the wait for a session to reach a point.
	pointPatience = 5 * time.Second
)

// harness is the state of one run.
type harness struct {
	cfg    Config
	rng    *rand.Rand
	server child.Config
	disk   *disk // nil without Config.Disk
	points *points
	result Result

	mu  sync.Mutex
	srv *child.Server
	// changed is closed, and replaced by a new channel, whenever srv changes.
	changed chan struct{}

	workers []*worker
	// workspace is the slug of the workspace that the sessions share if Config.Workspace is set. restarts are the times at
	// which a fault killed the server process.
	workspace holdfast.Slug
	restarts  []time.Time
}

// fault is a fault to make: at a named point of a turn, or at a random moment.
type fault struct {
	kind  Kind
	point string
}

// plan returns the faults of a run. Without a disk every third one is a kill of boxd, and every
// second one is at a named point. With a disk their order is random: each kind in proportion to
// its share, but at least once.
func plan(n int, disk bool, rng *rand.Rand) []fault {
	var out []fault
	for i := range n {
		f := fault{kind: KillServer}
		if !disk && i%3 == 2 {
			f.kind = KillBox
		}
		if !disk && i%2 == 0 {
			f.point = Points[(i/2)%len(Points)]
		}
		out = append(out, f)
	}
	if !disk {
		return out
	}
	at := 0
	for _, k := range Kinds[1:] {
		for range max(share[k]*n/fullDisk, 1) {
			if at < n {
				out[at].kind = k
			}
			at++
		}
	}
	rng.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// plan returns the faults of this run.
func (h *harness) plan() []fault {
	switch {
	case h.cfg.Snapshots:
		return planSnapshots(h.cfg.Faults)
	case h.cfg.Workspace:
		return planWorkspace(h.cfg.Faults)
	}
	return plan(h.cfg.Faults, h.cfg.Disk, h.rng)
}

// Run makes a server fail and returns the result. An error means that the run itself could not be
// carried out; violations that it found are in the Result.
func Run(ctx context.Context, cfg Config) (res Result, err error) {
	h := &harness{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 1)), changed: make(chan struct{})}
	h.result = Result{Seed: cfg.Seed, Faults: map[Kind]int{}, Points: map[string]int{}, Violations: []string{}, Leftovers: []string{}}
	sockets, err := os.MkdirTemp("", "hft")
	if err != nil {
		return h.result, err
	}
	defer os.RemoveAll(sockets)
	socket := filepath.Join(sockets, "p")
	if h.points, err = listenPoints(socket); err != nil {
		return h.result, err
	}
	defer h.points.close()
	h.server = child.Config{
		Binary: cfg.Binary, Env: cfg.Env, Data: cfg.Dir, Log: filepath.Join(cfg.Dir, "server.log"),
		Args: []string{"--kill-points", socket, "--set", "drain_timeout=20s"},
	}
	if cfg.Disk {
		if h.disk, err = newDisk(cfg.Dir); err != nil {
			return h.result, err
		}
		defer func() {
			if cerr := image.Unmount(h.disk.mount()); err == nil {
				err = cerr
			}
		}()
		h.server.Data = h.disk.data()
		if h.server.Binary, err = h.disk.program(cfg.Binary); err != nil {
			return h.result, err
		}
	}
	began := time.Now()
	err = h.run(ctx)
	h.result.DurationS = time.Since(began).Seconds()
	switch {
	case cfg.Snapshots:
		h.result.Shortfalls = h.result.snapshotShortfalls(cfg.Faults)
	case cfg.Workspace:
		h.result.Shortfalls = h.result.workspaceShortfalls(cfg.Faults)
	case cfg.Faults >= full && !cfg.Disk:
		h.result.Shortfalls = h.result.shortfalls()
	}
	return h.result, err
}

func (h *harness) run(ctx context.Context) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	defer func() {
		srv, _ := h.current()
		srv.Kill()
	}()
	loadCtx, stopLoad := context.WithCancel(ctx)
	var load sync.WaitGroup
	defer load.Wait()
	defer stopLoad()
	if err := h.newWorkers(ctx); err != nil {
		return err
	}
	for _, w := range h.workers {
		load.Go(func() { w.work(loadCtx) })
	}
	for i, f := range h.plan() {
		if err := h.fault(ctx, i+1, f); err != nil {
			return fmt.Errorf("fault %d (%s) could not be carried out: %w", i+1, f.kind, err)
		}
	}
	for _, w := range h.workers {
		w.stop.Store(true)
	}
	late := time.AfterFunc(restPatience, stopLoad)
	load.Wait()
	if !late.Stop() {
		h.result.bad("the load did not end within %s: a turn did not end, or a message was not accepted", restPatience)
	}
	return h.judge(ctx)
}

// fault makes one fault and waits until the server works again.
func (h *harness) fault(ctx context.Context, n int, f fault) error {
	var at hit
	if h.cfg.Snapshots || h.cfg.Workspace {
		// Leave the server some time before the fault. Otherwise most snapshots would be taken by the
		// next start, and most turns of other sessions in the workspace would not have continued.
		if err := clock.Pause(ctx, time.Duration(h.rng.IntN(400))*time.Millisecond); err != nil {
			return err
		}
	}
	if f.point != "" {
		ch := h.points.arm(f.point)
		limit := time.NewTimer(pointPatience)
		defer limit.Stop()
		select {
		case at = <-ch:
			defer at.pass()
		case <-limit.C:
			h.points.disarm()
			f.point = ""
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	} else if err := clock.Pause(ctx, time.Duration(h.rng.IntN(400))*time.Millisecond); err != nil {
		return err
	}
	began := time.Now()
	running, done, err := h.strike(ctx, f.kind, at.session)
	if err != nil {
		return err
	}
	if done {
		h.result.Faults[f.kind]++
		h.result.InTurn += min(running, 1)
		if w := h.result.Workspace; w != nil && running == len(h.workers) {
			w.Together++
		}
		if f.point != "" {
			h.result.Points[f.point]++
		}
	}
	ready, err := h.ready(ctx, f.kind)
	if err != nil {
		return err
	}
	if f.point == "" {
		f.point = "a random moment"
	}
	fmt.Fprintf(h.cfg.Out, "%s  fault %3d  %-14s  at %-20s  turns running: %d  serves again after %.2f s\n",
		began.Format("15:04:05.000"), n, f.kind, f.point, running, ready.Sub(began).Seconds())
	return nil
}

// strike makes a fault of the server, of its disk, or of a box: that of a session, or of any if
// session is empty. It returns the number of turns that ran in what it struck, and false if it found
// no box.
func (h *harness) strike(ctx context.Context, kind Kind, session holdfast.SessionID) (running int, done bool, err error) {
	running = inTurn(h.workers)
	srv, _ := h.current()
	switch kind {
	case KillServer:
		h.restarts = append(h.restarts, time.Now())
		srv.Kill()
		return running, true, h.start(ctx)
	case StopServer:
		return running, true, h.stopFor(ctx, srv.PID)
	case CutPower:
		return running, true, h.cut(ctx)
	case FillDisk:
		return running, true, h.fill(ctx)
	}
	struck, box, err := h.box(ctx, session)
	if err != nil || len(struck) == 0 {
		return 0, false, err
	}
	running = inTurn(struck)
	if kind == StopBox {
		return running, true, h.stopFor(ctx, box.PID)
	}
	from := time.Now()
	err = signal(box.PID, syscall.SIGKILL)
	for _, w := range struck {
		w.ev.kills = append(w.ev.kills, kill{from: from, to: time.Now(), boot: box.Boot})
	}
	return running, true, err
}

// inTurn returns how many of the workers have a turn.
func inTurn(workers []*worker) (n int) {
	for _, w := range workers {
		if w.inTurn.Load() {
			n++
		}
	}
	return n
}

// box returns a running box and the workers whose sessions use it: the box of the given session, or
// any box if session is empty. If no such box runs within 5 s, it returns no workers.
func (h *harness) box(ctx context.Context, session holdfast.SessionID) ([]*worker, holdfast.Container, error) {
	for range 100 {
		srv, _ := h.current()
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		list, err := srv.Containers(call)
		cancel()
		if err == nil {
			for _, i := range h.rng.Perm(len(list)) {
				c := list[i]
				users := slices.DeleteFunc(slices.Clone(h.workers), func(w *worker) bool { return w.box != c.ID })
				wanted := session == "" || slices.ContainsFunc(users, func(w *worker) bool { return w.id == session })
				if c.PID > 0 && len(users) > 0 && wanted {
					return users, c, nil
				}
			}
		}
		if err := clock.Pause(ctx, 50*time.Millisecond); err != nil {
			return nil, holdfast.Container{}, err
		}
	}
	if session == "" {
		h.result.bad("no box was running for 5 s, although the server was under load")
	}
	return nil, holdfast.Container{}, nil
}

// stopFor stops a process with a signal for up to two seconds.
func (h *harness) stopFor(ctx context.Context, pid int) error {
	if err := signal(pid, syscall.SIGSTOP); err != nil {
		return err
	}
	_ = clock.Pause(ctx, time.Duration(100+h.rng.IntN(1900))*time.Millisecond)
	return signal(pid, syscall.SIGCONT)
}

// cut cuts the power: everything that uses the disk ends at once, and the disk has only the data
// that was written to the device.
func (h *harness) cut(ctx context.Context) error {
	from := time.Now()
	srv, _ := h.current()
	if err := h.disk.cut(srv.PID); err != nil {
		return err
	}
	<-srv.Gone()
	h.struck(from)
	if err := h.disk.boot(h.names()); err != nil {
		return err
	}
	return h.start(ctx)
}

// struck records a fault that lasted from the time from until now, and may have ended calls in every box.
func (h *harness) struck(from time.Time) {
	for _, w := range h.workers {
		w.ev.kills = append(w.ev.kills, kill{from: from, to: time.Now()})
	}
}

// fill keeps the disk full for up to two seconds.
func (h *harness) fill(ctx context.Context) error {
	from := time.Now()
	if err := h.disk.fill(); err != nil {
		return err
	}
	_ = clock.Pause(ctx, time.Duration(200+h.rng.IntN(1800))*time.Millisecond)
	h.struck(from)
	return os.Remove(h.disk.ballast())
}

// ready waits until the server accepts work again. If it does not do so by itself,
// ready starts it again and counts a manual repair.
func (h *harness) ready(ctx context.Context, kind Kind) (time.Time, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		srv, _ := h.current()
		select {
		case <-srv.Gone():
			// A supervisor would start the server again.
			h.result.Ended++
			if err := h.start(ctx); err != nil {
				return time.Time{}, err
			}
			continue
		default:
		}
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		health, err := srv.Ready(call)
		cancel()
		if err == nil && health.ReadOnly == "" {
			return time.Now(), nil
		}
		if err := clock.Pause(ctx, 20*time.Millisecond); err != nil {
			return time.Time{}, err
		}
	}
	h.result.Repairs++
	h.result.bad("after %s the server accepted no work for %s and had to be started again by hand", kind, patience)
	srv, _ := h.current()
	srv.Kill()
	return time.Now(), h.start(ctx)
}

// start starts the server and gives it to the workers.
func (h *harness) start(ctx context.Context) error {
	srv, err := child.Start(ctx, h.server)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.srv = srv
	close(h.changed)
	h.changed = make(chan struct{})
	return nil
}

// current returns the server that was started last, and a channel that is closed when another one replaces it.
func (h *harness) current() (*child.Server, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.srv, h.changed
}

// judge reads everything back through the API, shuts the server down and looks for what it left.
func (h *harness) judge(ctx context.Context) error {
	if _, err := h.ready(ctx, "the load"); err != nil {
		return err
	}
	srv, _ := h.current()
	for _, w := range h.workers {
		ev, err := w.evidence(ctx, srv)
		if err != nil {
			return fmt.Errorf("the events of session %s cannot be read back: %w", w.id, err)
		}
		h.result.check(ev)
	}
	if h.cfg.Snapshots {
		if err := h.judgeSnapshots(ctx, srv); err != nil {
			return err
		}
	}
	h.terminate(srv)
	if h.cfg.Snapshots {
		if err := h.strays(ctx); err != nil {
			return err
		}
	}
	h.result.Leftovers = append(h.result.Leftovers, leftovers(h.server.Data, h.names())...)
	return nil
}

func (h *harness) terminate(srv *child.Server) {
	if !srv.Terminate(time.Minute) {
		h.result.bad("the server did not end within a minute of SIGTERM")
	}
}

// names returns parts of the names of processes, cgroups and mounts by which those of the boxes can be recognised.
func (h *harness) names() []string {
	var out []string
	for _, w := range h.workers {
		out = append(out, string(w.box), string(w.id))
	}
	return out
}
