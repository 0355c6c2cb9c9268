package acpserver

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/policy"
)

// The most bytes of the parts of one update: a text, a call's input, a call's result, and the output of a running
// call. A longer text is sent in several updates, because the editor may limit the length of a line. maxTools is the
// most unfinished calls that a view remembers.
const (
	maxChunk  = 32 << 10
	maxInput  = 64 << 10
	maxResult = 64 << 10
	maxLive   = 16 << 10
	maxTools  = 1000
)

// view converts events to updates. The same events give the same updates; each event must be
// passed once, in order. An event that does not decode gives none. It is not safe for concurrent
// use.
type view struct {
	said, thought stream
	// recorded is the thinking that is in the log and belongs to the next answer.
	recorded string
	tools    map[string]*toolView
	// place is where the session's files are on the editor's machine; known are the tools that the runtimes register.
	place place
	known []policy.Tool
}

// toolView is a tool call that has not ended.
type toolView struct {
	name string
	// change is what the call changes in a file, in the form in which the editor shows it; nil if it changes no file.
	change []acp.ToolCallContent
	live   string
	told   int
}

// stream is a text that the editor may have received in part, by deltas.
type stream struct {
	// told is the part of this answer that the editor has. at is the length of the part that the
	// deltas of the present attempt have confirmed; hole is true if a delta was missed.
	told []byte
	at   int
	hole bool
}

// anew is the text that is inserted into an answer if the editor has received another text of that answer before.
const anew = "\n\n[the answer broke off here and begins anew]\n\n"

// delta adds a piece and returns the text to send for it.
func (s *stream) delta(d holdfast.TextDelta) string {
	// The log may have replaced the text in told by a shorter one.
	s.at = min(s.at, len(s.told))
	if d.At == 0 { // a piece at offset 0: an answer begins, or begins again
		s.at, s.hole = 0, false
	}
	if s.hole = s.hole || d.At != int64(s.at); s.hole {
		return ""
	}
	n := min(len(d.Text), len(s.told)-s.at)
	same := string(s.told[s.at:s.at+n]) == d.Text[:n]
	if !same {
		s.told, n = s.told[:s.at], 0
	}
	s.told = append(s.told, d.Text[n:]...)
	s.at += len(d.Text)
	if !same {
		return anew + string(s.told)
	}
	return d.Text[n:]
}

// whole returns the part of a complete text that the editor does not have.
func (s *stream) whole(text string) string {
	rest, ok := strings.CutPrefix(text, string(s.told))
	if !ok {
		rest = anew + text
	}
	s.told = []byte(text)
	return rest
}

// over resets the stream at the end of an answer, so that it is ready for the next one.
func (s *stream) over() { *s = stream{} }

// meta marks an update as a notice of Holdfast, not of the agent.
func meta() map[string]any { return map[string]any{"holdfast": map[string]any{"notice": true}} }

// notice returns a text of Holdfast itself as updates.
func notice(text string) []acp.SessionUpdate {
	return []acp.SessionUpdate{{AgentThoughtChunk: &acp.SessionUpdateAgentThoughtChunk{
		Meta: meta(), Content: acp.TextBlock("[holdfast] " + clip.Middle(text, maxChunk) + "\n"),
	}}}
}

// chunks splits a text into updates, between characters.
func chunks(text string, one func(acp.ContentBlock) acp.SessionUpdate) []acp.SessionUpdate {
	var out []acp.SessionUpdate
	for text != "" {
		n := clip.At(text, maxChunk)
		out = append(out, one(acp.TextBlock(text[:n])))
		text = text[n:]
	}
	return out
}

// read decodes an event's payload and converts it to updates.
func read[T any](ev holdfast.Event, turn func(T) []acp.SessionUpdate) []acp.SessionUpdate {
	var d T
	if ev.Decode(&d) != nil {
		return nil
	}
	return turn(d)
}

