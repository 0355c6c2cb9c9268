package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// soakers is how many sessions work at the same time; each lives for some steps, then it is purged
// and a new session replaces it. Each rests for about rest after each step.
const (
	soakers = 50
	steps   = 24
	rest    = 500 * time.Millisecond
)

// soak is a steady load of sessions that come, work and go.
type soak struct {
	*subject
	gate          *gate
	turns, lives  atomic.Int64
	heap, memory  Figure
	fds, routines Figure
}

// soak runs one server under a steady load and checks whether it grows. Samples are taken at equal
// load only, when every session is active, has a box, and runs nothing.
func (p *pass) soak(ctx context.Context) error {
	sockets, err := os.MkdirTemp("", "hfs")
	if err != nil {
		return err
	}
	defer os.RemoveAll(sockets)
	probe := filepath.Join(sockets, "p")
	srv, err := p.serve(ctx, "soak", "--soak-probe", probe, "--set", fmt.Sprintf("max_boxes=%d", soakers+8))
	if err != nil {
		return err
	}
	defer srv.stop()
	every := p.cfg.Soak / 90
	l := &soak{
		subject: srv, gate: newGate(soakers),
		heap:     Figure{Name: "live heap after a collection, growth per hour", Unit: "MB", Judge: "slope", Every: every.Seconds(), Gate: 2, Rule: "2 MB/h"},
		memory:   Figure{Name: "resident set, most over least", Unit: "MB", Judge: "spread", Gate: 10, Rule: "10 %"},
		fds:      Figure{Name: "descriptors at equal load, most over least", Judge: "spread", Rule: "0 %"},
		routines: Figure{Name: "goroutines at equal load, most over least", Judge: "spread", Rule: "0 %"},
	}
	began := time.Now()
	loadCtx, stop := context.WithTimeout(ctx, p.cfg.Soak)
	defer stop()
	all, loadCtx := errgroup.WithContext(loadCtx)
	for n := range soakers {
		all.Go(func() error { return over(loadCtx, l.work(loadCtx, n)) })
	}
	all.Go(func() error {
		return over(loadCtx, l.sample(loadCtx, p, probe, began, every))
	})
	if err := errors.Join(all.Wait(), context.Cause(ctx)); err != nil {
		return err
	}
	p.add(Figure{Name: "turns", Samples: []float64{float64(l.turns.Load())}, Judge: "size"})
	p.add(Figure{Name: "sessions ended", Samples: []float64{float64(l.lives.Load())}, Judge: "size"})
	for _, f := range []Figure{l.heap, l.memory, l.fds, l.routines} {
		if len(f.Samples) < 3 {
			p.missing(f, fmt.Errorf("%d samples after the warm-up are too few for a figure", len(f.Samples)))
			continue
		}
		p.add(f)
	}
	return nil
}

// over returns nil for an error that is only caused by the end of the load, else the error.
func over(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return nil
	}
	return err
}

// sample takes samples until the load ends; it drops those of the first sixth, the warm-up.
func (l *soak) sample(ctx context.Context, p *pass, probe string, began time.Time, every time.Duration) error {
	tick := time.NewTicker(every)
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
		in, fds, err := l.measure(ctx, probe)
		l.gate.release()
		if err != nil {
			return err
		}
		heap, memory := float64(in.Heap)/(1<<20), memoryOf(l.PID, "VmRSS:")
		fmt.Fprintf(p.cfg.Progress, "%5.0f s  %7d turns  heap %6.2f MB  rss %6.1f MB  %4d descriptors  %4d goroutines\n",
			time.Since(began).Seconds(), l.turns.Load(), heap, memory, fds, in.Goroutines)
		if time.Since(began) < p.cfg.Soak/6 {
			continue
		}
		for f, v := range map[*Figure]float64{&l.heap: heap, &l.memory: memory, &l.fds: float64(fds), &l.routines: float64(in.Goroutines)} {
			f.Samples = append(f.Samples, v)
		}
	}
}

// measure asks the server and counts its descriptors while the load rests. What a request leaves
// for a moment (its connection, a timer) must be gone first: measure waits, for at most ten
// seconds, until the counts are the same five times in a row.
func (l *soak) measure(ctx context.Context, probe string) (in inside, fds int, err error) {
	for same, tries := 0, 0; same < 5 && tries < 50; tries++ {
		l.Close()
		now, err := ask(probe)
		if err != nil {
			return in, fds, err
		}
		open, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", l.PID))
		if err != nil {
			return in, fds, err
		}
		if len(open) == fds && now.Goroutines == in.Goroutines {
			same++
		} else {
			same = 0
		}
		in, fds = now, len(open)
		if err := clock.Pause(ctx, 200*time.Millisecond); err != nil {
			return in, fds, err
		}
	}
	return in, fds, nil
}

