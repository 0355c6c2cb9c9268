package torture

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
)

// Snapshots is the outcome for the checkpoints in a run of snapshots.
type Snapshots struct {
	// Taken counts the events snapshot.taken. Of them Fuzzy have files that changed while they were read, and
	// Late were taken by the next server, because the one before ended first. Failed counts the events snapshot.failed.
	Taken  int `json:"taken"`
	Fuzzy  int `json:"fuzzy"`
	Late   int `json:"late"`
	Failed int `json:"failed"`
	// Compared counts the forks whose files were compared by their hash, Opened those for whose
	// files no hash is known, mostly because the server was killed while a tool ran. Wrong must be 0.
	Compared int `json:"compared"`
	Opened   int `json:"opened"`
	Wrong    int `json:"wrong"`
	// CutRewinds counts the Rewinds whose call failed, CutRestores the Restores whose resume was repeated.
	Rewinds     int `json:"rewinds"`
	CutRewinds  int `json:"interrupted_rewinds"`
	Restores    int `json:"restores"`
	CutRestores int `json:"interrupted_restores"`
	Forks       int `json:"forks"`

	// done is the number of rewinds in the log that the client knows.
	done int
}

func (s *Snapshots) add(o Snapshots) {
	s.Taken, s.Fuzzy, s.Late, s.Failed = s.Taken+o.Taken, s.Fuzzy+o.Fuzzy, s.Late+o.Late, s.Failed+o.Failed
	s.Compared, s.Opened, s.Wrong = s.Compared+o.Compared, s.Opened+o.Opened, s.Wrong+o.Wrong
	s.Rewinds, s.CutRewinds = s.Rewinds+o.Rewinds, s.CutRewinds+o.CutRewinds
	s.Restores, s.CutRestores, s.Forks = s.Restores+o.Restores, s.CutRestores+o.CutRestores, s.Forks+o.Forks
}

// planSnapshots returns the kills of a run of snapshots: two thirds at the points in turn, the others at
// random moments.
func planSnapshots(n int) []fault {
	out := make([]fault, n)
	at := 0
	for i := range out {
		out[i].kind = KillServer
		if i%3 != 2 {
			out[i].point = SnapshotPoints[at%len(SnapshotPoints)]
			at++
		}
	}
	return out
}

// enough is the number of kills from which a run of snapshots must have hit each kill point at least twice.
const enough = 21

// snapshotShortfalls checks that a run of snapshots with at least enough kills hit each kill point at least
// twice, and in a long run in three of four tries. A shorter run has no minimums.
func (r *Result) snapshotShortfalls(n int) []string {
	if n < enough {
		return nil
	}
	want := max(2, n*2/3/len(SnapshotPoints)*3/4)
	var s shortfalls
	for _, p := range SnapshotPoints {
		s.least("kills at "+p, r.Points[p], want)
	}
	return s
}

// judgeSnapshots restores every acknowledged checkpoint by a fork and compares it.
func (h *harness) judgeSnapshots(ctx context.Context, srv *child.Server) error {
	h.result.Snapshots = &Snapshots{}
	var all sync.WaitGroup
	errs := make([]error, len(h.workers))
	for i, w := range h.workers {
		all.Go(func() { errs[i] = w.judge(ctx, srv) })
	}
	all.Wait()
	for i, w := range h.workers {
		if errs[i] != nil {
			return fmt.Errorf("the checkpoints of session %s cannot be read back: %w", w.id, errs[i])
		}
		h.result.Snapshots.add(w.files.counts)
		for _, v := range w.files.faults {
			h.result.bad("session %s: %s", w.id, v)
		}
	}
	if s := h.result.Snapshots; s.Fuzzy > max(1, s.Taken/100) {
		h.result.bad("%d of %d snapshots are fuzzy, more than 1 %%", s.Fuzzy, s.Taken)
	}
	return nil
}

