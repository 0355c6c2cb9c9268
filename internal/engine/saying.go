package engine

import (
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// saying numbers the text deltas of a turn by their place in the answer, so that a
// reader that gets fewer of them knows what it missed.
type saying struct {
	mu            sync.Mutex
	text, thought int64
}

// publish shows a delta with its place.
func (s *saying) publish(typ holdfast.EventType, data any, show func(any)) {
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

// recorded begins the next answer where one was recorded or given up.
func (s *saying) recorded(drafts []journal.Draft) {
	for _, d := range drafts {
		n, notice := d.Data.(holdfast.Notice)
		if d.Type == holdfast.EventMessageAssistant || notice && n.Code == holdfast.NoticeVoid {
			s.mu.Lock()
			s.text, s.thought = 0, 0
			s.mu.Unlock()
		}
	}
}
