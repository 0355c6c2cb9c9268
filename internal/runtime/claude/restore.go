package claude

import (
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/retell"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// quarantine returns the directory for transcripts that were found broken; the CLI does not look there.
func quarantine(at runtime.Place) string { return cli.Config(at.Home) + "/quarantine" }

// transcripts returns the directory of the CLI's transcripts.
func (f facts) transcripts() string { return cli.Transcripts(f.at.Home, f.at.Workspace) }

// transcriptFacts is what is known of the transcripts of the session's previous agent, and the history that
// the next agent must receive as text.
type transcriptFacts struct {
	// began is true if the previous agent got any prompt; otherwise there is nothing to continue.
	began bool
	// turns is how many completed turns the previous agent knows, upto the number of the newest event that it knows.
	turns, upto int64
	// broken are the agent's transcripts that cannot be resumed; missing is true if one is not in the box.
	broken  []brokenFile
	missing bool
	// lost says why the agent's conversation cannot be restored from the log; nil if it can.
	lost error
	// asides is the number of events agent.quarantined in the session's log.
	asides int
	// missed is the history after the event upto, for an agent that continues. whole is the complete history,
	// for a new agent. Only one of the two is set.
	missed, whole retell.Told
}

type brokenFile struct {
	path, reason string
}

// intact reports whether the box has all recorded transcripts, undamaged.
func (x *transcriptFacts) intact() bool { return !x.missing && len(x.broken) == 0 }

// why describes what is wrong with the transcripts, "" if nothing is.
func (x *transcriptFacts) why() string {
	switch {
	case x.missing:
		return "the transcript in the box is gone"
	case len(x.broken) > 0:
		return "the transcript in the box is damaged: " + x.broken[0].reason
	}
	return ""
}

// inspect examines the transcripts of the current agent, in the log and in the box.
func (r *Runtime) inspect(ctx context.Context, host runtime.Host, f facts) (transcriptFacts, error) {
	var x transcriptFacts
	var rec transcript.Record
	var err error
	if f.current != nil {
		if err = x.readLog(ctx, host, f, &rec); err != nil {
			return x, err
		}
		if x.began && !f.moved {
			if err := x.readBox(ctx, f, &rec); err != nil {
				return x, err
			}
		}
	}
	// An agent that continues receives the turns that it missed, a new one all turns.
	if x.goesOn(f) {
		x.missed, err = tell(ctx, host, x.upto, f.newest)
	} else {
		x.whole, err = tell(ctx, host, 0, f.newest)
	}
	return x, err
}

// goesOn reports whether the previous agent can continue, with its own transcript or one made from the log.
func (x *transcriptFacts) goesOn(f facts) bool {
	return x.began && !f.moved && f.refused == "" && (x.intact() || x.lost == nil)
}

// tell returns the history after the event after, up to the event upto, as text for the agent.
func tell(ctx context.Context, host runtime.Host, after, upto int64) (retell.Told, error) {
	if upto <= after {
		return retell.Told{}, nil
	}
	return retell.Session(ctx, host, retell.Options{After: after, Before: upto + 1})
}

// readLog finds out from the log what the current agent knows: everything up to the newest
// prompt in its mirrored transcript, whether or not that turn completed.
func (x *transcriptFacts) readLog(ctx context.Context, host runtime.Host, f facts, rec *transcript.Record) error {
	var mem memory
	if err := resident.Decode(f.current, op, &mem); err != nil {
		return err
	}
	// ended maps each turn to the number of the event that ended it. given is the newest turn in which the
	// agent got a prompt.
	ended := map[holdfast.TurnID]int64{}
	var given holdfast.TurnID
	// cut is the number of the first notice of a power cut after which the agent got no prompt, else 0.
	var told, cut int64
	for ev, err := range host.Log(ctx, 0) {
		if err != nil {
			return err
		}
		switch ev.Type {
		case holdfast.EventTurnCompleted:
			rec.Completed()
			if ev.Turn == mem.Turn {
				rec.Answered(mem.Leaf)
			}
			ended[ev.Turn] = ev.Seq
		case holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
			ended[ev.Turn] = ev.Seq
		case holdfast.EventAgentStarted:
			err = resident.Fold(ev, func(s *holdfast.AgentStarted) {
				if s.Generation == f.current.Generation {
					told = s.Turns
				}
			})
		case holdfast.EventAgentQuarantined:
			x.asides++
		case holdfast.EventNotice:
			err = resident.Fold(ev, func(n *holdfast.Notice) {
				if n.OtherFiles() && cut == 0 {
					cut = ev.Seq
				}
			})
		case holdfast.EventAgentMirrored:
			err = resident.Fold(ev, func(m *holdfast.AgentMirrored) {
				if m.Generation != f.current.Generation {
					return
				}
				if rec.Add(*m); rec.Prompted() {
					given, x.began, cut = ev.Turn, true, 0
				}
			})
		}
		if err != nil {
			return err
		}
	}
	x.lost, x.turns = rec.Whole(), f.current.Turns
	if x.began {
		if x.turns == 0 {
			x.turns = told
		}
		if given == mem.Turn {
			x.turns = max(x.turns, mem.Known)
		}
	}
	switch {
	case x.began && given == f.turn:
		x.upto = f.newest
	case x.began && cut > 0:
		// The turn of the agent's newest prompt may have ended before the power cut of which the agent must be told.
		x.upto = min(ended[given], cut-1)
	case x.began:
		x.upto = ended[given]
	case x.turns > 0:
		x.began, x.upto = true, f.current.Upto
	}
	return nil
}

// readBox compares the files in the box with the record. It returns an error for a failure that
// shows nothing about the files, such as a broken connection.
func (x *transcriptFacts) readBox(ctx context.Context, f facts, rec *transcript.Record) error {
	names := rec.Names()
	if len(names) == 0 {
		names = []string{transcript.Main}
	}
	for _, name := range names {
		file := transcript.Path(f.transcripts(), f.current.AgentID, name)
		check := rec.Check(name)
		_, err := f.box.Read(ctx, wire.ReadRequest{Path: file, Limit: transcript.MostBytes + 1}, check)
		switch {
		case holdfast.IsKind(err, holdfast.KindNotFound):
			x.missing = true
			continue
		case holdfast.IsKind(err, holdfast.KindUnavailable), ctx.Err() != nil:
			return err
		case err == nil:
			err = check.Verdict()
		}
		if err != nil {
			x.broken = append(x.broken, brokenFile{file, strings.TrimPrefix(err.Error(), "transcript: ")})
		}
	}
	return nil
}

// planRestore plans a start with the best resume tier (resume method), for a session that has an agent of this runtime.
func planRestore(f facts, newID string) plan {
	x := &f.found
	switch {
	case !x.began:
		return planTold(f, newID, "the agent before it was never given a prompt")
	case f.moved:
		return planTold(f, newID, resident.Moved)
	case f.refused != "":
		return planTold(f, newID, "the agent refused its transcript: "+f.refused)
	case !x.goesOn(f):
		return planTold(f, newID, x.why()+", and it cannot be restored from the log: "+strings.TrimPrefix(x.lost.Error(), "transcript: "))
	}
	p := plan{
		state: *f.current, resume: transcript.Path(f.transcripts(), f.current.AgentID, transcript.Main),
		preface: x.missed.Prompt(""), turns: min(x.turns+x.missed.Turns, f.completed), truncated: x.missed.Truncated,
	}
	if x.intact() {
		p.tier, p.reason = holdfast.TierOwn, "no process of the agent is left"
		return p
	}
	p.tier, p.reason, p.rewrite = holdfast.TierRebuilt, x.why(), true
	p.putAside(f, x.why())
	return p
}

// planTold plans a new agent that gets the history as text; without a history, its tier is
// fresh. If the previous agent got a prompt and its paths are still right, its unusable transcripts go to quarantine.
func planTold(f facts, newID, reason string) plan {
	told := f.found.whole
	state := holdfast.AgentState{Generation: int64(len(f.states)) + 1, Runtime: Name, AgentID: newID, Health: holdfast.HealthCurrent}
	p := plan{
		tier: holdfast.TierInjected, state: state, preface: told.Prompt(""),
		turns: told.Turns, truncated: told.Truncated, reason: reason,
	}
	if f.current != nil {
		old := *f.current
		old.Call, old.Box, old.Boot, old.Health = "", "", "", holdfast.HealthLeft
		if f.found.began && !f.moved {
			old.Health = holdfast.HealthQuarantined
			p.putAside(f, reason)
		}
		p.changed = append(p.changed, old)
	}
	if told.Block == "" {
		p.tier, p.reason = holdfast.TierFresh, ""
	}
	return p
}

// putAside plans to move transcripts that cannot be resumed to a new directory below quarantine, and to
// record the move as an event.
func (p *plan) putAside(f facts, reason string) {
	to := fmt.Sprintf("%s/%d-%d", quarantine(f.at), f.current.Generation, f.found.asides+1)
	files := f.found.broken
	if len(files) == 0 && !f.found.missing {
		// The main transcript is as the log recorded it, but the agent refuses it.
		files = []brokenFile{{path: transcript.Path(f.transcripts(), f.current.AgentID, transcript.Main)}}
	}
	kept := to
	if len(files) == 0 {
		kept = ""
	}
	for _, b := range files {
		p.aside = append(p.aside, wire.RenameRequest{From: b.path, To: path.Join(to, path.Base(b.path))})
	}
	p.drafts = append(p.drafts, journal.Draft{Type: holdfast.EventAgentQuarantined, Turn: f.turn, Data: holdfast.AgentQuarantined{
		Generation: f.current.Generation, Runtime: Name, AgentID: f.current.AgentID, Reason: reason, Kept: kept,
	}})
}

// restore carries out the plan in the box: it moves files to quarantine and writes transcripts.
// If it is killed anywhere, the next start finds broken or missing files and plans the same
// again.
func (r *Runtime) restore(ctx context.Context, host runtime.Host, f facts, p *plan) error {
	for _, move := range p.aside {
		if err := mutate(host, f.box, func(c sandbox.Call) error { return f.box.Mkdir(ctx, c, wire.MkdirRequest{Path: path.Dir(move.To)}) }); err != nil {
			return err
		}
		err := mutate(host, f.box, func(c sandbox.Call) error { return f.box.Rename(ctx, c, move) })
		if err != nil && !holdfast.IsKind(err, holdfast.KindNotFound) {
			return err
		}
	}
	if !p.rewrite {
		return nil
	}
	var w transcript.Writer
	for ev, err := range host.Log(ctx, 0) {
		if err != nil {
			return err
		}
		if ev.Type != holdfast.EventAgentMirrored {
			continue
		}
		var m holdfast.AgentMirrored
		if err := ev.Decode(&m); err != nil {
			return err
		}
		if m.Generation != p.state.Generation {
			continue
		}
		if err := w.Add(m); err != nil {
			return err
		}
	}
	for _, file := range w.Files() {
		req := wire.WriteRequest{Path: transcript.Path(f.transcripts(), p.state.AgentID, file.Name), Mode: 0o600, Parents: true}
		err := mutate(host, f.box, func(c sandbox.Call) error {
			_, err := f.box.Write(ctx, c, req, file.Data)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// mutate makes an idempotent change in the box under a new call id.
func mutate(host runtime.Host, box *sandbox.Box, do func(sandbox.Call) error) error {
	id, err := host.NewCall()
	if err != nil {
		return err
	}
	err = do(sandbox.Call{ID: id})
	host.Release(box, id)
	return err
}
