package holdfast

import (
	"fmt"
	"strings"
)

// PartType says what a part of a message is. The set is append-only; readers show a part of
// a type that they do not know as such.
type PartType string

// The types. A tool use stands in answers only and refers to a tool.requested event, which has
// the input. Where thinking came between other parts of an answer, thinking parts stand for
// its thinking events in their order; without such parts the thinking came first.
const (
	PartText     PartType = "text"
	PartToolUse  PartType = "tool_use"
	PartThinking PartType = "thinking"
)

// Part is a piece of a message.
type Part struct {
	Type PartType `json:"type" doc:"What the part is: text."`
	// Text is of a text part.
	Text string `json:"text,omitempty" doc:"The text."`
	// ToolUseID is of a tool use.
	ToolUseID string `json:"tool_use_id,omitempty" doc:"Of answers only: the tool use that the part stands for."`
}

// Shown returns the part as a text: empty for a tool use and for thinking, which are events
// of their own; for a type that this version does not know, its name in brackets.
func (p Part) Shown() string {
	switch p.Type {
	case PartText:
		return p.Text
	case PartToolUse, PartThinking:
		return ""
	}
	return fmt.Sprintf("[a part of type %s]", Quote(string(p.Type)))
}

func textOf(parts []Part, between string) string {
	if len(parts) == 1 {
		return parts[0].Shown()
	}
	var text []string
	for _, p := range parts {
		if s := p.Shown(); s != "" {
			text = append(text, s)
		}
	}
	return strings.Join(text, between)
}

// Whole returns the message with both its parts and its text. It fails with invalid where the
// message was given both, has a part that is not only a text, or is empty; with too_large above
// MaxText.
func (m SendMessage) Whole() (SendMessage, error) {
	switch {
	case m.Parts == nil:
		m.Parts = []Part{{Type: PartText, Text: m.Text}}
	case m.Text != "":
		return m, Errorf(KindInvalid, "turn", "the message has both text and parts").WithHint("leave one of them out")
	}
	for i, p := range m.Parts {
		if p != (Part{Type: PartText, Text: p.Text}) {
			return m, Errorf(KindInvalid, "turn", "part %d of the message is of type %s, and is not only a text", i+1, Quote(string(p.Type))).
				WithHint("put anything else into a file, which the agent's tools can read: holdfast files put")
		}
	}
	m.Text = UserMessage{Parts: m.Parts}.Text()
	if strings.TrimSpace(m.Text) == "" {
		return m, Errorf(KindInvalid, "turn", "text %s is empty", Quote(m.Text)).WithHint("holdfast send ID TEXT")
	}
	if len(m.Text) > MaxText {
		return m, Errorf(KindTooLarge, "turn", "text of %d bytes is over %d", len(m.Text), MaxText).
			WithHint("put it in a file: holdfast files put")
	}
	return m, nil
}

// Plain returns the one form of a whole message: a text, or else parts. A text and a list of
// that text are the same message.
func (m SendMessage) Plain() SendMessage {
	if len(m.Parts) == 1 {
		m.Parts = nil
	} else {
		m.Text = ""
	}
	return m
}
