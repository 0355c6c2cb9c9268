package claude

import (
	"bytes"
	"encoding/json"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// synthetic is the model name that the CLI gives for its own messages, which no model wrote.
const synthetic = "<synthetic>"

// answer is one answer of the model, assembled from the lines of the CLI: one line for each
// block, and stream events for its start and end.
type answer struct {
	id, stop string
	usage    usage
	blocks   []block
	// streamed is true if a stream event will mark the answer's end. from is the offset of its first line.
	streamed bool
	from     int64
	// shown is true once deltas of the answer were sent to live readers.
	shown bool
	// last is the uuid of the answer's last line.
	last string
	// early are outcomes of the answer's tool uses that arrived before the answer was complete.
	early []block
	// bytes is the size of the lines from which the answer was assembled, and of its early outcomes.
	bytes int
}

// assembler assembles the answers of the main conversation; it ignores those of sub-agents. The
// zero value is ready for use.
type assembler struct {
	open *answer
	// done is the id of the newest complete answer. Further lines of that answer are ignored.
	done string
}

// event handles a stream event. It returns the answer that the event completes as done, and one
// that broke off as void; either may be nil.
func (a *assembler) event(l *line, at int64) (done, void *answer) {
	switch ev := &l.Event; ev.Type {
	case "message_start":
		done = a.close()
		a.open = &answer{id: ev.Message.ID, usage: ev.Message.Usage, streamed: true, from: at}
	case "content_block_delta":
		if a.open != nil && (ev.Delta.Text != "" || ev.Delta.Thinking != "") {
			a.open.shown = true
		}
	case "message_delta":
		if a.open == nil {
			return nil, nil
		}
		if ev.Delta.StopReason != "" {
			a.open.stop = ev.Delta.StopReason
		}
		if u := ev.Usage; u != nil {
			a.open.usage.Output = u.Output
			a.open.usage.Input = max(a.open.usage.Input, u.Input)
			a.open.usage.CacheRead = max(a.open.usage.CacheRead, u.CacheRead)
			a.open.usage.CacheWrite = max(a.open.usage.CacheWrite, u.CacheWrite)
		}
	case "message_stop":
		if l.Abandoned == nil {
			return a.close(), nil
		}
		if a.open == nil {
			return nil, nil
		}
		void = a.open
		if from := max(l.Abandoned.From, 0); from < len(void.blocks) {
			void.blocks = void.blocks[:from]
		}
		return a.close(), void
	}
	return done, nil
}

// message handles a line of type assistant. If that starts a new answer, it returns the previous
// one, which is complete.
func (a *assembler) message(l *line, at int64) (done *answer) {
	m := &l.Message
	if m.Model == synthetic || m.ID == "" || m.ID == a.done {
		return nil
	}
	if a.open == nil || a.open.id != m.ID {
		done = a.close()
		a.open = &answer{id: m.ID, usage: m.Usage, from: at}
	}
	a.open.last = l.UUID
	a.open.blocks = append(a.open.blocks, blocks(m.Content)...)
	if m.Stop != "" {
		a.open.stop = m.Stop
	}
	return done
}

// close ends the answer that is being assembled and returns it, or nil if it has no blocks.
func (a *assembler) close() *answer {
	o := a.open
	a.open = nil
	if o == nil || len(o.blocks) == 0 {
		return nil
	}
	a.done = o.id
	return o
}

// has reports whether an answer asks for a tool use.
func (o *answer) has(id string) bool {
	for i := range o.blocks {
		if o.blocks[i].Type == "tool_use" && o.blocks[i].ID == id {
			return true
		}
	}
	return false
}

// input returns the input of a tool use that the answer asks for, or nil.
func (o *answer) input(id string) (in json.RawMessage) {
	for i := range o.blocks {
		if o.blocks[i].Type == "tool_use" && o.blocks[i].ID == id {
			in = objectOf(o.blocks[i].Input)
		}
	}
	return in
}

func (o *answer) spent() holdfast.Usage {
	return holdfast.Usage{
		InputTokens: o.usage.Input, OutputTokens: o.usage.Output, CacheReadTokens: o.usage.CacheRead, CacheWriteTokens: o.usage.CacheWrite,
	}.Clamp()
}

// drafts returns the events of the answer: thinking, message.assistant, tool.requested.
func (o *answer) drafts(model string, seen int64, used holdfast.Usage) []journal.Draft {
	msg := holdfast.AssistantMessage{Seen: seen, StopReason: o.stop, Model: model, Usage: used}
	var out []journal.Draft
	thinks := func(b *block) bool { return b.Type == "thinking" || b.Type == "redacted_thinking" }
	between, other := false, false
	for i := range o.blocks {
		between = between || other && thinks(&o.blocks[i])
		other = other || !thinks(&o.blocks[i])
	}
	var uses []journal.Draft
	for i := range o.blocks {
		switch b := &o.blocks[i]; {
		case thinks(b):
			out = append(out, journal.Draft{Type: holdfast.EventThinking, Data: thought(b)})
			if between {
				msg.Parts = append(msg.Parts, holdfast.Part{Type: holdfast.PartThinking})
			}
		case b.Type == "text" && b.Text != "":
			msg.Parts = append(msg.Parts, holdfast.Part{Type: holdfast.PartText, Text: resident.Valid(b.Text)})
		case b.Type == "tool_use":
			msg.Parts = append(msg.Parts, holdfast.Part{Type: holdfast.PartToolUse, ToolUseID: b.ID})
			uses = append(uses, journal.Draft{Type: holdfast.EventToolRequested, Data: holdfast.ToolRequested{
				ToolUseID: b.ID, Name: toolName(b.Name), Input: objectOf(b.Input),
			}})
		}
	}
	if msg.Parts == nil {
		msg.Parts = []holdfast.Part{}
	}
	return append(append(out, journal.Draft{Type: holdfast.EventMessageAssistant, Data: msg}), uses...)
}

func thought(b *block) holdfast.Thinking {
	if b.Type == "redacted_thinking" {
		return holdfast.Thinking{Signature: b.Data, Redacted: true}
	}
	return holdfast.Thinking{Text: resident.Valid(b.Thinking), Signature: b.Signature}
}

// agentTool is the name of the tool that starts a sub-agent.
const agentTool = "Task"

// toolName returns the name that rules and events use for a tool of the CLI.
func toolName(name string) string {
	if name == "Agent" {
		return agentTool
	}
	return resident.Valid(name)
}

// objectOf makes a tool's input a compact JSON object. Any other input is wrapped in one.
func objectOf(in json.RawMessage) json.RawMessage {
	trimmed := bytes.TrimSpace(in)
	if len(trimmed) == 0 {
		return json.RawMessage("{}")
	}
	var buf bytes.Buffer
	if !utf8.Valid(trimmed) || json.Compact(&buf, trimmed) != nil {
		text, _ := json.Marshal(resident.Valid(string(trimmed)))
		return json.RawMessage(`{"invalid_json":` + string(text) + `}`)
	}
	if trimmed[0] != '{' {
		return json.RawMessage(`{"invalid_input":` + buf.String() + `}`)
	}
	return buf.Bytes()
}
