package acp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// The box as agents see it; it is the same everywhere.
const (
	boxHome      = "/home/agent"
	boxWorkspace = "/workspace"
)

// connect gets an agent that takes prompts: the process that runs, or one that loads
// what it kept, or a new one. again says that it was lost on the way.
func (x *run) connect() (again bool, err error) {
	live, reason, err := x.reattach()
	if err != nil {
		return false, err
	}
	if !live {
		if x.a != nil {
			if err := x.settleLost(reason); err != nil {
				return false, err
			}
		}
		if err := x.launch(reason); err != nil {
			return false, err
		}
	}
	return x.handshake()
}

// reattach looks for the process of the current state. reason says why there is
// none.
func (x *run) reattach() (live bool, reason string, err error) {
	switch {
	case x.a == nil:
		return false, "the session has no agent of this runtime yet", nil
	case x.a.state.Call == "":
		return false, "the agent does not run", nil
	case x.a.state.Boot != x.box.Boot():
		return false, "the box was started anew", nil
	case x.a.data.Model != x.t.Session.Model:
		return false, "the model is another one", x.kill("the model is another one")
	case x.a.data.Prompt != nil && x.a.data.Prompt.Turn != x.t.ID:
		// A turn that ended without its prompt's end.
		return false, "a prompt of another turn was under way", x.kill("a prompt of another turn was under way")
	}
	if x.a.data.Prompt == nil {
		// With nothing under way there is nothing to hear from one that has ended.
		if running, err := x.runs(); err != nil || !running {
			return false, "the agent has ended", err
		}
	}
	x.at = x.a.state.Taken
	x.c = attach(x.late, x.box, x.a.state.Call, wire.ExecRequest{}, x.at)
	select {
	case s := <-x.c.began:
		return true, "", x.resend(s.StdinTaken)
	case <-x.c.done:
	case <-x.ctx.Done():
		return false, "", context.Cause(x.ctx)
	}
	select {
	case s := <-x.c.began:
		// It has ended since, and said something before.
		return true, "", x.resend(s.StdinTaken)
	default:
	}
	why, broke := x.c.why(), x.pipeBroke()
	x.letGo()
	if broke {
		return false, "", holdfast.Errorf(holdfast.KindUnavailable, op, "the pipe to the box broke: %s", why)
	}
	x.host.Release(x.box, x.a.state.Call)
	return false, "the agent has ended: " + why, nil
}

// runs reports that the process of the current state runs.
func (x *run) runs() (bool, error) {
	calls, err := x.box.Calls(x.ctx)
	if err != nil {
		return false, err
	}
	for _, c := range calls {
		if c.Call == x.a.state.Call {
			if c.Status == wire.CallFinished {
				x.host.Release(x.box, c.Call)
			}
			return c.Status == wire.CallRunning, nil
		}
	}
	return false, nil
}

// resend sends what boxd has not taken: a server died with it.
func (x *run) resend(taken int64) error {
	d := &x.a.data
	lost := d.Out
	d.In, d.Out = taken, nil
	for len(lost) > 0 && lost[0].End <= taken {
		lost = lost[1:]
	}
	if len(lost) == 0 {
		return nil
	}
	var lines []json.RawMessage
	for _, s := range lost {
		line := s.Line
		if s.Prompt {
			var err error
			if line, _, err = x.promptLine(); err != nil {
				return err
			}
		}
		x.a.send(line, s.Prompt)
		lines = append(lines, line)
	}
	if err := x.keep(x.ctx); err != nil {
		return err
	}
	return x.c.send(lines...)
}

// kill ends the agent's process, if it runs.
func (x *run) kill(string) error {
	call := x.a.state.Call
	if x.c != nil {
		x.letGo()
	}
	err := x.box.Kill(x.late, wire.KillRequest{Call: call, GraceMS: 1000})
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		err = nil
	}
	if err == nil {
		x.host.Release(x.box, call)
	}
	return err
}

// launch starts a process. It loads what the agent kept, where there is something.
func (x *run) launch(reason string) error {
	prog, err := x.r.cfg.Profile.Find()
	if err != nil {
		return err
	}
	call, err := x.host.NewCall()
	if err != nil {
		return err
	}
	load, missing, err := x.kept()
	if err != nil {
		return err
	}
	if !load {
		if x.a != nil && x.a.state.AgentID != unnamed {
			reason = missing
		}
		x.replace(holdfast.HealthLeft)
	}
	x.at = 0
	x.a.begins(call, x.box.ID(), x.box.Boot(), x.t.Session.Model)
	x.a.data.Loading, x.a.data.Reason, x.a.data.Tier = load, reason, holdfast.TierInjected
	if load {
		x.a.data.Tier = holdfast.TierOwn
	}
	x.a.state.Version = prog.Version
	hello, err := x.a.ask(acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber, ClientInfo: &acp.Implementation{Name: "holdfast", Version: "1"},
	})
	if err != nil {
		return err
	}
	x.a.send(hello, false)
	if err := x.box.Listen(x.ctx, wire.ListenRequest{Name: ModelListener, Network: "tcp", Address: modelAddress}); err != nil {
		return err
	}
	if err := x.keep(x.ctx); err != nil {
		return err
	}
	x.host.At("agent-intent")
	x.c = attach(x.late, x.box, call, wire.ExecRequest{
		Argv: append(append([]string{}, prog.Argv...), x.r.cfg.Profile.Args...),
		Env:  x.r.cfg.Profile.environ(prog, x.t.Session.Model, call), Cwd: boxWorkspace, Stdin: true, Lines: true,
	}, 0)
	err = x.c.send(hello)
	x.host.At("agent-started")
	return err
}

