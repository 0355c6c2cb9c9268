package faultloop

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
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

// share is the number of faults of each kind in a run of 300.
var share = map[Kind]int{KillServer: 115, StopServer: 30, StopBox: 35, KillBox: 20, CutPower: 60, FillDisk: 40}

// Full is the number of faults that a complete run needs.
const Full = 300

// Config configures one run. Zero counts mean the defaults.
type Config struct {
	// Binary is the holdfast program.
	Binary string
	// Dir is an empty directory for the disk image; the users of boxes must be able to
	// pass through its parents.
	Dir string
	// Faults is their total number (default 300), Sessions how many sessions work at once
	// (default 6).
	Faults, Sessions int
	Seed             uint64
	// Env is the environment of the server.
	Env []string
	// Out gets a line for each fault.
	Out io.Writer
}

// patience limits each wait for the server to work again, restPatience the wait for the end of
// the load.
const (
	patience     = time.Minute
	restPatience = 3 * time.Minute
)

// loop is a run in progress.
type loop struct {
	cfg    Config
	rng    *rand.Rand
	disk   *disk
	result Result

	mu  sync.Mutex
	srv *child.Server
	api *client.Client
	// changed is closed and replaced whenever api changes.
	changed chan struct{}
	workers []*worker
}

// Run does one run. An error means that the run could not be carried out; the Result
// lists the problems it found.
func Run(ctx context.Context, cfg Config) (res Result, err error) {
	if cfg.Faults == 0 {
		cfg.Faults = Full
	}
	if cfg.Sessions == 0 {
		cfg.Sessions = 6
	}
	l := &loop{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 7)), changed: make(chan struct{})}
	l.result = Result{Seed: cfg.Seed, Faults: map[Kind]int{}, Violations: []string{}, Leftovers: []string{}}
	if l.disk, err = newDisk(cfg.Dir); err != nil {
		return l.result, err
	}
	defer func() {
		if s := l.server(); s != nil {
			s.Kill()
		}
		if cerr := l.disk.close(); err == nil {
			err = cerr
		}
	}()
	began := time.Now()
	err = l.run(ctx)
	l.result.DurationS = time.Since(began).Seconds()
	return l.result, err
}

// plan returns the faults of a run in random order: each kind in proportion to its share, but at
// least once.
func plan(n int, rng *rand.Rand) []Kind {
	var out []Kind
	for _, k := range Kinds {
		for range max(share[k]*n/Full, 1) {
			out = append(out, k)
		}
	}
	for len(out) < n {
		out = append(out, KillServer)
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func (l *loop) run(ctx context.Context) error {
	if err := l.start(ctx); err != nil {
		return err
	}
	loadCtx, stopLoad := context.WithCancel(ctx)
	defer stopLoad()
	var load sync.WaitGroup
	for i := range l.cfg.Sessions {
		w, err := l.newWorker(ctx, i)
		if err != nil {
			return err
		}
		l.workers = append(l.workers, w)
	}
	for _, w := range l.workers {
		load.Go(func() { w.work(loadCtx) })
	}
	err := l.faults(ctx)
	for _, w := range l.workers {
		w.stop.Store(true)
	}
	done := make(chan struct{})
	go func() { load.Wait(); close(done) }()
	limit := time.NewTimer(restPatience)
	defer limit.Stop()
	if err == nil {
		select {
		case <-done:
		case <-limit.C:
			l.bad("the load did not end within %s: a turn did not end, or a message was not accepted", restPatience)
		}
	}
	stopLoad()
	<-done
	if err != nil {
		return err
	}
	return l.judge(ctx)
}

func (l *loop) faults(ctx context.Context) error {
	for i, kind := range plan(l.cfg.Faults, l.rng) {
		if clock.Pause(ctx, l.between()) != nil {
			return context.Cause(ctx)
		}
		began := time.Now()
		if err := l.fault(ctx, kind); err != nil {
			return fmt.Errorf("fault %d (%s): %w", i+1, kind, err)
		}
		ready, err := l.ready(ctx, kind)
		if err != nil {
			return err
		}
		l.result.Faults[kind]++
		fmt.Fprintf(l.cfg.Out, "%s  fault %3d  %-14s  serves again after %.2f s\n", began.Format("15:04:05.000"), i+1, kind, ready.Sub(began).Seconds())
	}
	return nil
}

// between returns a random time of load before the next fault.
func (l *loop) between() time.Duration { return time.Duration(50+l.rng.IntN(700)) * time.Millisecond }

// ready waits until the server accepts work again. If it does not do so by itself,
// ready starts it again and counts a manual repair.
func (l *loop) ready(ctx context.Context, kind Kind) (time.Time, error) {
	for end := time.Now().Add(patience); time.Now().Before(end); {
		srv, api := l.current()
		select {
		case <-srv.Gone():
			// A supervisor would start the server again.
			l.result.Ended++
			if err := l.start(ctx); err != nil {
				return time.Time{}, err
			}
			continue
		default:
		}
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		h, err := api.Ready(call)
		cancel()
		if err == nil && h.ReadOnly == "" {
			return time.Now(), nil
		}
		if clock.Pause(ctx, 20*time.Millisecond) != nil {
			return time.Time{}, context.Cause(ctx)
		}
	}
	l.result.Repairs++
	l.bad("after %s the server accepted no work for %s and had to be started again by hand", kind, patience)
	l.server().Kill()
	return time.Now(), l.start(ctx)
}

func (l *loop) bad(format string, args ...any) {
	l.result.Violations = append(l.result.Violations, fmt.Sprintf(format, args...))
}

func (l *loop) server() *child.Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.srv
}

// current returns the running server and its API.
func (l *loop) current() (*child.Server, *client.Client) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.srv, l.api
}

