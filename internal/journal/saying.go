package journal

import (
	"sync"

	"github.com/holdfast-run/holdfast"
)

// Saying numbers the text deltas of a turn by their place in the answer, so that a
// reader that gets fewer of them knows what it missed. Safe for concurrent use; the zero value is ready.
type Saying struct {
	mu            sync.Mutex
	text, thought int64
}

// Publish shows a delta with its place.
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

// Recorded begins the next answer where one was recorded or given up.
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
