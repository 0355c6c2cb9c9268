package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// Config configures a benchmark. Zero values mean the defaults.
type Config struct {
	// Binary is the holdfast program; Env the environment of its servers.
	Binary string
	Env    []string
	// Dir is an empty directory on the disk to be measured, passable for the
	// users of boxes.
	Dir string
	// Only names the parts to measure, as Parts returns them; empty means all. The store is always
	// measured, because limits are relative to its commit.
	Only []string
	// Claude is the command of the Claude Code CLI in Runtimes, a directory of installed agent CLIs
	// on the disk of Dir. If set, only its sessions and the store are measured; if empty, they are
	// left out.
	Claude   []string
	Runtimes string
	// Runs is the number of consecutive runs (default 3).
	Runs    int
	Version string
	// Progress receives one line for each figure as it is measured.
	Progress io.Writer
	Clock    func() time.Time
}

// pass is the state of one run.
type pass struct {
	cfg    Config
	dir    string
	commit float64
	out    []Figure
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
	{"resume", (*pass).resumes},
	{"copy", (*pass).copies},
	{"trees", (*pass).trees},
	{"readers", (*pass).readers},
	{"many", (*pass).many},
}

// all measures every requested figure, the commit first.
func (p *pass) all(ctx context.Context) error {
	if len(p.cfg.Claude) > 0 {
		return errors.Join(p.store(ctx), p.claude(ctx))
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
	*client.Client
	srv  *child.Server
	data string
}

// serve starts a server on a data directory.
func (p *pass) serve(ctx context.Context, name string, settings ...string) (*subject, error) {
	data := filepath.Join(p.dir, name)
	if err := os.MkdirAll(data, 0o700); err != nil {
		return nil, err
	}
	args := []string{"--data", data, "--listen", "127.0.0.1:0", "--set", "limits.mode=best-effort"}
	for _, s := range settings {
		args = append(args, "--set", s)
	}
	srv, err := child.Start(ctx, child.Config{Binary: p.cfg.Binary, Args: args, Env: p.cfg.Env, Log: filepath.Join(data, "server.log")})
	if err != nil {
		return nil, err
	}
	c, err := srv.Client(data)
	if err != nil {
		srv.Kill()
		return nil, err
	}
	return &subject{Client: c, srv: srv, data: data}, nil
}

func (s *subject) stop() {
	s.Close()
	s.srv.Terminate(time.Minute)
}

// times runs f n times and returns the milliseconds of each.
func times(n int, f func(i int) error) ([]float64, error) {
	out := make([]float64, 0, n)
	for i := range n {
		began := time.Now()
		if err := f(i); err != nil {
			return out, err
		}
		out = append(out, clock.Milliseconds(time.Since(began)))
	}
	return out, nil
}

// rate runs f on several goroutines for a while and returns the calls per second.
func rate(workers int, span time.Duration, f func(worker, i int) error) (float64, error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	var first error
	total := 0
	began := time.Now()
	for w := range workers {
		all.Go(func() {
			n := 0
			for ; time.Since(began) < span; n++ {
				if err := f(w, n); err != nil {
					mu.Lock()
					first = err
					mu.Unlock()
					break
				}
			}
			mu.Lock()
			total += n
			mu.Unlock()
		})
	}
	all.Wait()
	return float64(total) / time.Since(began).Seconds(), first
}

// processorTime returns the CPU time of a process, in user mode and in the kernel; 0 if it is
// unknown.
func processorTime(pid int) time.Duration {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may contain anything; utime and stime are the 12th and 13th fields
	// after it, in ticks of a hundredth of a second (proc_pid_stat(5)).
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	var ticks int64
	for _, f := range fields[min(11, len(fields)):min(13, len(fields))] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// rss returns a process's resident set in MB, pss its proportional set size.
func rss(pid int) float64 { return smaps(pid, "Rss:") }
func pss(pid int) float64 { return smaps(pid, "Pss:") }

func smaps(pid int, field string) float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return -1
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			var kb float64
			if _, err := fmt.Sscan(rest, &kb); err == nil {
				return kb / 1024
			}
		}
	}
	return -1
}

// bashTrue is a turn that runs `true` once.
const bashTrue = `<script>[{"tool":"Bash","input":{"command":"true"}},{"say":"ok"}]</script>`

// turn sends a message and waits for the turn's end.
func (s *subject) turn(ctx context.Context, id holdfast.SessionID, text string) error {
	return child.Turn(ctx, s.Client, id, text)
}

func (s *subject) create(ctx context.Context) (holdfast.SessionID, error) {
	ses, err := s.CreateSession(ctx, holdfast.CreateSession{}, "")
	return ses.ID, err
}
