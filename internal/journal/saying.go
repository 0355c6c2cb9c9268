package journal

import (
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Saying numbers the text deltas of a turn: it sets in each its byte position in the model's answer, by which
// a reader notices that it has missed deltas. Safe for concurrent use; the zero value is ready.
type Saying struct {
	mu            sync.Mutex
	text, thought int64
}

// Publish calls show with the payload of a delta. In a text delta it sets the position first.
func (s *Saying) Publish(typ holdfast.EventType, data any, show func(any)) {
	d, ok := data.(holdfast.TextDelta)
	if !ok {
		show(data)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.text
	if typ == holdfast.DeltaThinking {
		at = &s.thought
	}
	d.At = *at
	*at += int64(len(d.Text))
	show(d)
}

// Recorded sets the positions back to 0 if an event completes an answer, or declares the deltas so far void.
func (s *Saying) Recorded(drafts []Draft) {
	for _, d := range drafts {
		n, notice := d.Data.(holdfast.Notice)
		if d.Type == holdfast.EventMessageAssistant || notice && n.Code == holdfast.NoticeVoid {
			s.mu.Lock()
			s.text, s.thought = 0, 0
			s.mu.Unlock()
		}
	}
}