// kept reports whether the agent can load what it knows, or why not.
func (x *run) kept() (load bool, missing string, err error) {
	p := &x.r.cfg.Profile
	switch {
	case x.a == nil || x.a.state.AgentID == unnamed:
		return false, "", nil
	case p.State == "" || !x.a.data.Loads:
		return false, "the agent cannot load a session", nil
	}
	_, err = x.box.Stat(x.ctx, wire.PathRequest{Path: path.Join(boxHome, p.State)})
	if holdfast.IsKind(err, holdfast.KindNotFound) {
		return false, "what the agent kept is gone", nil
	}
	return err == nil, "", err
}

// unnamed is an agent that has not said yet what it calls its session.
const unnamed = "unnamed"

// replace makes a new agent in the place of the current one, whose health becomes
// another.
func (x *run) replace(health holdfast.AgentHealth) {
	generation := int64(1)
	for _, s := range x.states {
		generation = max(generation, s.Generation+1)
	}
	fresh := &agent{state: holdfast.AgentState{Generation: generation, Runtime: x.r.Name(), AgentID: unnamed, Health: holdfast.HealthCurrent}}
	if x.a != nil {
		old := *x.a
		old.stopped()
		old.state.Health = health
		old.data.Prompt = nil
		// It is JSON that was read before.
		row, _ := old.row()
		x.others = append(x.others, row)
		fresh.data.Tries = old.data.Tries
	}
	x.a = fresh
}

// handshake reads until the agent takes prompts.
func (x *run) handshake() (again bool, err error) {
	timer := time.NewTimer(x.r.cfg.Handshake)
	defer timer.Stop()
	for x.a.data.Phase != phaseReady {
		select {
		case l, ok := <-x.c.lines:
			if !ok {
				return x.failedStart(x.c.why())
			}
			x.at = l.next
			err := x.greet(l.raw)
			var no *unfit
			if errors.As(err, &no) {
				return false, errors.Join(x.giveUp(), no.error)
			}
			if err != nil {
				return false, err
			}
		case <-timer.C:
			return x.failedStart(fmt.Sprintf("it did not answer within %s", x.r.cfg.Handshake))
		case <-x.ctx.Done():
			return false, context.Cause(x.ctx)
		}
	}
	return false, nil
}

// failedStart is an agent that never came to take prompts. One that was to load what
// it kept is given up for a new one.
func (x *run) failedStart(why string) (again bool, err error) {
	if holdfast.IsKind(x.c.err, holdfast.KindUnavailable) && x.pipeBroke() {
		return true, nil
	}
	if x.a.data.Loading {
		if err := x.kill(why); err != nil {
			return false, err
		}
		x.at = 0
		x.quarantine("it did not start with what it kept: " + why)
		x.a.stopped()
		return true, x.keep(x.ctx)
	}
	if err := x.giveUp(); err != nil {
		return false, err
	}
	return false, holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s did not start: %s", holdfast.Quote(x.r.cfg.Profile.Name), why).
		WithHint("%s", x.r.cfg.Profile.hint())
}

// unfit is why an agent that answers cannot be used.
type unfit struct{ error }

func (u *unfit) Unwrap() error { return u.error }

// giveUp ends a process that is of no use.
func (x *run) giveUp() error {
	if err := x.kill("it is of no use"); err != nil {
		return err
	}
	x.at = 0
	x.a.stopped()
	return x.keep(x.ctx)
}

// pipeBroke reports that the pipe to the box ended, not the process.
func (x *run) pipeBroke() bool {
	select {
	case <-x.box.Done():
		return true
	default:
		return false
	}
}

// quarantine puts what the agent kept aside: the next one begins anew.
func (x *run) quarantine(reason string) {
	old := x.a.state
	call, box, boot, taken := old.Call, old.Box, old.Boot, old.Taken
	d := x.a.data
	x.replace(holdfast.HealthQuarantined)
	s := &x.a.state
	s.Call, s.Box, s.Boot, s.Taken, s.Version = call, box, boot, taken, old.Version
	n := &x.a.data
	n.Phase, n.Next, n.In, n.Out, n.Loads, n.Model = d.Phase, d.Next, d.In, d.Out, d.Loads, d.Model
	n.Reason, n.Tier = reason, holdfast.TierInjected
	x.owed = append(x.owed, draft(holdfast.EventAgentQuarantined, holdfast.AgentQuarantined{
		Generation: old.Generation, Runtime: x.r.Name(), AgentID: old.AgentID, Reason: reason,
	}))
}

