package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
)

// worker is a client with one session: it does one thing after the other, whatever faults happen.
type worker struct {
	h    *harness
	n    int
	id   holdfast.SessionID
	box  holdfast.BoxID
	rng  *rand.Rand
	stop atomic.Bool
	// inTurn is set from the acknowledgement of a turn to its terminal event.
	inTurn atomic.Bool

	// ev collects what clients were told. Only the worker uses it until the load ends, except for ev.kills: only the
	// harness writes it.
	ev evidence
	// files is the model of the session's files in a run of snapshots, else nil.
	files *files
}

// callPatience limits a single call of a client.
const callPatience = 30 * time.Second

// newWorkers creates the sessions, each with its worker, and before them the workspace if they share one.
func (h *harness) newWorkers(ctx context.Context) error {
	if h.cfg.Workspace {
		if err := h.newWorkspace(ctx); err != nil {
			return err
		}
	}
	for i := range h.cfg.Sessions {
		w, err := h.newWorker(ctx, i)
		if err != nil {
			return err
		}
		h.workers = append(h.workers, w)
	}
	if h.cfg.Workspace {
		return h.share(ctx)
	}
	return nil
}

func (h *harness) newWorker(ctx context.Context, n int) (*worker, error) {
	w := &worker{h: h, n: n, rng: rand.New(rand.NewPCG(h.cfg.Seed, uint64(n)+100))}
	srv, _ := h.current()
	s, err := srv.CreateSession(ctx, holdfast.CreateSession{Title: fmt.Sprintf("torture %d", n), Workspace: string(h.workspace)}, "")
	w.id, w.box = s.ID, s.ID.Box()
	if h.workspace != "" {
		w.box = holdfast.BoxID("w-" + h.workspace)
	}
	w.ev = evidence{id: s.ID, ended: map[holdfast.TurnID]int64{}, lines: map[string]int{}}
	if h.cfg.Snapshots {
		w.files = newFiles(n)
	}
	return w, err
}

// work sends messages, commands and files until stop is set or ctx ends. It repeats a message until the server
// accepts it, and waits for the end of its turn; it tries each command and each file only once. In a run of
// snapshots it calls change instead.
func (w *worker) work(ctx context.Context) {
	for k := 0; ctx.Err() == nil && !w.stop.Load(); k++ {
		if w.files != nil {
			w.change(ctx, k)
			continue
		}
		switch w.rng.IntN(10) {
		case 0, 1:
			name := fmt.Sprintf("exec-%d-%d", w.n, k)
			w.once(ctx, effect{name: name}, func(ctx context.Context, srv *child.Server) (bool, error) {
				res, err := srv.Exec(ctx, w.id, holdfast.ExecRequest{Command: appends(name), TimeoutMS: 10_000})
				return res.Class == holdfast.ExitOK, err
			})
		case 2:
			name := fmt.Sprintf("put-%d-%d", w.n, k)
			w.once(ctx, effect{name: name, synced: true}, func(ctx context.Context, srv *child.Server) (bool, error) {
				_, err := srv.WriteFile(ctx, w.id, "e/"+name, strings.NewReader(name+"\n"), 0o644)
				return true, err
			})
		default:
			w.turn(ctx, k, w.script(k))
		}
	}
}

// once tries a call that has an effect, and records the effect if the call reports success.
func (w *worker) once(ctx context.Context, e effect, do func(context.Context, *child.Server) (bool, error)) {
	srv, changed := w.h.current()
	call, cancel := context.WithTimeout(ctx, callPatience)
	defer cancel()
	ok, err := do(call, srv)
	switch {
	case err != nil:
		again(ctx, changed)
	case ok:
		e.at = time.Now()
		w.ev.direct = append(w.ev.direct, e)
	}
}

// script returns the message of a turn with one to three tools, each of which makes one file with one line.
func (w *worker) script(k int) string {
	var steps []child.Step
	for i := range 1 + w.rng.IntN(3) {
		name := fmt.Sprintf("turn-%d-%d-%d", w.n, k, i)
		if w.rng.IntN(3) == 0 {
			steps = append(steps, child.Write("e/"+name, name+"\n"))
			continue
		}
		steps = append(steps, child.Bash(w.command(name)))
	}
	return scripted(steps)
}

// command returns a shell command for a turn that makes a file and prints the file's name. In a workspace it also adds
// a line to the file "began" of the common tree, then to "ended" of the session's home, and sometimes takes so long
// that other sessions' calls end meanwhile.
func (w *worker) command(name string) string {
	nap, began, ended := w.rng.IntN(12), "", ""
	if w.h.cfg.Workspace {
		began, ended = fmt.Sprintf("echo %s >> began; ", name), fmt.Sprintf(" && echo %s >> ~/ended", name)
		if w.rng.IntN(4) == 0 {
			nap = 30 + w.rng.IntN(60)
		}
	}
	return fmt.Sprintf("%secho %s at work; sleep 0.%02d; %s%s && echo %[2]s %[6]s", began, name, nap, appends(name), ended, hasEnded)
}

