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

// facts are the inputs for planning how to start an agent. Reading them changes nothing.
type facts struct {
	turn holdfast.TurnID
	box  *sandbox.Box
	at   runtime.Place
	// moved is true if current worked with other paths: in a box and now on the host, or the reverse.
	moved bool
	// states are those of the session's agents of all runtimes, current that of this runtime's agent or nil.
	states  []holdfast.AgentState
	current *holdfast.AgentState
	// completed is the number of the session's completed turns, newest the number of the event
	// before this turn's message.
	completed, newest int64
	// refused is why the CLI refused the transcript that it was started with in this run, else "".
	refused string
	// found is what is known of the transcripts of the agent current.
	found transcriptFacts
}

// plan describes how to start an agent. The zero plan is invalid.
type plan struct {
	tier holdfast.Tier
	// state is the state of the agent to start: of current, or of a new agent with a new generation.
	state holdfast.AgentState
	// changed are the states of other agents that the start changes. drafts are the events that record the
	// change. Both are committed before the agent is started.
	changed []holdfast.AgentState
	drafts  []journal.Draft
	// resume is the absolute path in the box of the transcript to resume; if it is empty, the agent
	// begins a new session under state.AgentID.
	resume string
	// aside are the files to move to quarantine; rewrite is true if the transcripts are written from the log.
	aside   []wire.RenameRequest
	rewrite bool
	// preface is text that precedes the first prompt to the agent.
	preface string
	// turns is how many completed turns the agent will know; truncated and reason are for the start's receipt.
	turns     int64
	truncated bool
	reason    string
}

// Start implements resident.Dialect: it plans the start by the best resume tier.
func (x *run) Start(ctx context.Context) (resident.Start, error) {
	r, t := x.r, x.turn
	prog, err := r.cfg.Program(x.t.Session.Trust)
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
	x.facts = facts{turn: x.t.ID, box: t.Box, at: x.t.Place, states: states, refused: x.refused}
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
		// The history must come with a prompt, which Warm does not have, and the CLI has it only in memory.
		return resident.Start{}, errNoWarm
	}
	// Only a resumed transcript contains the messages sent before the turn was parked.
	x.mem.Parked = x.mem.Parked && p.resume != ""
	x.restarted()
	x.mem.Starts++
	x.mem.Model, x.mem.Prefaced, x.mem.Known, x.mem.At = model, p.preface != "", p.turns, x.t.Place.OnHost()
	x.plan, x.speech.asm = &p, assembler{}
	p.state.Version, p.state.Turns = prog.Version, p.turns
	// Record the moves of files before they are carried out.
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
		shown, err := brought(ctx, t, x.t.Place.Agent, x.t.Folder, len(x.facts.states) == 0)
		argv := append(append(slices.Clone(prog.Argv), cli.Options(model, p.resume, p.state.AgentID)...), shown...)
		return wire.ExecRequest{Argv: argv, Env: append(slices.Clone(prog.Env), cli.Environ(x.t.Place.Home, x.t.Place.Sockets)...), Stdin: true, Lines: true}, err
	}
	return resident.Start{State: p.state, Hello: x.hello(), HelloRef: refHello, Prepare: prepare}, nil
}

// receipt records how the agent of this turn was started, or that its process still runs (I-31).
func (x *run) receipt(tier holdfast.Tier) {
	ev := holdfast.AgentStarted{Tier: tier, Turns: x.mem.Known, Of: x.mem.Known}
	if p := x.plan; p != nil && tier != holdfast.TierLive {
		ev.Turns, ev.Of, ev.Truncated, ev.Reason = p.turns, x.facts.completed, p.truncated, p.reason
	}
	x.turn.Receipt(ev)
}

// gather completes the facts from the log and the box.
func (r *Runtime) gather(ctx context.Context, host runtime.Host, f facts) (facts, error) {
	f.current = resident.Current(f.states, Name)
	if f.current != nil {
		var mem memory
		if err := resident.Decode(f.current, op, &mem); err != nil {
			return f, err
		}
		f.moved = mem.At != f.at.OnHost()
	}
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

// planStart plans the start from the facts alone.
func planStart(f facts, newID string) plan {
	if f.current == nil {
		return planTold(f, newID, "the session has no agent of this runtime yet")
	}
	return planRestore(f, newID)
}

// execute prepares the box for a plan that is in the log; afterwards only the process has to be started.
func (r *Runtime) execute(ctx context.Context, host runtime.Host, f facts, p *plan) error {
	if err := r.restore(ctx, host, f, p); err != nil {
		return err
	}
	socket := cli.ModelSocket(f.at.Sockets)
	if mostSocket := 107; len(socket) > mostSocket {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the path of the socket for model requests, %s, has %d bytes, but a socket's path may have at most %d", holdfast.Quote(socket), len(socket), mostSocket).
			WithHint("give the server a data directory with a shorter path: holdfast serve --data DIR")
	}
	_, err := f.box.Listen(ctx, wire.ListenRequest{Name: "model", Network: "unix", Address: socket})
	return err
}
