package chat

import (
	"slices"
	"strings"
)

// historyMost is how many messages are kept to be found again.
const historyMost = 1000

// History are the messages of the session and of this run, the newest last.
type History struct {
	items []string
	pos   int    // len(items) is what is being written
	draft string // what was being written
}

// Load puts older messages before those of this run.
func (h *History) Load(older []string) {
	mine := h.items
	h.items = nil
	for _, s := range append(slices.Clone(older), mine...) {
		h.add(clean(s))
	}
	h.pos = len(h.items)
}

// Add remembers a message.
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

// Older is the message before; now is what the editor holds.
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

// Newer is the message after, at last what was being written.
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

// Find is the newest message before a place that holds a text, and its place.
func (h *History) Find(text string, before int) (string, int, bool) {
	for i := min(before, len(h.items)) - 1; i >= 0; i-- {
		if strings.Contains(strings.ToLower(h.items[i]), strings.ToLower(text)) {
			return h.items[i], i, true
		}
	}
	return "", 0, false
}
