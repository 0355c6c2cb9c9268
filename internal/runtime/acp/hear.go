package acp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// mostGarbage is how many output lines of an agent in one run may be something else than protocol messages.
const mostGarbage = 50

// unreadable counts a line that is not a protocol message, and fails only after mostGarbage of them: some
// agents also print other lines. Blank lines are not counted.
func (x *run) unreadable(raw []byte) error {
	said := holdfast.Quote(clip.Counted(string(raw), 80))
	if strings.TrimSpace(string(raw)) == "" {
		return nil
	}
	if x.garbage++; x.garbage > mostGarbage {
		return x.r.run.Unreadable(holdfast.Errorf(holdfast.KindUnavailable, op, "the agent wrote %d lines that are not protocol messages, and the last begins with %s", x.garbage, said))
	}
	if x.garbage == 1 {
		x.turn.Recorder.Odd("agent.garbage", "warning", "the agent printed a line that is not a message:  "+said)
	}
	return nil
}

// Hear implements resident.Dialect.
func (x *run) Hear(ctx context.Context, l resident.Line) (resident.Heard, error) {
	m, err := jsonrpc.Parse(l.Text)
	switch {
	case err != nil:
		err = x.unreadable(l.Text)
	case m.ID != "" && m.Method != "":
		err = x.serve(ctx, &m)
	case m.Method != "":
		err = x.update(&m)
	case x.agent.data.Phase != phaseReady:
		err = x.greeted(&m)
	default:
		if p := x.agent.data.Prompt; p != nil && m.Answers(jsonrpc.Number(p.ID)) {
			x.answer = &m
			return resident.Over, nil
		}
		return resident.Commit, nil
	}
	if x.turn.Offset-x.turn.Recorder.State.Taken >= untaken {
		// The agent would stop if the buffer for its output were full. Commit, so that the box can drop output.
		if x.speech.long() {
			x.speech.record("")
		}
		x.turn.Recorder.Touch()
	}
	return resident.Commit, err
}

// greeted handles an answer during the handshake.
func (x *run) greeted(m *jsonrpc.Message) error {
	if !m.Answers(jsonrpc.Number(x.agent.data.Asked)) {
		return nil
	}
	x.turn.Outbox.Read()
	next, err := x.greeter.answered(m)
	if err != nil {
		return err
	}
	if next != nil {
		x.turn.Outbox.Add(next, "")
	}
	x.turn.Ready = x.agent.data.Phase == phaseReady
	x.turn.Recorder.Touch()
	return nil
}

// serve handles a request of the agent. It answers each method that is not supported with an error. The error answer
// is not stored for the next server: it may be lost if this server dies, and no agent depends on it.
func (x *run) serve(ctx context.Context, m *jsonrpc.Message) error {
	if m.Method == acp.ClientMethodSessionRequestPermission {
		return x.calls.asked(ctx, m)
	}
	x.turn.Outbox.Pass(refuse(m.ID, m.Method))
	return nil
}

// update handles a notification of the agent.
func (x *run) update(m *jsonrpc.Message) error {
	if m.Method != acp.ClientMethodSessionUpdate {
		return nil
	}
	if x.agent.data.Phase != phaseReady {
		x.greeter.update(m.Params)
		return nil
	}
	var u update
	if json.Unmarshal(m.Params, &u) != nil {
		x.turn.Recorder.Odd("agent.unreadable", "warning", "the agent sent an update that cannot be read")
		return nil
	}
	if u.Session != x.turn.Recorder.State.AgentID || x.agent.data.Prompt == nil {
		return nil
	}
	switch u.Update.Kind {
	case "agent_message_chunk":
		x.speech.chunk(u.Update.MessageID, u.Update.Content, false)
	case "agent_thought_chunk":
		x.speech.chunk(u.Update.MessageID, u.Update.Content, true)
	case "tool_call", "tool_call_update":
		var outer struct {
			Update json.RawMessage `json:"update"`
		}
		if err := json.Unmarshal(m.Params, &outer); err != nil {
			return nil
		}
		c, ok := toolOf(outer.Update)
		if !ok {
			x.turn.Recorder.Odd("agent.unreadable", "warning", "the agent sent a tool call that cannot be read")
			return nil
		}
		return x.calls.update(c)
	case "plan":
		if plan := planText(u.Update.Entries); plan != "" {
			x.agent.data.Prompt.Produced = true
			x.turn.Recorder.Notice("agent.plan", plan)
		}
	case "user_message_chunk", "available_commands_update", "current_mode_update", "config_option_update", "session_info_update", "usage_update":
		// These updates are not recorded: other messages bring their content into the log, or it is not needed.
	default:
		// Record an update of an unknown kind in a notice, for readers that know the kind.
		x.turn.Recorder.Odd("agent.unknown", "", "the agent sent an update of the unknown kind "+holdfast.Quote(clip.Counted(u.Update.Kind, 60))+": "+clip.Counted(string(m.Params), 2000))
	}
	return nil
}

func planText(entries []planEntry) string {
	var b strings.Builder
	for _, e := range entries[:min(len(entries), 100)] {
		mark := " "
		if e.Status == "completed" {
			mark = "x"
		}
		fmt.Fprintf(&b, "[%s] %s\n", mark, clip.Counted(e.Content, 500))
	}
	return strings.TrimSpace(b.String())
}