// hasEnded is the end of the last line that a command prints.
const hasEnded = "has ended"

// answers is the text with which the model answers in every turn.
const answers = "done"

// scripted returns a message that makes the scripted model do the steps and then answer.
func scripted(steps []child.Step) string { return child.Script(append(steps, child.Say(answers))...) }

func appends(name string) string { return fmt.Sprintf("mkdir -p e && echo %s >> e/%s", name, name) }

// turn repeats a message with one idempotency key until it is acknowledged, then waits for the
// turn's end. It returns the acknowledgement; the zero Sent if ctx ended before it.
func (w *worker) turn(ctx context.Context, k int, text string) holdfast.Sent {
	msg := holdfast.SendMessage{Text: text, Key: fmt.Sprintf("w%d-%d", w.n, k)}
	for ctx.Err() == nil {
		srv, changed := w.h.current()
		call, cancel := context.WithTimeout(ctx, callPatience)
		sent, err := srv.Send(call, w.id, msg)
		cancel()
		if err == nil {
			w.ev.sent = append(w.ev.sent, message{sent.Turn.ID, msg.Text})
			w.inTurn.Store(true)
			w.await(ctx, sent)
			w.inTurn.Store(false)
			return sent
		}
		again(ctx, changed)
	}
	return holdfast.Sent{}
}

// await follows the log to the end of a turn.
func (w *worker) await(ctx context.Context, sent holdfast.Sent) {
	after := sent.Seq
	for ctx.Err() == nil {
		srv, changed := w.h.current()
		for ev, err := range srv.Follow(ctx, w.id, after) {
			if err != nil {
				break
			}
			if ev.Seq > after+1 {
				w.ev.holes = append(w.ev.holes, [2]int64{after, ev.Seq})
			}
			if ev.Seq > 0 {
				after = ev.Seq
			}
			if w.files != nil {
				w.files.hear(ev)
			}
			if ev.Turn == sent.Turn.ID && ev.EndsTurn() {
				w.ev.ended[ev.Turn] = ev.Seq
				return
			}
		}
		again(ctx, changed)
	}
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

// evidence adds to what clients were told the session's log and, except in a run of snapshots, transcript and files.
func (w *worker) evidence(ctx context.Context, srv *child.Server) (evidence, error) {
	ev := w.ev
	for e, err := range srv.AllEvents(ctx, w.id, 0) {
		if err != nil {
			return ev, err
		}
		ev.events = append(ev.events, e)
	}
	if w.files != nil {
		return ev, nil // in a run of snapshots, files are compared by their hash
	}
	ev.entries = []holdfast.TranscriptEntry{}
	for after := int64(0); ; {
		entries, next, err := srv.Transcript(ctx, w.id, after, 0)
		if err != nil {
			return ev, err
		}
		ev.entries = append(ev.entries, entries...)
		if after = next; next == 0 {
			break
		}
	}
	var err error
	// A file that a power cut left empty, or full of NULs, counts as missing.
	if ev.lines, err = w.counts(ctx, srv, `mkdir -p e; cd e; for f in `+w.effects()+`; do [ -f "$f" ] && echo "$(grep -acxF "$f" "$f") $f"; done; true`); err != nil || !w.h.cfg.Workspace {
		return ev, err
	}
	if ev.began, err = w.counts(ctx, srv, `sort began | uniq -c`); err != nil {
		return ev, err
	}
	ev.restarts = w.h.restarts
	ev.ends, err = w.counts(ctx, srv, `sort ~/ended | uniq -c`)
	return ev, err
}

// effects returns the pattern of the names of the session's files.
func (w *worker) effects() string {
	if w.h.cfg.Workspace {
		return fmt.Sprintf("turn-%[1]d-* exec-%[1]d-* put-%[1]d-*", w.n)
	}
	return "*"
}

// counts runs a command that prints lines of a number and a name, and returns the numbers by name.
func (w *worker) counts(ctx context.Context, srv *child.Server, command string) (map[string]int, error) {
	res, err := srv.Exec(ctx, w.id, holdfast.ExecRequest{Command: command})
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	for line := range strings.Lines(string(res.Stdout)) {
		var n int
		var name string
		if _, err := fmt.Sscan(line, &n, &name); err == nil {
			out[name] = n
		}
	}
	return out, nil
}