// judge compares every checkpoint that the log acknowledges.
func (w *worker) judge(ctx context.Context, srv *child.Server) error {
	f := w.files
	list := map[holdfast.CheckpointID]holdfast.Checkpoint{}
	for cp, err := range srv.AllCheckpoints(ctx, w.id) {
		if err != nil {
			return err
		}
		list[cp.ID] = cp
	}
	told := map[holdfast.CheckpointID]bool{}
	var last holdfast.Event
	for ev, err := range srv.AllEvents(ctx, w.id, 0) {
		if err != nil {
			return err
		}
		switch ev.Type {
		case holdfast.EventSnapshotFailed:
			w.failed(ev)
		case holdfast.EventSnapshotTaken:
			var taken holdfast.SnapshotTaken
			if err := ev.Decode(&taken); err != nil {
				return err
			}
			told[taken.Checkpoint] = true
			w.count(taken)
			cp, ok := list[taken.Checkpoint]
			if !ok {
				f.counts.Wrong++
				f.bad("checkpoint %s was acknowledged, but is not in the list", taken.Checkpoint)
				continue
			}
			w.compare(ctx, w.goal(cp, ev.Time))
		}
		last = ev
	}
	for _, g := range f.acked {
		if _, ok := list[g.id]; !ok || !told[g.id] && list[g.id].Reason != holdfast.CheckpointTurn {
			f.counts.Wrong++
			f.bad("a client was told of checkpoint %s, but the log after %d events is not", g.id, last.Seq)
		}
	}
	return nil
}

// count counts a snapshot, and checks what its event says.
func (w *worker) count(taken holdfast.SnapshotTaken) {
	f := w.files
	f.counts.Taken++
	if taken.Reason == holdfast.CheckpointLate {
		f.counts.Late++
	}
	if len(taken.Mismatched) > 0 {
		f.bad("checkpoint %s: files differ from the snapshot before although they did not change: %q", taken.Checkpoint, taken.Mismatched)
	}
	if len(taken.Fuzzy) == 0 {
		return
	}
	f.counts.Fuzzy++
	// A late snapshot may have been taken while the tools of the interrupted turn ran.
	strange := slices.ContainsFunc(taken.Fuzzy, func(p string) bool { return !strings.HasPrefix(p, aside+"/") })
	if (!f.busy || strange) && taken.Reason != holdfast.CheckpointLate {
		f.bad("checkpoint %s is fuzzy, although nothing changed these files: %q", taken.Checkpoint, taken.Fuzzy)
	}
}

// failed counts a failed snapshot. It is a violation unless it failed because the workspace is gone, which restore removes.
func (w *worker) failed(ev holdfast.Event) {
	w.files.counts.Failed++
	var why holdfast.Failure
	if ev.Decode(&why) == nil && why.Kind == holdfast.KindConflict && strings.Contains(why.Message, "is gone") {
		return
	}
	w.files.bad("a snapshot failed: %s: %s", why.Kind, why.Message)
}

// goal returns the files and the conversation that a checkpoint must have. The hash of the
// files is the one that the turn printed if the checkpoint is that of a turn, the one that the client recorded if
// it was acknowledged to the client, else any hash of that time, or none if a command was changing the files then.
func (w *worker) goal(cp holdfast.Checkpoint, taken time.Time) goal {
	f := w.files
	g := goal{id: cp.ID, turn: cp.Turn}
	if cp.ID == holdfast.CheckpointID(cp.Turn) {
		g.tree = f.printed[cp.Turn]
		return g
	}
	if i := slices.IndexFunc(f.acked, func(a goal) bool { return a.id == cp.ID }); i >= 0 {
		g.tree = f.acked[i].tree
		return g
	}
	trees := map[string]bool{}
	for i, s := range f.spans {
		ended := i+1 < len(f.spans) && f.spans[i+1].from.Before(cp.CreatedAt.Add(-clockStep))
		if ended || s.from.After(taken.Add(clockStep)) {
			continue
		}
		if s.any {
			return g
		}
		for _, t := range s.trees {
			trees[t] = true
		}
	}
	g.among = trees
	return g
}

// clockStep is the tolerance when a time of the client is compared with one of the server, which is rounded to 1 ms.
const clockStep = 2 * time.Millisecond

// strays starts and stops the server once more, then adds what is wrong with its snapshot store to the leftovers.
func (h *harness) strays(ctx context.Context) error {
	if err := h.start(ctx); err != nil {
		return err
	}
	srv, _ := h.current()
	h.terminate(srv)
	found, err := h.cfg.Strays(ctx, h.server.Data)
	h.result.Leftovers = append(h.result.Leftovers, found...)
	return err
}
