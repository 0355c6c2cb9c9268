package acp

import (
	"encoding/json"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// keptText is the size of an answer's unrecorded part, in bytes, above which that part is recorded when the box needs
// room for more output of the agent.
const keptText = 64 << 10

// speech is the agent's answer to the current prompt. Its pieces are held in the state until
// they are recorded together.
type speech struct {
	agent *agent
	model string
	host  runtime.Host
	turn  *resident.Run
}

// chunk handles a piece of the agent's text or, if thought is true, of its thinking.
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
	message = clip.Counted(message, 128)
	if n := len(p.Parts); n > 0 && p.Parts[n-1].Thought == thought && p.Parts[n-1].Message == message {
		p.Parts[n-1].Text += text
		return
	}
	p.Parts = append(p.Parts, piece{Message: message, Thought: thought, Text: text})
}

// pieceBytes is about how many bytes a piece takes in the agent's state in addition to its text and message id.
const pieceBytes = 48

// long reports whether the unrecorded pieces are so large that they must be recorded now.
func (s *speech) long() bool {
	n := 0
	if p := s.agent.data.Prompt; p != nil {
		for _, piece := range p.Parts {
			n += len(piece.Text) + len(piece.Message) + pieceBytes
		}
	}
	return n > keptText
}

// record adds an answer with the pieces so far and the listed tool calls to the next commit. It
// reports false if there is nothing to record.
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
	// While tool calls are open, m continues the previous answer and is not counted as a step.
	s.turn.Account.Spoke(m, s.turn.Uses.Open())
	return true
}

// seen returns the event number of the newest message of this turn that was sent to the agent.
func (s *speech) seen() (seen int64) {
	for _, m := range s.turn.Account.Messages {
		if s.agent.exists() && m.Seq <= s.agent.data.Said {
			seen = m.Seq
		}
	}
	return seen
}

// unsaid returns the messages of this turn that were not sent to the agent.
func (s *speech) unsaid() []resident.Message {
	return s.turn.Account.Without(func(seq int64) bool { return s.agent.exists() && seq <= s.agent.data.Said })
}
