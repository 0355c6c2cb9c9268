package holdfast

import (
	"fmt"
	"strings"
)

// PartType says what a part of a message is. The set is append-only; readers show a part
// of an unknown type as "[a part of type …]".
type PartType string

// The types of parts. A tool_use part occurs only in the model's answers and refers to a
// tool.requested event, which has the input. A thinking part marks the place of the answer's
// next thinking event; in an answer without thinking parts all thinking comes first.
const (
	PartText     PartType = "text"
	PartToolUse  PartType = "tool_use"
	PartThinking PartType = "thinking"
)

// Part is a piece of a message.
type Part struct {
	Type PartType `json:"type" doc:"What the part is: text."`
	// Text is the content of a text part.
	Text string `json:"text,omitempty" doc:"The text."`
	// ToolUseID, in a tool_use part, is the id of the tool use.
	ToolUseID string `json:"tool_use_id,omitempty" doc:"Of answers only: the tool use that the part stands for."`
}

// Shown returns the part as text. It is empty for a tool use and for thinking, which have
// their own events; for an unknown type it is a placeholder in brackets with the type's name.
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

// Whole returns the message with both Parts and Text filled in, one from the other. It fails
// with KindInvalid if the message already has both, has a part that is not a plain text part,
// or has no text but white space, and with KindTooLarge if the text is longer than MaxText.
func (m SendMessage) Whole() (SendMessage, error) {
	switch {
	case m.Parts == nil:
		m.Parts = []Part{{Type: PartText, Text: m.Text}}
	case m.Text != "":
		return m, Errorf(KindInvalid, "turn", "the message has both text and parts").WithHint("leave out either the text or the parts")
	}
	for i, p := range m.Parts {
		if p != (Part{Type: PartText, Text: p.Text}) {
			return m, Errorf(KindInvalid, "turn", "part %d of the message is of type %s: only plain text parts are accepted", i+1, Quote(string(p.Type))).
				WithHint("put content that is not text into a file, which the agent's tools can read: holdfast files put")
		}
	}
	m.Text = UserMessage{Parts: m.Parts}.Text()
	if strings.TrimSpace(m.Text) == "" {
		return m, Errorf(KindInvalid, "turn", "the message's text %s is empty or has only white space", Quote(m.Text)).WithHint("holdfast send ID TEXT")
	}
	if len(m.Text) > MaxText {
		return m, Errorf(KindTooLarge, "turn", "the message has %d bytes of text, more than the limit of %d bytes", len(m.Text), MaxText).
			WithHint("put the text in a file of the session: holdfast files put")
	}
	return m, nil
}

// Plain returns the canonical form of a message that Whole returned: only Text if it has one
// part, else only Parts. So a text, and a list of parts with only that text, are the same message.
func (m SendMessage) Plain() SendMessage {
	if len(m.Parts) == 1 {
		m.Parts = nil
	} else {
		m.Text = ""
	}
	return m
}
