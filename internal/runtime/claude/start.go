package claude

import (
	"context"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// facts are what the start of an agent is planned from. Gathering them changes
// nothing.
type facts struct {
	turn holdfast.TurnID
	box  *sandbox.Box
	// states are the session's agents of all runtimes; current is this runtime's.
	states  []holdfast.AgentState
	current *holdfast.AgentState
	// completed is how many turns of the session have completed, newest the newest
	// log entry before this turn's message.
	completed, newest int64
	// refused says why the CLI did not go on from what it was given, in this start.
	refused string
	// found is what is known of the transcript that current left.
	found transcriptFacts
}

// plan says how an agent is started. The zero plan is illegal.
type plan struct {
	tier holdfast.Tier
	// state is the agent that will run; its generation is new or current's.
	state holdfast.AgentState
	// changed are other states that change with the start, drafts what is recorded
	// of that; both are committed before the agent is started.
	changed []holdfast.AgentState
	drafts  []journal.Draft
	// resume is the transcript to resume, an absolute path in the box; without one
	// the agent begins a new session under state.AgentID.
	resume string
	// aside are files of the box that are moved; rewrite: the transcripts are written again.
	aside   []wire.RenameRequest
	rewrite bool
	// preface goes in front of the first prompt that the agent gets.
	preface string
	// turns of the completed ones are loaded; truncated and reason are for the receipt.
	turns     int64
	truncated bool
	reason    string
}

// Start implements resident.Dialect: it plans the start by the best tier there is.
func (x *run) Start(ctx context.Context) (resident.Start, error) {
	r, t := x.r, x.turn
	prog, err := r.cfg.Program()
	if err != nil {
		return resident.Start{}, err
	}
	model, err := modelOf(x.t.Session.Model)
	if err != nil {
		return resident.Start{}, err
	}
	states, err := x.host.AgentStates(ctx)
	if err != nil {
		return resident.Start{}, err
	}
	x.facts = facts{turn: x.t.ID, box: t.Box, states: states, refused: x.refused}
	if x.facts, err = r.gather(ctx, x.host, x.facts); err != nil {
		return resident.Start{}, err
	}
	id, err := holdfast.NewUUID(r.cfg.Now(), r.cfg.Rand)
	if err != nil {
		return resident.Start{}, err
	}
	p := planStart(x.facts, id)
	for _, w := range t.Account.Warnings {
		p.preface += "<system-reminder>" + w + "</system-reminder>\n\n"
	}
	if x.warming && p.preface != "" {
		// The history goes with a prompt, and is in memory only.
		return resident.Start{}, errNoWarm
	}
	// A resumed transcript holds the messages that the CLI got before it was parked.
	x.mem.Parked = x.mem.Parked && p.resume != ""
	x.restarted()
	x.mem.Starts++
	x.mem.Model, x.mem.Prefaced, x.mem.Known = model, p.preface != "", p.turns
	x.plan, x.speech.asm = &p, assembler{}
	p.state.Version, p.state.Turns = prog.Version, p.turns
	// The log names the files before they are put aside.
	for _, s := range p.changed {
		t.Recorder.Other(s)
	}
	for _, d := range p.drafts {
		t.Recorder.Add(d.Type, d.Data)
	}
	prepare := func(ctx context.Context, _ holdfast.CallID) (wire.ExecRequest, error) {
		if err := r.execute(ctx, x.host, x.facts, &p); err != nil {
			return wire.ExecRequest{}, err
		}
		shown, err := brought(ctx, t, x.t.Folder, len(x.facts.states) == 0)
		argv := append(append(slices.Clone(prog.Argv), cli.Options(model, p.resume, p.state.AgentID)...), shown...)
		return wire.ExecRequest{Argv: argv, Env: append(slices.Clone(prog.Env), cli.Environ(r.cfg.Retries)...), Stdin: true, Lines: true}, err
	}
	return resident.Start{State: p.state, Hello: x.hello(), HelloRef: refHello, Prepare: prepare}, nil
}

// receipt records how the agent of this turn was started, or that it is the same process
// as before (I-31).
func (x *run) receipt(tier holdfast.Tier) {
	ev := holdfast.AgentStarted{Tier: tier, Turns: x.mem.Known, Of: x.mem.Known}
	if p := x.plan; p != nil && tier != holdfast.TierLive {
		ev.Turns, ev.Of, ev.Truncated, ev.Reason = p.turns, x.facts.completed, p.truncated, p.reason
	}
	x.turn.Receipt(ev)
}

// gather adds to the facts what the log and the box say.
func (r *Runtime) gather(ctx context.Context, host runtime.Host, f facts) (facts, error) {
	f.current = resident.Current(f.states, Name)
	err := host.Conversation(ctx, func(c *conversation.Conversation) error {
		f.completed = c.Completed
		if f.turn != "" && f.turn == c.Turn.ID {
			f.newest = c.Turn.Message - 1
		}
		for i := len(c.Items) - 1; i >= 0 && f.turn == "" && f.newest == 0; i-- {
			if e, ok := c.Items[i].(*conversation.Ended); ok {
				f.newest = e.Seq
			}
		}
		return nil
	})
	if err != nil {
		return f, err
	}
	f.found, err = r.inspect(ctx, host, f)
	return f, err
}

// planStart decides how to start, out of the facts alone.
func planStart(f facts, newID string) plan {
	if f.current == nil {
		return planTold(f, newID, "the session has no agent of this runtime yet")
	}
	return planRestore(f, newID)
}

// execute makes the box ready for a plan that is in the log, so that starting the
// agent is all that is left to do.
func (r *Runtime) execute(ctx context.Context, host runtime.Host, f facts, p *plan) error {
	if err := r.restore(ctx, host, f, p); err != nil {
		return err
	}
	return f.box.Listen(ctx, wire.ListenRequest{Name: "model", Network: "unix", Address: cli.ModelSocket})
}