// work runs one session after the other until the context ends.
func (l *soak) work(ctx context.Context, n int) error {
	// The first session of each worker starts at another step, so that the sessions have different ages.
	for first := n % steps; ; first = 0 {
		if err := l.life(ctx, first); err != nil {
			return fmt.Errorf("worker %d of the soak run failed: %w", n, err)
		}
		l.lives.Add(1)
	}
}

// life runs one session from its creation until it is purged.
func (l *soak) life(ctx context.Context, first int) error {
	ses, err := l.CreateSession(ctx, holdfast.CreateSession{Title: "soak", Env: map[string]string{"SOAK": "1"}}, "")
	if err != nil {
		return err
	}
	// The first step starts the box. Only after it may the gate stop the session, because samples are taken when every
	// session has a box.
	if err := l.turn(ctx, ses.ID, bash("echo first > notes")); err != nil {
		return err
	}
	for i := first; i < steps; i++ {
		if err := l.step(ctx, ses.ID, i); err != nil {
			return err
		}
		if err := l.gate.pass(ctx); err != nil {
			return err
		}
		if err := clock.Pause(ctx, rest/2+rand.N(rest)); err != nil {
			return err
		}
	}
	return l.DeleteSession(ctx, ses.ID, holdfast.EndSession{Purge: true, Interrupt: true})
}

// step does one of seven things that users do with a session; the number i of the step decides which.
func (l *soak) step(ctx context.Context, id holdfast.SessionID, i int) error {
	switch i % 8 {
	case 0, 3:
		return l.turn(ctx, id, bash(fmt.Sprintf("echo %d >> notes; wc -l notes", i)))
	case 1:
		return l.turn(ctx, id, `<script>[{"say":"`+strings.Repeat("some words ", 40)+`","chunks":20}]</script>`)
	case 2:
		_, err := l.Exec(ctx, id, holdfast.ExecRequest{Command: "seq 1000"})
		return err
	case 4:
		return l.leave(ctx, id)
	case 5:
		return l.files(ctx, id)
	case 6:
		if _, err := l.PauseSession(ctx, id, holdfast.EndSession{}); err != nil {
			return err
		}
		_, err := l.ResumeSession(ctx, id, holdfast.ResumeSession{})
		return err
	}
	if _, err := l.Sessions(ctx, holdfast.SessionFilter{Limit: 50}); err != nil {
		return err
	}
	return l.turn(ctx, id, "How many messages have I sent?")
}

func (l *soak) turn(ctx context.Context, id holdfast.SessionID, text string) error {
	if err := l.Turn(ctx, id, text); err != nil {
		return err
	}
	l.turns.Add(1)
	return nil
}

// leave closes a turn's stream in the middle and later follows the log to the turn's end.
func (l *soak) leave(ctx context.Context, id holdfast.SessionID) error {
	st, err := l.Stream(ctx, id, holdfast.SendMessage{Text: bash("sleep 0.05; echo back >> notes")})
	if err != nil {
		return err
	}
	st.Close()
	for ev, err := range l.Follow(ctx, id, st.Seq) {
		if err != nil {
			return err
		}
		if ev.Turn == st.Turn && ev.EndsTurn() {
			l.turns.Add(1)
			return nil
		}
	}
	return io.ErrUnexpectedEOF
}

func (l *soak) files(ctx context.Context, id holdfast.SessionID) error {
	if _, err := l.WriteFile(ctx, id, "data.bin", strings.NewReader(strings.Repeat("0123456789abcdef", 1<<12)), 0o644); err != nil {
		return err
	}
	r, err := l.ReadFile(ctx, id, "data.bin")
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

// gate stops all workers while a sample is taken.
type gate struct {
	workers int
	// closed holds nil while the gate is open, else a channel that is closed when the gate opens.
	closed chan chan struct{}
	held   chan struct{}
}

func newGate(workers int) *gate {
	g := &gate{workers: workers, closed: make(chan chan struct{}, 1), held: make(chan struct{}, workers)}
	g.closed <- nil
	return g
}

// pass lets a worker continue, or stops it while the gate is closed.
func (g *gate) pass(ctx context.Context) error {
	opened := <-g.closed
	g.closed <- opened
	if opened == nil {
		return nil
	}
	g.held <- struct{}{}
	select {
	case <-opened:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// hold closes the gate and returns when every worker has stopped at it.
func (g *gate) hold(ctx context.Context) error {
	<-g.closed
	g.closed <- make(chan struct{})
	for range g.workers {
		select {
		case <-g.held:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// release opens the gate again, so that the workers continue.
func (g *gate) release() {
	opened := <-g.closed
	g.closed <- nil
	close(opened)
}
