package acp

import (
	"encoding/json"
	"fmt"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// greeter leads a process from its start to where it takes prompts.
type greeter struct {
	runtime string
	session holdfast.SessionID
	profile *Profile
	agent   *agent
	// states are the session's agents of all runtimes.
	states func() []holdfast.AgentState
	// user: the newest update was a part of a message of the user.
	user bool
}

// hello makes the first request.
func (g *greeter) hello() []byte {
	g.agent.data.Phase, g.agent.data.Next = phaseHello, 1
	return g.agent.ask(acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber, ClientInfo: &acp.Implementation{Name: "holdfast", Version: "1"},
	})
}

// answered takes the answer to the newest request, and returns the next one: none when the
// agent takes prompts.
func (g *greeter) answered(m *message) ([]byte, error) {
	switch g.agent.data.Phase {
	case phaseHello:
		return g.introduced(m)
	case phaseAuth:
		// An agent that will not be authenticated says so when it is opened.
		return g.open(), nil
	}
	return g.opened(m)
}

// update counts what an agent tells of a session that it loads.
func (g *greeter) update(params json.RawMessage) {
	var u update
	if json.Unmarshal(params, &u) != nil {
		return
	}
	isUser := u.Update.Kind == "user_message_chunk"
	if d := &g.agent.data; isUser && (!g.user || u.Update.MessageID != d.Last) {
		d.Heard++
		d.Last = u.Update.MessageID
	}
	g.user = isUser
}

func (g *greeter) introduced(m *message) ([]byte, error) {
	var in introduced
	if m.Error != nil || json.Unmarshal(m.Result, &in) != nil || in.Version != acp.ProtocolVersionNumber {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s does not speak version %d of the protocol: %s",
			holdfast.Quote(g.profile.Name), acp.ProtocolVersionNumber, holdfast.Quote(string(m.Result))).
			WithHint("%s", g.profile.hint())
	}
	g.agent.data.Loads = in.Capabilities.Load
	if in.Agent.Version != "" {
		g.agent.rec.State.Version = resident.Clip(in.Agent.Version, 64)
	}
	if auth := g.profile.Auth; auth != "" {
		g.agent.data.Phase = phaseAuth
		return g.agent.ask(acp.AgentMethodAuthenticate, acp.AuthenticateRequest{MethodId: auth}), nil
	}
	return g.open(), nil
}

// open asks for the agent's session.
func (g *greeter) open() []byte {
	d := &g.agent.data
	d.Phase, d.Heard, d.Last, g.user = phaseOpen, 0, "", false
	meta := g.profile.Meta
	if d.Loading {
		return g.agent.ask(acp.AgentMethodSessionLoad, acp.LoadSessionRequest{
			Meta: meta, Cwd: boxWorkspace, McpServers: []acp.McpServer{}, SessionId: acp.SessionId(g.agent.rec.State.AgentID),
		})
	}
	return g.agent.ask(acp.AgentMethodSessionNew, acp.NewSessionRequest{Meta: meta, Cwd: boxWorkspace, McpServers: []acp.McpServer{}})
}

// opened takes in the agent's session. A session that was loaded has to be complete: an
// agent that says it succeeded may have lost half of it (ADR 0029).
func (g *greeter) opened(m *message) ([]byte, error) {
	d := &g.agent.data
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
			g.agent.quarantine(g.runtime, g.states(), lost)
			return g.open(), nil
		}
		if d.Heard < d.Most && d.Unsettled != nil {
			g.agent.rec.State.Upto = *d.Unsettled
		}
		d.Prompts, d.Most, d.Unsettled = d.Heard, d.Heard, nil
	} else {
		if m.Error != nil || o.Session == "" || len(o.Session) > idBytes {
			said := "it names none"
			if m.Error != nil {
				said = m.Error.Message
			}
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s opens no session: %s", holdfast.Quote(g.profile.Name), holdfast.Quote(resident.Clip(said, 1000))).
				WithHint("holdfast session events %s", g.session)
		}
		g.agent.rec.State.AgentID = o.Session
	}
	g.agent.ready(&o)
	return nil, nil
}
