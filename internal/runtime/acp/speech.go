package acp

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// keptText bounds the part of an answer that is kept in the state and not in the log, in bytes.
const keptText = 64 << 10

// speech is the agent's answer to the prompt under way. Its pieces are kept in the state
// until they are recorded together.
type speech struct {
	agent *agent
	model string
	host  runtime.Host
	turn  *resident.Run
}

// chunk takes a piece of what the agent says or thinks.
func (s *speech) chunk(message string, content json.RawMessage, thought bool) {
	text := textOf(content)
	p := s.agent.data.Prompt
	if text == "" || p == nil {
		return
	}
	typ := holdfast.DeltaText
	if thought {
		typ = holdfast.DeltaThinking
	}
	s.host.Delta(typ, holdfast.TextDelta{Text: text})
	message = resident.Clip(message, 128)
	if n := len(p.Parts); n > 0 && p.Parts[n-1].Thought == thought && p.Parts[n-1].Message == message {
		p.Parts[n-1].Text += text
		return
	}
	p.Parts = append(p.Parts, piece{Message: message, Thought: thought, Text: text})
}

// long reports whether so much was said that it has to be recorded.
func (s *speech) long() bool {
	n := 0
	if p := s.agent.data.Prompt; p != nil {
		for _, piece := range p.Parts {
			n += len(piece.Text)
		}
	}
	return n > keptText
}

// record records what was said, and the tools that the answer asks for. It reports whether
// there was anything.
func (s *speech) record(stop string, listed ...*tool) bool {
	p := s.agent.data.Prompt
	if p == nil {
		return false
	}
	m := holdfast.AssistantMessage{Seen: s.seen(), StopReason: stop, Model: s.model}
	for _, piece := range p.Parts {
		if piece.Thought {
			s.turn.Recorder.Add(holdfast.EventThinking, holdfast.Thinking{Text: piece.Text})
			m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartThinking})
			continue
		}
		m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartText, Text: piece.Text})
	}
	for _, t := range listed {
		t.Listed = true
		m.Parts = append(m.Parts, holdfast.Part{Type: holdfast.PartToolUse, ToolUseID: t.ID})
	}
	p.Parts = nil
	if len(m.Parts) == 0 {
		return false
	}
	p.Produced = true
	s.turn.Recorder.Add(holdfast.EventMessageAssistant, m)
	// With calls open it is more of the same answer.
	s.turn.Account.Spoke(m, s.turn.Uses.Open())
	return true
}

// seen is the newest message of this turn that the agent got.
func (s *speech) seen() (seen int64) {
	for _, m := range s.turn.Account.Messages {
		if s.agent.exists() && m.Seq <= s.agent.data.Said {
			seen = m.Seq
		}
	}
	return seen
}

// unsaid are the messages of this turn that the agent did not get.
func (s *speech) unsaid() []resident.Message {
	return s.turn.Account.Without(func(seq int64) bool { return s.agent.exists() && seq <= s.agent.data.Said })
}
