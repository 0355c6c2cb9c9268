package journal

import (
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Saying gives each text delta of a turn its byte position in the model's answer, so that a reader
// that missed deltas can tell. Safe for concurrent use; the zero value is ready.
type Saying struct {
	mu            sync.Mutex
	text, thought int64
}

// Publish calls show with a delta, with its position set if it is a text delta.
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

// Recorded resets the positions if the recorded events complete an answer or void it.
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
