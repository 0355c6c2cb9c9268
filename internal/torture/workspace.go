package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Workspace is the outcome for the workspace, in a run in which the sessions share one.
type Workspace struct {
	// Together counts the faults that struck while every session had a turn.
	Together int `json:"together"`
	// Adopted counts the calls that began before a kill of the server and whose outcome a later server committed.
	Adopted int `json:"adopted_calls"`
}

// enoughRounds is the number of kills from which a run in a workspace must have hit each kill point twice.
const enoughRounds = 20

// planWorkspace returns the kills of a run in a workspace: alternately of the server and of boxd. Each kill point gets
// one of both, then comes the next point.
func planWorkspace(n int) []fault {
	out := make([]fault, n)
	for i := range out {
		out[i] = fault{kind: KillServer, point: Points[i/2%len(Points)]}
		if i%2 == 1 {
			out[i].kind = KillBox
		}
	}
	return out
}

// workspaceShortfalls checks that a run in a workspace killed the server as often as planned, killed boxd and hit each
// point at least half as often as planned, and that enough faults struck while all sessions had a turn and enough calls
// outlived their server.
func (r *Result) workspaceShortfalls(n int) []string {
	if n < enoughRounds {
		return nil
	}
	var s shortfalls
	s.least("kills of the server", r.Faults[KillServer], n/2)
	s.least("kills of boxd", r.Faults[KillBox], n/4)
	for _, p := range Points {
		s.least("kills at "+p, r.Points[p], n/2/len(Points))
	}
	s.least("kills while every session had a turn", r.Workspace.Together, n/4)
	s.least("calls that outlived their server", r.Workspace.Adopted, n/4)
	return s
}

// newWorkspace creates the workspace with a random name, so that runs on one machine do not share it.
func (h *harness) newWorkspace(ctx context.Context) error {
	srv, _ := h.current()
	made, err := srv.CreateWorkspace(ctx, holdfast.CreateWorkspace{ID: fmt.Sprintf("torture-%08x", rand.Uint32())})
	h.workspace, h.result.Workspace = made.ID, &Workspace{}
	return err
}

// share starts the box of the workspace. It returns an error if the sessions have boxes of their own.
func (h *harness) share(ctx context.Context) error {
	srv, _ := h.current()
	for _, w := range h.workers {
		if _, err := srv.Exec(ctx, w.id, holdfast.ExecRequest{Command: "true"}); err != nil {
			return err
		}
	}
	list, err := srv.Containers(ctx)
	if err != nil {
		return err
	}
	if len(list) != 1 || list[0].ID != h.workers[0].box {
		return holdfast.Errorf(holdfast.KindUnavailable, "torture", "the sessions of workspace %s do not share a box on this machine: it has %d boxes", h.workspace, len(list)).
			WithHint("holdfast doctor")
	}
	return nil
}

// siblings checks a session of a shared box by what it wrote to the file of all sessions and to its own home.
func (r *Result) siblings(ev evidence, calls map[string]*call, say func(string, ...any)) {
	known := map[string]bool{}
	for key, c := range calls {
		if slices.ContainsFunc(ev.restarts, func(t time.Time) bool { return c.started.Before(t) && c.ended.After(t) }) && c.outcome == holdfast.ExitOK {
			r.Workspace.Adopted++
		}
		if c.synced || c.name == "" {
			continue
		}
		known[c.name] = true
		began, ends, lines := ev.began[c.name], ev.ends[c.name], ev.lines[c.name]
		switch {
		case began > 1:
			r.Doubled++
			say("tool use %s: the command of %s began %d times", key, c.name, began)
		case c.intents == 0 && began > 0:
			say("tool use %s: the command of %s began, but the log has no intent", key, c.name)
		case ends > lines || lines > began:
			say("tool use %s: the command of %s began %d times, its file has %d lines, and the session's home %d", key, c.name, began, lines, ends)
		case c.unknown:
		case c.outcome != holdfast.ExitOK:
			say("tool use %s: the outcome of the command of %s is %s", key, c.name, c.outcome)
		case ends != 1:
			say("tool use %s: the command of %s was confirmed, but it ended %d times as the session's home says", key, c.name, ends)
		}
	}
	for name, n := range ev.ends {
		if !known[name] {
			say("the home has the line %q, which no command of this session wrote", name)
		} else if n > 1 {
			r.Doubled++
			say("the command of %s ended %d times", name, n)
		}
	}
}