// greet handles a line before the agent takes prompts.
func (x *run) greet(raw []byte) error {
	m, err := parse(raw)
	if err != nil {
		return x.unreadable(raw)
	}
	if m.Method != "" {
		return x.aside_(&m)
	}
	if id, ok := m.answers(); !ok || id != x.a.data.Asked {
		return nil
	}
	x.a.data.Out = nil
	var next json.RawMessage
	switch x.a.data.Phase {
	case phaseHello:
		next, err = x.introduced(&m)
	case phaseAuth:
		// An agent that will not be authenticated says so when it is opened.
		next, err = x.openSession()
	case phaseOpen:
		next, err = x.opened(&m)
	}
	if err != nil {
		return err
	}
	return x.tell(next)
}

// tell records a line for the agent, if there is one, and sends it.
func (x *run) tell(line json.RawMessage, drafts ...journal.Draft) error {
	if line != nil {
		x.a.send(line, false)
	}
	if err := x.keep(x.ctx, drafts...); err != nil {
		return err
	}
	if line == nil {
		return nil
	}
	return x.c.send(line)
}

// aside_ handles what an agent says of its own accord before it takes prompts: what
// it tells of a session that it loads is counted, what it asks is refused.
func (x *run) aside_(m *message) error {
	if m.ID != nil {
		return x.serve(m)
	}
	var u update
	if m.Method != acp.ClientMethodSessionUpdate || json.Unmarshal(m.Params, &u) != nil {
		return nil
	}
	isUser := u.Update.Kind == "user_message_chunk"
	if d := &x.a.data; isUser && (!x.user || u.Update.MessageID != d.Last) {
		d.Heard++
		d.Last = u.Update.MessageID
	}
	x.user = isUser
	return x.progress()
}

func (x *run) introduced(m *message) (json.RawMessage, error) {
	var in introduced
	if m.Error != nil || json.Unmarshal(m.Result, &in) != nil || in.Version != acp.ProtocolVersionNumber {
		return nil, &unfit{holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s does not speak version %d of the protocol: %s",
			holdfast.Quote(x.r.cfg.Profile.Name), acp.ProtocolVersionNumber, holdfast.Quote(string(m.Result))).
			WithHint("%s", x.r.cfg.Profile.hint())}
	}
	x.a.data.Loads = in.Capabilities.Load
	if in.Agent.Version != "" {
		x.a.state.Version = cut(in.Agent.Version, 64)
	}
	if auth := x.r.cfg.Profile.Auth; auth != "" {
		x.a.data.Phase = phaseAuth
		return x.a.ask(acp.AgentMethodAuthenticate, acp.AuthenticateRequest{MethodId: auth})
	}
	return x.openSession()
}

// openSession asks for the agent's session.
func (x *run) openSession() (json.RawMessage, error) {
	d := &x.a.data
	d.Phase, d.Heard, d.Last, x.user = phaseOpen, 0, "", false
	meta := x.r.cfg.Profile.Meta
	if d.Loading {
		return x.a.ask(acp.AgentMethodSessionLoad, acp.LoadSessionRequest{
			Meta: meta, Cwd: boxWorkspace, McpServers: []acp.McpServer{}, SessionId: acp.SessionId(x.a.state.AgentID),
		})
	}
	return x.a.ask(acp.AgentMethodSessionNew, acp.NewSessionRequest{Meta: meta, Cwd: boxWorkspace, McpServers: []acp.McpServer{}})
}

// opened takes the agent's session in. What it loaded has to be all that it knew: an
// agent that says it succeeded may have lost the half of it.
func (x *run) opened(m *message) (json.RawMessage, error) {
	d := &x.a.data
	var o opened
	if m.Error == nil && json.Unmarshal(m.Result, &o) != nil {
		m.Error = &rpcError{Message: "its answer cannot be read"}
	}
	if d.Loading {
		lost := ""
		switch {
		case m.Error != nil:
			lost = "it cannot load what it kept: " + holdfast.Quote(m.Error.Message)
		case d.Heard < d.Prompts:
			lost = fmt.Sprintf("it loaded %d of %d messages", d.Heard, d.Prompts)
		}
		if lost != "" {
			x.quarantine(lost)
			return x.openSession()
		}
		if d.Heard < d.Most && d.Unsettled != nil {
			x.a.state.Upto = *d.Unsettled
		}
		d.Prompts, d.Most, d.Unsettled = d.Heard, d.Heard, nil
	} else {
		if m.Error != nil || o.Session == "" || len(o.Session) > idBytes {
			said := "it names none"
			if m.Error != nil {
				said = m.Error.Message
			}
			return nil, &unfit{holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s opens no session: %s", holdfast.Quote(x.r.cfg.Profile.Name), holdfast.Quote(said)).
				WithHint("holdfast session events %s", x.t.Session.ID)}
		}
		x.a.state.AgentID = o.Session
	}
	d.Phase, d.Loading, d.Mode, d.Modes = phaseReady, false, o.Modes.Current, nil
	for _, mode := range o.Modes.Available {
		if len(d.Modes) < 20 && len(mode.ID) <= 64 {
			d.Modes = append(d.Modes, mode.ID)
		}
	}
	return nil, nil
}