// updates returns the updates for an event.
func (v *view) updates(ev holdfast.Event) []acp.SessionUpdate {
	step, err := conversation.Of(ev)
	if err != nil {
		return nil
	}
	switch s := step.(type) {
	case *conversation.Message:
		return chunks(s.Text, acp.UpdateUserMessage)
	case *conversation.Piece:
		if s.Thinking {
			return chunks(v.thought.delta(s.Delta), acp.UpdateAgentThought)
		}
		return chunks(v.said.delta(s.Delta), acp.UpdateAgentMessage)
	case *conversation.Thought:
		return v.thinking(s)
	case *conversation.Answer:
		return v.answer(s)
	case *conversation.Noticed:
		if s.Level == "debug" || s.Text == "" {
			return nil
		}
		return notice(s.Text)
	case nil:
		return beyond(ev)
	}
	if up := v.tool(step); up != nil {
		return up
	}
	return around(step)
}

func (v *view) thinking(t *conversation.Thought) []acp.SessionUpdate {
	v.recorded += t.Text
	if strings.HasPrefix(string(v.thought.told), v.recorded) {
		return nil
	}
	return chunks(v.thought.whole(v.recorded), acp.UpdateAgentThought)
}

func (v *view) answer(a *conversation.Answer) []acp.SessionUpdate {
	rest := v.said.whole(a.AssistantMessage.Text())
	v.said.over()
	v.thought.over()
	v.recorded = ""
	return chunks(rest, acp.UpdateAgentMessage)
}

// changed returns the updates for a change of the session.
func changed(d holdfast.SessionUpdated) []acp.SessionUpdate {
	var out []acp.SessionUpdate
	if d.Mode != nil {
		out = append(out, acp.SessionUpdate{CurrentModeUpdate: &acp.SessionCurrentModeUpdate{CurrentModeId: acp.SessionModeId(*d.Mode)}})
	}
	if d.Title != nil {
		out = append(out, acp.SessionUpdate{SessionInfoUpdate: &acp.SessionSessionInfoUpdate{Title: d.Title}})
	}
	return out
}

// around returns the updates for events that are not messages or tool calls but concern the user,
// such as the end of a turn.
func around(step conversation.Step) []acp.SessionUpdate {
	switch s := step.(type) {
	case *conversation.End:
		if s.How == holdfast.EventTurnCompleted {
			return nil
		}
		text := conversation.EndText(s.How, s.Message)
		if s.Hint != "" {
			text += "; hint: " + s.Hint
		}
		return notice(text)
	case *conversation.Resumed:
		if len(s.Lost) > 0 {
			return notice("resumed; lost: " + strings.Join(s.Lost, ", "))
		}
	case *conversation.BoxEnded:
		if s.How != holdfast.EventBoxStopped {
			return notice(string(s.How) + ": " + s.Reason)
		}
	}
	return nil
}

// beyond returns the updates for events that are not part of the conversation, such as a changed setting.
func beyond(ev holdfast.Event) []acp.SessionUpdate {
	switch ev.Type {
	case holdfast.EventSessionUpdated:
		return read(ev, changed)
	case holdfast.EventAgentStarted:
		return read(ev, func(d holdfast.AgentStarted) []acp.SessionUpdate {
			if d.Tier != holdfast.TierInjected && d.Turns >= d.Of {
				return nil
			}
			return notice(fmt.Sprintf("the agent was started with %d of %d turns (%s): %s", d.Turns, d.Of, d.Tier, d.Reason))
		})
	case holdfast.EventSessionEnded:
		return read(ev, func(d holdfast.Reason) []acp.SessionUpdate { return notice("the session has ended: " + d.Reason) })
	}
	return nil
}

// raw returns JSON unchanged, or nil if it is empty, longer than maxInput or not valid.
func raw(data json.RawMessage) any {
	if len(data) == 0 || len(data) > maxInput || !json.Valid(data) {
		return nil
	}
	return data
}
