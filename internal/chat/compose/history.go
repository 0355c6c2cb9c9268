package compose

import (
	"slices"
	"strings"
)

// historyMost is the most messages that a History keeps.
const historyMost = 1000

// History holds the messages that were sent before, the newest last. Older and Newer walk through
// it; while the user walks, the text that was being written (the draft) is the newest entry.
type History struct {
	items []string
	pos   int    // index of the current entry; len(items) stands for the draft
	draft string // the text that was being written
}

// Load adds messages of earlier runs in front of those of this run.
func (h *History) Load(older []string) {
	mine := h.items
	h.items = nil
	for _, s := range append(slices.Clone(older), mine...) {
		h.add(Clean(s))
	}
	h.pos = len(h.items)
}

// Len returns the number of messages.
func (h *History) Len() int { return len(h.items) }

// Add appends a message to the history, and ends walking through it.
func (h *History) Add(s string) {
	h.add(s)
	h.pos, h.draft = len(h.items), ""
}

func (h *History) add(s string) {
	if strings.TrimSpace(s) == "" || len(h.items) > 0 && h.items[len(h.items)-1] == s {
		return
	}
	h.items = append(h.items, s)
	if more := len(h.items) - historyMost; more > 0 {
		h.items = slices.Delete(h.items, 0, more)
	}
}

// Older returns the message before the current one of the walk. now is the text of the editor,
// which becomes the draft when the walk begins.
func (h *History) Older(now string) (string, bool) {
	if h.pos == 0 {
		return "", false
	}
	if h.pos >= len(h.items) {
		h.pos, h.draft = len(h.items), now
	}
	h.pos--
	return h.items[h.pos], true
}

// Newer returns the message after the current one, or, after the newest message, the draft.
func (h *History) Newer() (string, bool) {
	switch {
	case h.pos >= len(h.items):
		return "", false
	case h.pos == len(h.items)-1:
		h.pos = len(h.items)
		return h.draft, true
	}
	h.pos++
	return h.items[h.pos], true
}

// Find returns the newest of the messages that contain a text, ignoring case, and have an index below before.
func (h *History) Find(text string, before int) (string, int, bool) {
	for i := min(before, len(h.items)) - 1; i >= 0; i-- {
		if strings.Contains(strings.ToLower(h.items[i]), strings.ToLower(text)) {
			return h.items[i], i, true
		}
	}
	return "", 0, false
}
