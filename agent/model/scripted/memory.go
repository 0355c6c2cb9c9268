package scripted

import (
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/agent/model"
)

// quoteRunes is how many characters of a message the memory sentence quotes.
const quoteRunes = 60

// latest returns the user's newest message (without tool results, system reminders and injected
// history), and how many assistant messages follow it.
func latest(msgs []model.Message) (text string, after int) {
	for i := len(msgs) - 1; i >= 0; i-- {
		m := &msgs[i]
		if m.Role == model.Assistant {
			after++
			continue
		}
		for j := len(m.Blocks) - 1; j >= 0; j-- {
			if m.Blocks[j].Type != model.Text {
				continue
			}
			if own, _ := said(m.Blocks[j].Text); own != "" {
				return own, after
			}
		}
	}
	return "", after
}

// memory summarizes the conversation in a request: the number of user messages and tool results,
// and the first and the last message.
type memory struct {
	messages, results int
	first, last       string
}

func remember(msgs []model.Message) memory {
	var m memory
	add := func(text string) {
		if m.messages == 0 {
			m.first = text
		}
		m.last = text
		m.messages++
	}
	for i := range msgs {
		if msgs[i].Role != model.User {
			continue
		}
		for j := range msgs[i].Blocks {
			b := &msgs[i].Blocks[j]
			switch b.Type {
			case model.ToolResult:
				m.results++
			case model.Text:
				own, history := said(b.Text)
				for line := range strings.Lines(history) {
					if text, ok := strings.CutPrefix(strings.TrimSpace(line), "[USER]:"); ok {
						add(strings.TrimSpace(text))
					}
				}
				if own != "" {
					add(own)
				}
			}
		}
	}
	return m
}

// sentence returns the answer that proves which messages the model got.
func (m memory) sentence() string {
	return fmt.Sprintf(`You have sent %d messages. The first was: "%s". The last was: "%s". I have seen %d tool results.`,
		m.messages, quote(m.first), quote(m.last), m.results)
}

// said splits a user's text into what the user said and the injected history;
// system reminders, and what Claude Code writes in the user's place when it is
// interrupted, belong to neither.
func said(text string) (own, history string) {
	own, _ = without(text, "<system-reminder>", "</system-reminder>")
	own, _ = without(own, "[Request interrupted by user", "]")
	own, history = without(own, "<conversation_history>", "</conversation_history>")
	return strings.TrimSpace(own), history
}

// without removes every span between two tags from text, and returns the removed content too. A
// span without a closing tag is not removed.
func without(text, from, to string) (rest, removed string) {
	if !strings.Contains(text, from) {
		return text, ""
	}
	var kept, cut strings.Builder
	for {
		before, after, ok := strings.Cut(text, from)
		inner, tail, closed := strings.Cut(after, to)
		if !ok || !closed {
			kept.WriteString(text)
			return kept.String(), cut.String()
		}
		kept.WriteString(before)
		cut.WriteString(inner)
		cut.WriteByte('\n')
		text = tail
	}
}

func quote(s string) string {
	n := 0
	for i := range s {
		if n == quoteRunes {
			return s[:i]
		}
		n++
	}
	return s
}