// reach returns the API of the running server, and a channel that is closed when
// another server replaces it.
func (l *loop) reach() (*client.Client, <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.api, l.changed
}

// start starts the server and gives the workers its address.
func (l *loop) start(ctx context.Context) error {
	srv, err := child.Start(ctx, child.Config{
		Binary: l.disk.program(l.cfg.Binary), Env: l.cfg.Env, Log: filepath.Join(l.cfg.Dir, "server.log"),
		Args: []string{"--data", l.disk.data(), "--listen", "127.0.0.1:0", "--set", "limits.mode=best-effort", "--set", "drain_timeout=20s"},
	})
	if err != nil {
		return err
	}
	api, err := srv.Client(l.disk.data())
	if err != nil {
		srv.Kill()
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.srv, l.api = srv, api
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

// fault causes one fault of the server, its boxes or its disk.
func (l *loop) fault(ctx context.Context, kind Kind) error {
	switch kind {
	case KillServer:
		l.server().Kill()
		return l.start(ctx)
	case StopServer:
		return l.stopFor(ctx, l.server().PID)
	case StopBox:
		pid, err := l.someBox(ctx)
		if err != nil || pid == 0 {
			return err
		}
		return l.stopFor(ctx, pid)
	case KillBox:
		pid, err := l.someBox(ctx)
		if err != nil || pid == 0 {
			return err
		}
		return signal(pid, killSignal)
	case CutPower:
		return l.cut(ctx)
	default:
		return l.fill(ctx)
	}
}

// stopFor stops a process with a signal for up to two seconds.
func (l *loop) stopFor(ctx context.Context, pid int) error {
	if err := signal(pid, stopSignal); err != nil {
		return err
	}
	_ = clock.Pause(ctx, time.Duration(100+l.rng.IntN(1900))*time.Millisecond)
	return signal(pid, contSignal)
}

// someBox returns the pid of a running box; 0 if none runs for a while.
func (l *loop) someBox(ctx context.Context) (int, error) {
	for range 100 {
		_, api := l.current()
		call, cancel := context.WithTimeout(ctx, 5*time.Second)
		list, err := api.Containers(call)
		cancel()
		if err == nil {
			for _, i := range l.rng.Perm(len(list)) {
				if list[i].PID > 0 {
					return list[i].PID, nil
				}
			}
		}
		if clock.Pause(ctx, 50*time.Millisecond) != nil {
			return 0, context.Cause(ctx)
		}
	}
	l.bad("no box was running for 5 s, although the server was under load")
	return 0, nil
}

// cut cuts the power: everything that uses the disk ends at once, and the disk has only the data
// that was written to the device.
func (l *loop) cut(ctx context.Context) error {
	if err := l.disk.cut(l.server().PID); err != nil {
		return err
	}
	<-l.server().Gone()
	if err := l.disk.boot(l.names()); err != nil {
		return err
	}
	return l.start(ctx)
}

// fill keeps the disk full for up to two seconds.
func (l *loop) fill(ctx context.Context) error {
	if err := l.disk.fill(); err != nil {
		return err
	}
	_ = clock.Pause(ctx, time.Duration(200+l.rng.IntN(1800))*time.Millisecond)
	return os.Remove(l.disk.ballast())
}

// names returns the names that processes, cgroups and mounts of the boxes contain.
func (l *loop) names() []string {
	var out []string
	for _, w := range l.workers {
		out = append(out, string(holdfast.SessionBox(w.id)), string(w.id))
	}
	return out
}
