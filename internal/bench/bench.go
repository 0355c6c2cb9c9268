package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// Config configures a benchmark. Binary, Dir, Progress and Clock must be set.
type Config struct {
	// Binary is the holdfast program; Env the environment of its servers.
	Binary string
	Env    []string
	// Dir is an empty directory on the disk to be measured, passable for the
	// users of boxes.
	Dir string
	// Only names the parts to measure, as Parts returns them; empty means all. The store is measured
	// with any of them, because limits are relative to its commit.
	Only []string
	// Claude is the command of the Claude Code CLI in Runtimes, a directory of installed agent CLIs
	// on the disk of Dir. If set, only sessions of the CLI and the store are measured; if empty, no
	// sessions of the CLI are.
	Claude   []string
	Runtimes string
	// Soak, if set, is how long a server works under a steady load; then only its growth is
	// measured. The first sixth is warm-up.
	Soak time.Duration
	// Beside is the path of another build of the program. If set, the two are compared, and nothing else is measured.
	Beside string
	// Runs is the number of consecutive runs (default 3).
	Runs    int
	Version string
	// Progress receives lines about the progress, among them one for each figure as it is measured.
	Progress io.Writer
	Clock    func() time.Time
}

// pass is the state of one run of the benchmark.
type pass struct {
	cfg    Config
	dir    string
	commit float64
	// where is a text that is added to the name of each figure.
	where string
	out   []Figure
}

// Measure makes all runs. It returns an error if it could not go on.
func Measure(ctx context.Context, cfg Config) (Report, error) {
	if cfg.Runs == 0 {
		cfg.Runs = 3
	}
	host, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	rep := Report{
		Version: cfg.Version, Date: cfg.Clock().UTC().Format("2006-01-02"),
		Machine: fmt.Sprintf("%d cores, linux %s", runtime.NumCPU(), strings.TrimSpace(string(host))),
	}
	for n := range cfg.Runs {
		fmt.Fprintf(cfg.Progress, "run %d of %d\n", n+1, cfg.Runs)
		p := &pass{cfg: cfg, dir: filepath.Join(cfg.Dir, fmt.Sprintf("run%d", n+1))}
		run := Run{Load: loadAverage()}
		if err := p.all(ctx); err != nil {
			return rep, err
		}
		run.Figures = p.out
		rep.Runs = append(rep.Runs, run)
	}
	return rep, nil
}

// Parts returns the names that Config.Only may contain, in the order in which they are measured.
func Parts() []string {
	out := make([]string, len(parts))
	for i, part := range parts {
		out[i] = part.name
	}
	return out
}

var parts = []struct {
	name    string
	measure func(*pass, context.Context) error
}{
	{"store", (*pass).store},
	{"boxes", (*pass).driver},
	{"create", (*pass).serverAlone},
	{"turns", (*pass).conversations},
	{"workspaces", workspaces},
	{"resume", (*pass).resumes},
	{"copy", (*pass).copies},
	{"trees", (*pass).trees},
	{"snapshots", (*pass).snapshots},
	{"readers", (*pass).readers},
	{"many", (*pass).many},
}

// all measures every requested figure, the commit first.
func (p *pass) all(ctx context.Context) error {
	switch {
	case len(p.cfg.Claude) > 0:
		return errors.Join(p.store(ctx), p.claude(ctx))
	case p.cfg.Soak > 0:
		return p.soak(ctx)
	case p.cfg.Beside != "":
		return beside(p, ctx)
	}
	for i, part := range parts {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i > 0 && len(p.cfg.Only) > 0 && !slices.Contains(p.cfg.Only, part.name) {
			continue
		}
		if err := part.measure(p, ctx); err != nil {
			return err
		}
	}
	return nil
}

// add records a figure and prints it.
func (p *pass) add(f Figure) {
	f.Name += p.where
	p.out = append(p.out, f)
	fmt.Fprintf(p.cfg.Progress, "  %-58s %10s %s\n", f.Name, number(f.Value()), f.Unit)
}

// missing records a figure that could not be measured.
func (p *pass) missing(f Figure, err error) {
	f.Missing = err.Error()
	p.add(f)
}

// subject is a server under measurement.
type subject struct {
	*child.Server
	data string
}

// serve starts a server on a data directory, with more arguments of `serve`.
func (p *pass) serve(ctx context.Context, name string, args ...string) (*subject, error) {
	s := &subject{data: filepath.Join(p.dir, name)}
	var err error
	s.Server, err = child.Start(ctx, child.Config{Binary: p.cfg.Binary, Env: p.cfg.Env, Data: s.data, Args: args})
	return s, err
}

func (s *subject) stop() { s.Terminate(time.Minute) }

// times runs f n times and returns the milliseconds of each.
func times(n int, f func(i int) error) ([]float64, error) {
	out := make([]float64, 0, n)
	for i := range n {
		took, err := once(func() error { return f(i) })
		if err != nil {
			return out, err
		}
		out = append(out, took)
	}
	return out, nil
}

// once returns how many milliseconds one call of f takes.
func once(f func() error) (float64, error) {
	began := time.Now()
	err := f()
	return clock.Milliseconds(time.Since(began)), err
}

// rate runs f on several goroutines for a while and returns the calls per second.
func rate(workers int, span time.Duration, f func(worker, i int) error) (float64, error) {
	var all errgroup.Group
	var total atomic.Int64
	began := time.Now()
	for w := range workers {
		all.Go(func() error {
			for n := 0; time.Since(began) < span; n++ {
				if err := f(w, n); err != nil {
					return err
				}
				total.Add(1)
			}
			return nil
		})
	}
	err := all.Wait()
	return float64(total.Load()) / time.Since(began).Seconds(), err
}

// memoryOf returns a value of a process's memory in MB: a field of its status, or its proportional
// set size, Pss. It returns -1 if that is unknown.
func memoryOf(pid int, field string) float64 {
	name := "status"
	if field == "Pss:" {
		name = "smaps_rollup"
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, name))
	if err != nil {
		return -1
	}
	_, text, _ := strings.Cut(string(b), "\n"+field)
	var kb float64
	if _, err := fmt.Sscan(text, &kb); err != nil {
		return -1
	}
	return kb / 1024
}

// bashTrue is the script of a turn that runs the command `true` once.
const bashTrue = `<script>[{"tool":"Bash","input":{"command":"true"}},{"say":"ok"}]</script>`

func (s *subject) create(ctx context.Context) (holdfast.SessionID, error) {
	ses, err := s.CreateSession(ctx, holdfast.CreateSession{}, "")
	return ses.ID, err
}
