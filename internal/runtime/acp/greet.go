package acp

import (
	"encoding/json"
	"fmt"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
)

// greeter carries out the handshake with a process, until the agent accepts prompts.
type greeter struct {
	runtime string
	session holdfast.SessionID
	// cwd is the directory in which the agent works.
	cwd     string
	profile *Profile
	agent   *agent
	// states returns the states of the session's agents of all runtimes.
	states func() []holdfast.AgentState
	// user is true if the newest update that the agent sent was a part of a user message.
	user bool
}

// hello returns the first request of the handshake (initialize).
func (g *greeter) hello() []byte {
	g.agent.data.Phase, g.agent.data.Next = phaseHello, 1
	return g.agent.ask(acp.AgentMethodInitialize, acp.InitializeRequest{
		ProtocolVersion: acp.ProtocolVersionNumber, ClientInfo: &acp.Implementation{Name: "holdfast", Version: "1"},
	})
}

// answered handles the agent's answer to the newest request of the handshake and returns the next request, or nil
// once the agent accepts prompts.
func (g *greeter) answered(m *jsonrpc.Message) ([]byte, error) {
	if g.agent.data.Phase == phaseHello {
		return g.introduced(m)
	}
	return g.opened(m)
}

// update counts the user messages that an agent replays while it loads a session.
func (g *greeter) update(params json.RawMessage) {
	var u update
	if json.Unmarshal(params, &u) != nil {
		return
	}
	isUser := u.Update.Kind == "user_message_chunk"
	if r := g.agent.data.Loading; r != nil && isUser && (!g.user || u.Update.MessageID != r.Last) {
		r.Heard++
		r.Last = u.Update.MessageID
	}
	g.user = isUser
}

func (g *greeter) introduced(m *jsonrpc.Message) ([]byte, error) {
	var in introduced
	if m.Error != nil || json.Unmarshal(m.Result, &in) != nil || in.Version != acp.ProtocolVersionNumber {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s does not speak version %d of the Agent Client Protocol: %s",
			holdfast.Quote(g.profile.Name), acp.ProtocolVersionNumber, holdfast.Quote(string(m.Result))).
			WithHint("%s", g.profile.hint())
	}
	g.agent.data.Loads = in.Capabilities.Load
	if in.Agent.Version != "" {
		g.agent.rec.State.Version = clip.Counted(in.Agent.Version, 64)
	}
	return g.open(), nil
}

// open returns the request to open the agent's session: to load it, or to make a new one.
func (g *greeter) open() []byte {
	d := &g.agent.data
	d.Phase, g.user = phaseOpen, false
	meta := g.profile.Meta
	if d.Loading != nil {
		*d.Loading = replay{}
		return g.agent.ask(acp.AgentMethodSessionLoad, acp.LoadSessionRequest{
			Meta: meta, Cwd: g.cwd, McpServers: []acp.McpServer{}, SessionId: acp.SessionId(g.agent.rec.State.AgentID),
		})
	}
	return g.agent.ask(acp.AgentMethodSessionNew, acp.NewSessionRequest{Meta: meta, Cwd: g.cwd, McpServers: []acp.McpServer{}})
}

// opened handles the agent's answer to the request to load or make a session. If the agent loaded a session,
// opened checks that the session has every prompt that the agent has answered: an agent that reports success may have
// lost some (ADR 0029).
func (g *greeter) opened(m *jsonrpc.Message) ([]byte, error) {
	d := &g.agent.data
	var o opened
	if m.Error == nil && json.Unmarshal(m.Result, &o) != nil {
		m.Error = &jsonrpc.Error{Message: "its answer to the request for a session cannot be read"}
	}
	if d.Loading != nil {
		lost, heard := "", d.Loading.Heard
		switch {
		case m.Error != nil:
			lost = "it cannot load its stored session: " + holdfast.Quote(m.Error.Message)
		case heard < d.Prompts:
			lost = fmt.Sprintf("it loaded %d of %d messages", heard, d.Prompts)
		}
		if lost != "" {
			g.agent.quarantine(g.runtime, g.states(), lost)
			return g.open(), nil
		}
		if heard < d.Most && d.Unsettled != nil {
			g.agent.rec.State.Upto = *d.Unsettled
		}
		d.GoOn = d.GoOn && heard >= d.Most
		d.Prompts, d.Most, d.Unsettled = heard, heard, nil
	} else {
		if m.Error != nil || o.Session == "" || len(o.Session) > idBytes {
			said := "its answer has no session id"
			if m.Error != nil {
				said = m.Error.Message
			}
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s did not open a session: %s", holdfast.Quote(g.profile.Name), holdfast.Quote(clip.Counted(said, 1000))).
				WithHint("holdfast session events %s", g.session)
		}
		g.agent.rec.State.AgentID = o.Session
	}
	g.agent.ready(&o)
	return nil, nil
}
