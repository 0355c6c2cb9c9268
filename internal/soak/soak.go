package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// Config configures one run. Zero values mean the defaults.
type Config struct {
	// Binary is the holdfast program, Env the environment of its server.
	Binary string
	Env    []string
	// Dir is an empty directory for the server's data. The users of boxes must be able to pass
	// through its parents.
	Dir string
	// Sessions is how many sessions work at the same time (default 50). Each rests for about Rest
	// (default 500 ms) after each step.
	Sessions int
	Rest     time.Duration
	// For is the duration of the load (default 30 min), Every the time between two samples
	// (default 20 s). The first sixth of For is warm-up.
	For, Every time.Duration
	// Progress receives one line for each sample.
	Progress io.Writer
}

func (c Config) withDefaults() Config {
	if c.Sessions == 0 {
		c.Sessions = 50
	}
	if c.Rest == 0 {
		c.Rest = 500 * time.Millisecond
	}
	if c.For == 0 {
		c.For = 30 * time.Minute
	}
	if c.Every == 0 {
		c.Every = 20 * time.Second
	}
	return c
}

// Run puts one server under load and returns a report. An error means that the run itself could
// not be carried out; violations that it found are in the Report.
func Run(ctx context.Context, cfg Config) (Report, error) {
	cfg = cfg.withDefaults()
	rep := Report{Sessions: cfg.Sessions, WarmUpS: (cfg.For / 6).Seconds()}
	sockets, err := os.MkdirTemp("", "hfs")
	if err != nil {
		return rep, err
	}
	defer os.RemoveAll(sockets)
	socket := filepath.Join(sockets, "p")
	srv, err := child.Start(ctx, child.Config{
		Binary: cfg.Binary, Env: cfg.Env, Log: filepath.Join(cfg.Dir, "server.log"),
		Args: []string{
			"--data", cfg.Dir, "--listen", "127.0.0.1:0", "--soak-probe", socket,
			"--set", "limits.mode=best-effort", "--set", fmt.Sprintf("max_boxes=%d", cfg.Sessions+8),
		},
	})
	if err != nil {
		return rep, err
	}
	defer srv.Terminate(time.Minute)
	c, err := srv.Client(cfg.Dir)
	if err != nil {
		return rep, err
	}
	defer c.Close()
	l := &load{cfg: cfg, client: c, gate: newGate(cfg.Sessions)}
	began := time.Now()
	loadCtx, stop := context.WithTimeout(ctx, cfg.For)
	defer stop()
	all, loadCtx := errgroup.WithContext(loadCtx)
	for n := range cfg.Sessions {
		all.Go(func() error { return over(loadCtx, l.work(loadCtx, n)) })
	}
	all.Go(func() error {
		return over(loadCtx, l.sample(loadCtx, srv.PID, socket, began, &rep))
	})
	err = all.Wait()
	rep.DurationS = time.Since(began).Seconds()
	rep.Turns, rep.Lives = l.turns.Load(), l.lives.Load()
	if err == nil {
		err = context.Cause(ctx)
	}
	rep.judge()
	return rep, err
}

// over returns nil for an error that is only caused by the end of the load, else the error.
func over(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// sample takes samples until the load ends.
func (l *load) sample(ctx context.Context, pid int, socket string, began time.Time, rep *Report) error {
	tick := time.NewTicker(l.cfg.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := l.gate.hold(ctx); err != nil {
			return err
		}
		s, err := l.measure(ctx, pid, socket)
		l.gate.release()
		if err != nil {
			return err
		}
		s.AtS, s.Turns = time.Since(began).Seconds(), l.turns.Load()
		rep.Samples = append(rep.Samples, s)
		fmt.Fprintf(l.cfg.Progress, "%5.0f s  %7d turns  heap %6.2f MB  rss %6.1f MB  %4d descriptors  %4d goroutines\n",
			s.AtS, s.Turns, s.HeapMB, s.RSSMB, s.Descriptors, s.Goroutines)
	}
}

// measure takes one sample while the load rests. What a request leaves for a moment (its
// connection, a timer) must be gone first: measure waits, for at most ten seconds, until the
// counts are the same five times in a row.
func (l *load) measure(ctx context.Context, pid int, socket string) (Sample, error) {
	var s Sample
	for same, tries := 0, 0; same < 5 && tries < 50; tries++ {
		l.client.Close()
		in, err := ask(socket)
		if err != nil {
			return s, err
		}
		rss, err := resident(pid)
		if err != nil {
			return s, err
		}
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return s, err
		}
		if len(fds) == s.Descriptors && in.Goroutines == s.Goroutines {
			same++
		} else {
			same = 0
		}
		s.HeapMB, s.RSSMB, s.Descriptors, s.Goroutines = float64(in.Heap)/(1<<20), rss, len(fds), in.Goroutines
		if err := clock.Pause(ctx, 200*time.Millisecond); err != nil {
			return s, err
		}
	}
	return s, nil
}

// resident returns the process's resident set in MB.
func resident(pid int) (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(b))
	if len(f) < 2 {
		return 0, fmt.Errorf("statm of process %d holds %q", pid, b)
	}
	pages, err := strconv.ParseInt(f[1], 10, 64)
	return float64(pages) * float64(os.Getpagesize()) / (1 << 20), err
}
