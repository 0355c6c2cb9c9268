package faultloop

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
)

// worker is a client with one session: it does one thing after the other, whatever faults happen.
// One goroutine owns it until the load ends.
type worker struct {
	l    *loop
	n    int
	id   holdfast.SessionID
	rng  *rand.Rand
	stop atomic.Bool

	// sent are the acknowledged messages; ended maps each turn whose end a stream returned to the
	// number of that event; direct are the acknowledged effects outside of turns.
	sent   []message
	ended  map[holdfast.TurnID]int64
	direct []effect
}

// message is a message and its acknowledged turn.
type message struct {
	turn holdfast.TurnID
	text string
}

// effect is a file that the server confirmed as written.
type effect struct {
	name string
	// synced: the server promised that the file is on the disk.
	synced bool
	at     time.Time
}

// callPatience limits a single call of a client.
const callPatience = 30 * time.Second

func (l *loop) newWorker(ctx context.Context, n int) (*worker, error) {
	w := &worker{l: l, n: n, rng: rand.New(rand.NewPCG(l.cfg.Seed, uint64(n)+1000)), ended: map[holdfast.TurnID]int64{}}
	api, _ := l.reach()
	s, err := api.CreateSession(ctx, holdfast.CreateSession{Title: fmt.Sprintf("faults %d", n)}, fmt.Sprintf("create-%d", n))
	w.id = s.ID
	return w, err
}

// work does things until stop is set. It repeats a message until it is accepted, and waits for
// the end of its turn; it tries commands and files only once.
func (w *worker) work(ctx context.Context) {
	for k := 0; ctx.Err() == nil && !w.stop.Load(); k++ {
		switch w.rng.IntN(10) {
		case 0, 1:
			w.exec(ctx, fmt.Sprintf("exec-%d-%d", w.n, k))
		case 2:
			w.put(ctx, fmt.Sprintf("put-%d-%d", w.n, k))
		default:
			w.turn(ctx, k)
		}
	}
}

// script returns a turn of one to three tools, each of which makes one file with one line.
func (w *worker) script(k int) string {
	type step map[string]any
	var steps []step
	for i := range 1 + w.rng.IntN(3) {
		name := fmt.Sprintf("turn-%d-%d-%d", w.n, k, i)
		if w.rng.IntN(3) == 0 {
			steps = append(steps, step{"tool": "Write", "input": map[string]any{"file_path": "e/" + name, "content": name + "\n"}})
			continue
		}
		cmd := fmt.Sprintf("sleep 0.%02d; %s", w.rng.IntN(12), appends(name))
		steps = append(steps, step{"tool": "Bash", "input": map[string]any{"command": cmd}})
	}
	b, _ := json.Marshal(append(steps, step{"say": "done"})) // texts and numbers always encode
	return "<script>" + string(b) + "</script>"
}

func appends(name string) string { return fmt.Sprintf("mkdir -p e && echo %s >> e/%s", name, name) }

func (w *worker) turn(ctx context.Context, k int) {
	msg := holdfast.SendMessage{Text: w.script(k), Key: fmt.Sprintf("w%d-%d", w.n, k)}
	for ctx.Err() == nil {
		api, changed := w.l.reach()
		call, cancel := context.WithTimeout(ctx, callPatience)
		sent, err := api.Send(call, w.id, msg)
		cancel()
		if err == nil {
			w.sent = append(w.sent, message{sent.Turn.ID, msg.Text})
			w.await(ctx, sent)
			return
		}
		again(ctx, changed)
	}
}

// await follows the log to the end of a turn.
func (w *worker) await(ctx context.Context, sent holdfast.Sent) {
	after := sent.Seq
	for ctx.Err() == nil {
		api, changed := w.l.reach()
		for ev, err := range api.Follow(ctx, w.id, after) {
			if err != nil {
				break
			}
			if ev.Seq > after+1 {
				w.l.gap(w.id, after, ev.Seq)
			}
			if ev.Seq > 0 {
				after = ev.Seq
			}
			if ev.Turn == sent.Turn.ID && ev.EndsTurn() {
				w.ended[ev.Turn] = ev.Seq
				return
			}
		}
		again(ctx, changed)
	}
}

// gap records a hole in the event numbers of a stream.
func (l *loop) gap(id holdfast.SessionID, after, next int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.result.Gaps++
	l.result.Violations = append(l.result.Violations, fmt.Sprintf("session %s: a stream continued after event %d with event %d", id, after, next))
}

func (w *worker) exec(ctx context.Context, name string) {
	api, changed := w.l.reach()
	call, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	res, err := api.Exec(call, w.id, holdfast.ExecRequest{Command: appends(name), TimeoutMS: 10_000})
	if err != nil {
		again(ctx, changed)
		return
	}
	if res.Class == holdfast.ExitOK {
		w.direct = append(w.direct, effect{name: name, at: time.Now()})
	}
}

func (w *worker) put(ctx context.Context, name string) {
	api, changed := w.l.reach()
	call, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	if _, err := api.WriteFile(call, w.id, "e/"+name, strings.NewReader(name+"\n"), 0o644); err != nil {
		again(ctx, changed)
		return
	}
	w.direct = append(w.direct, effect{name: name, synced: true, at: time.Now()})
}

// again waits until another server runs, for 50 ms at most.
func again(ctx context.Context, changed <-chan struct{}) {
	t := time.NewTimer(50 * time.Millisecond)
	defer t.Stop()
	select {
	case <-changed:
	case <-t.C:
	case <-ctx.Done():
	}
}

// evidence reads back the session's data.
func (w *worker) evidence(ctx context.Context, api *client.Client) (evidence, error) {
	ev := evidence{id: w.id, sent: w.sent, ended: w.ended, direct: w.direct, lines: map[string]int{}}
	for e, err := range api.AllEvents(ctx, w.id, 0) {
		if err != nil {
			return ev, err
		}
		ev.events = append(ev.events, e)
	}
	// A file that a cut left empty, or full of NULs, counts as missing.
	res, err := api.Exec(ctx, w.id, holdfast.ExecRequest{Command: `mkdir -p e; cd e; for f in *; do [ -f "$f" ] && echo "$f $(grep -acxF "$f" "$f")"; done; true`})
	if err != nil {
		return ev, err
	}
	for line := range strings.Lines(string(res.Stdout)) {
		var name string
		var n int
		if _, err := fmt.Sscan(line, &name, &n); err == nil {
			ev.lines[name] = n
		}
	}
	return ev, nil
}
