package soak

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// steps is how many steps a session lives; then it is purged and a new session replaces it.
const steps = 24

// load is the load on the server: workers, each of which uses one session after the other.
type load struct {
	cfg          Config
	client       *client.Client
	gate         *gate
	turns, lives atomic.Int64
}

// work runs one session after the other until the context ends.
func (l *load) work(ctx context.Context, n int) error {
	// The first session of each worker starts at another step, so that the sessions have different ages.
	for first := n % steps; ; first = 0 {
		if err := l.life(ctx, first); err != nil {
			return fmt.Errorf("worker %d: %w", n, err)
		}
		l.lives.Add(1)
	}
}

// life runs one session from its creation to its purge.
func (l *load) life(ctx context.Context, first int) error {
	ses, err := l.client.CreateSession(ctx, holdfast.CreateSession{Title: "soak", Env: map[string]string{"SOAK": "1"}}, "")
	if err != nil {
		return err
	}
	// The first step starts the box; only after that the gate may stop the session.
	if err := l.turn(ctx, ses.ID, tool("echo first > notes")); err != nil {
		return err
	}
	for i := first; i < steps; i++ {
		if err := l.step(ctx, ses.ID, i); err != nil {
			return err
		}
		if err := l.gate.pass(ctx); err != nil {
			return err
		}
		if err := clock.Pause(ctx, l.cfg.Rest/2+rand.N(l.cfg.Rest)); err != nil {
			return err
		}
	}
	return l.client.DeleteSession(ctx, ses.ID, holdfast.EndSession{Purge: true, Interrupt: true})
}

// step does one of eight things that people do with a session, in rotation.
func (l *load) step(ctx context.Context, id holdfast.SessionID, i int) error {
	switch i % 8 {
	case 0, 3:
		return l.turn(ctx, id, tool(fmt.Sprintf("echo %d >> notes; wc -l notes", i)))
	case 1:
		return l.turn(ctx, id, `<script>[{"say":"`+strings.Repeat("some words ", 40)+`","chunks":20}]</script>`)
	case 2:
		_, err := l.client.Exec(ctx, id, holdfast.ExecRequest{Command: "seq 1000"})
		return err
	case 4:
		return l.leave(ctx, id)
	case 5:
		return l.files(ctx, id)
	case 6:
		if _, err := l.client.PauseSession(ctx, id, holdfast.EndSession{}); err != nil {
			return err
		}
		_, err := l.client.ResumeSession(ctx, id, holdfast.ResumeSession{})
		return err
	}
	if _, err := l.client.Sessions(ctx, holdfast.SessionFilter{Limit: 50}); err != nil {
		return err
	}
	return l.turn(ctx, id, "How many messages have I sent?")
}

func tool(command string) string {
	return fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":%q}},{"say":"done"}]</script>`, command)
}

func (l *load) turn(ctx context.Context, id holdfast.SessionID, text string) error {
	if err := child.Turn(ctx, l.client, id, text); err != nil {
		return err
	}
	l.turns.Add(1)
	return nil
}

// leave closes a turn's stream in the middle and later follows the log to the turn's end.
func (l *load) leave(ctx context.Context, id holdfast.SessionID) error {
	st, err := l.client.Stream(ctx, id, holdfast.SendMessage{Text: tool("sleep 0.05; echo back >> notes")})
	if err != nil {
		return err
	}
	st.Close()
	for ev, err := range l.client.Follow(ctx, id, st.Seq) {
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

func (l *load) files(ctx context.Context, id holdfast.SessionID) error {
	if _, err := l.client.WriteFile(ctx, id, "data.bin", strings.NewReader(strings.Repeat("0123456789abcdef", 1<<12)), 0o644); err != nil {
		return err
	}
	r, err := l.client.ReadFile(ctx, id, "data.bin")
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

// release opens the gate again.
func (g *gate) release() {
	opened := <-g.closed
	g.closed <- nil
	close(opened)
}
