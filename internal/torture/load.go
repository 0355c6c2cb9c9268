package torture

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
)

// worker is one session of the load and its client: it sends a turn, waits for its end, and sends
// the next, whatever happens to the server.
type worker struct {
	h    *harness
	n    int
	id   holdfast.SessionID
	rng  *rand.Rand
	stop atomic.Bool
	// inTurn is set from the acknowledgement of a turn to its terminal event.
	inTurn atomic.Bool

	mu    sync.Mutex
	acked map[holdfast.TurnID]bool
	seen  map[holdfast.TurnID]int64
	kills []kill
}

func (h *harness) newWorker(ctx context.Context, n int) (*worker, error) {
	w := &worker{
		h: h, n: n, rng: rand.New(rand.NewPCG(h.cfg.Seed, uint64(n)+100)),
		acked: map[holdfast.TurnID]bool{}, seen: map[holdfast.TurnID]int64{},
	}
	a, _ := h.current()
	var err error
	w.id, err = a.create(ctx, fmt.Sprintf("torture %d", n))
	return w, err
}

func (w *worker) killed(at kill) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.kills = append(w.kills, at)
}

// work sends turns until stop is set; it waits for the end of each turn that it has sent.
func (w *worker) work(ctx context.Context) {
	for k := 0; ctx.Err() == nil && !w.stop.Load(); k++ {
		text, key := w.script(k), fmt.Sprintf("w%d-%d", w.n, k)
		sent, ok := w.send(ctx, text, key)
		if !ok {
			return
		}
		w.await(ctx, sent)
	}
}

// script returns a turn of one to three tools, each of which appends a unique line after a short
// while; then the model says "done".
func (w *worker) script(k int) string {
	type step map[string]any
	var steps []step
	for i := range 1 + w.rng.IntN(3) {
		line := fmt.Sprintf("L-%d-%d-%d", w.n, k, i)
		cmd := fmt.Sprintf("echo at work; sleep 0.0%d; echo %s >> lines", 1+w.rng.IntN(8), line)
		steps = append(steps, step{"tool": "Bash", "input": map[string]any{"command": cmd}})
	}
	steps = append(steps, step{"say": "done"})
	b, _ := json.Marshal(steps)
	return "<script>" + string(b) + "</script>"
}

// send repeats a message with one idempotency key until it is acknowledged.
func (w *worker) send(ctx context.Context, text, key string) (holdfast.Sent, bool) {
	for {
		a, changed := w.h.current()
		sent, err := a.send(ctx, w.id, text, key)
		if err == nil {
			w.mu.Lock()
			w.acked[sent.Turn.ID] = true
			w.mu.Unlock()
			w.inTurn.Store(true)
			return sent, true
		}
		if !pauseFor(ctx, changed) {
			return sent, false
		}
	}
}

// await follows the log until the terminal event of the turn.
func (w *worker) await(ctx context.Context, sent holdfast.Sent) {
	defer w.inTurn.Store(false)
	after := sent.Seq
	for ctx.Err() == nil {
		a, changed := w.h.current()
		for ev, err := range a.follow(ctx, w.id, after) {
			if err != nil {
				break
			}
			if ev.Seq > 0 {
				after = ev.Seq
			}
			if ev.Turn == sent.Turn.ID && ev.EndsTurn() {
				w.mu.Lock()
				w.seen[ev.Turn] = ev.Seq
				w.mu.Unlock()
				return
			}
		}
		if !pauseFor(ctx, changed) {
			return
		}
	}
}

// pauseFor waits until another server runs, for 50 ms at most. It returns false if ctx ended.
func pauseFor(ctx context.Context, changed <-chan struct{}) bool {
	select {
	case <-changed:
	case <-time.After(50 * time.Millisecond):
	case <-ctx.Done():
		return false
	}
	return true
}

// evidence collects the data by which the session is judged.
func (w *worker) evidence(ctx context.Context, a *api) (evidence, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	ev := evidence{id: w.id, acked: w.acked, seen: w.seen, boxKills: w.kills, lines: map[string]int{}}
	var err error
	if ev.events, err = a.events(ctx, w.id); err != nil {
		return ev, err
	}
	var file bytes.Buffer
	if err := a.file(ctx, w.id, "lines", &file); err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
		return ev, err
	}
	for line := range strings.Lines(file.String()) {
		ev.lines[strings.TrimSpace(line)]++
	}
	return ev, nil
}
