package chat

import (
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-run/holdfast"
)

// TestPick: arrows and words lead to a session, Esc to none, and no title moves the cursor.
//
// FH-33.
func TestPick(t *testing.T) {
	down, esc := tea.KeyPressMsg{Code: tea.KeyDown}, tea.KeyPressMsg{Code: tea.KeyEscape}
	for name, c := range map[string]struct {
		keys []tea.KeyPressMsg
		want holdfast.SessionID
	}{
		"the first":        {[]tea.KeyPressMsg{enter}, "id-1"},
		"the second":       {[]tea.KeyPressMsg{down, enter}, "id-2"},
		"the last, beyond": {[]tea.KeyPressMsg{down, down, down, down, enter}, "id-3"},
		"by a word":        {append(typed("BUG"), enter), "id-3"},
		"by nothing":       {append(typed("zzz"), enter), ""},
		"none":             {[]tea.KeyPressMsg{down, esc}, ""},
	} {
		p := &picker{all: []holdfast.Session{
			{ID: "id-1", Title: "first\x1b[2J\u202e", Status: "a\x1b[2Jb"}, {ID: "id-2"}, {ID: "id-3", Title: "a bug " + strings.Repeat("日本", 40)},
		}}
		p.Update(tea.WindowSizeMsg{Width: 40, Height: 10})
		for _, k := range c.keys {
			for r := range strings.SplitSeq(p.View().Content, "\n") {
				if strings.ContainsAny(r, "\x1b\u202e") || p.look.method.StringWidth(r) > 39 {
					t.Errorf("%s: the row %q", name, r)
				}
			}
			p.Update(k)
		}
		got := holdfast.SessionID("")
		if p.chosen != nil {
			got = p.chosen.ID
		}
		if got != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}
