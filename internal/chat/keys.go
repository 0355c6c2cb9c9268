package chat

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/chat/compose"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// key handles a key press.
func (s *screen) key(msg tea.KeyPressMsg) tea.Cmd {
	name := msg.String()
	if name != "ctrl+c" && s.t.interrupt == leaving {
		s.t.interrupt = notAsked
	}
	if s.search != nil && s.searching(msg) {
		return nil
	}
	if name != "tab" {
		s.offers = nil
	}
	switch name {
	case "enter":
		s.enter()
	case "alt+enter", "shift+enter", "ctrl+j":
		s.editor.Insert("\n")
	case "ctrl+c":
		s.do(s.t.Interrupt())
	case "ctrl+d":
		if s.editor.Empty() {
			s.do(s.t.Leave(0))
		} else {
			s.editor.Delete()
		}
	case "ctrl+z":
		s.drawn = false
		return tea.Suspend
	case "ctrl+l":
		return tea.ClearScreen
	case "ctrl+r":
		s.search = &search{before: s.history.Len(), was: s.editor}
	case "ctrl+e":
		return s.edit()
	case "tab":
		return s.complete()
	case "up", "ctrl+p":
		s.older()
	case "down", "ctrl+n":
		s.newer()
	default:
		if !s.move(name) && msg.Text != "" {
			s.editor.Insert(msg.Text)
		}
	}
	return nil
}

// move carries out a key that moves the cursor or removes text, and reports whether name is such a key.
func (s *screen) move(name string) bool {
	do := map[string]func(){
		"left": s.editor.Left, "right": s.editor.Right, "ctrl+b": s.editor.Left, "ctrl+f": s.editor.Right,
		"ctrl+left": s.editor.WordLeft, "alt+left": s.editor.WordLeft, "alt+b": s.editor.WordLeft,
		"ctrl+right": s.editor.WordRight, "alt+right": s.editor.WordRight, "alt+f": s.editor.WordRight,
		"home": s.editor.Home, "ctrl+a": s.editor.Home, "end": s.editor.End,
		"backspace": s.editor.Backspace, "ctrl+h": s.editor.Backspace, "delete": s.editor.Delete,
		"ctrl+w": s.editor.DeleteWord, "alt+backspace": s.editor.DeleteWord, "alt+d": s.editor.DeleteWordRight,
		"ctrl+u": s.editor.DeleteLeft, "ctrl+k": s.editor.DeleteRight,
	}[name]
	if do == nil {
		return false
	}
	do()
	return true
}

// enter sends what was written, unless a backslash asks for another line.
func (s *screen) enter() {
	text := s.editor.Text()
	if s.editor.AtEnd() && strings.HasSuffix(text, `\`) {
		s.editor.Backspace()
		s.editor.Insert("\n")
		return
	}
	if strings.TrimSpace(text) == "" {
		return
	}
	if s.question == "" {
		s.history.Add(text)
	}
	s.editor = compose.Editor{}
	switch {
	case s.question != "":
		s.say([]plain.Line{{Kind: plain.Own, Text: plain.OneLine(text)}})
	case strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//"):
		s.say([]plain.Line{{Kind: plain.Own, Text: plain.OneLine(text)}})
	}
	s.do(s.t.Line(text))
}

// older moves the cursor a row up, or, in the first row, shows the message that was sent before.
func (s *screen) older() {
	if s.editor.Up(s.room(), s.look.method) || s.question != "" {
		return
	}
	if text, ok := s.history.Older(s.editor.Text()); ok {
		s.editor.Set(text)
	}
}

func (s *screen) newer() {
	if s.editor.Down(s.room(), s.look.method) || s.question != "" {
		return
	}
	if text, ok := s.history.Newer(); ok {
		s.editor.Set(text)
	}
}

// search is a search in the history for messages that contain text. was is the editor to restore
// when the search is cancelled.
type search struct {
	text   string
	before int // the next match must be older: below this index
	was    compose.Editor
}

// searching handles a key during a search, and reports whether the key needs no further handling.
func (s *screen) searching(msg tea.KeyPressMsg) bool {
	f := s.search
	switch name := msg.String(); {
	case name == "ctrl+r":
		s.find(f.before)
	case name == "esc" || name == "ctrl+g" || name == "ctrl+c":
		s.editor, s.search = f.was, nil
	case name == "backspace":
		if r := []rune(f.text); len(r) > 0 {
			f.text = string(r[:len(r)-1])
		}
		s.find(s.history.Len())
	case msg.Text != "":
		f.text += compose.Clean(msg.Text)
		s.find(s.history.Len())
	default: // the search ends with the found message, and the key does what it always does
		s.search = nil
		return name == "tab"
	}
	return true
}

func (s *screen) find(before int) {
	if text, at, ok := s.history.Find(s.search.text, before); ok && s.search.text != "" {
		s.editor.Set(text)
		s.search.before = at
	}
}

// edit opens the text in the user's own editor, such as the program that $EDITOR names.
func (s *screen) edit() tea.Cmd {
	dir, err := os.MkdirTemp("", "holdfast-chat-")
	path := filepath.Join(dir, "message.md")
	if err == nil {
		err = os.WriteFile(path, []byte(s.editor.Text()), 0o600)
	}
	if err != nil {
		s.do([]Effect{trouble(fmt.Errorf("the message cannot be opened in an editor: %w", err))})
		return nil
	}
	s.drawn = false
	return tea.ExecProcess(s.c.Screen.Edit(path), func(err error) tea.Msg {
		defer os.RemoveAll(dir) //nolint:errcheck // a temporary directory of this call
		text, rerr := os.ReadFile(path)
		if err == nil {
			err = rerr
		}
		return editedMsg{strings.TrimRight(string(text), "\n"), err}
	})
}

func (s *screen) edited(msg editedMsg) {
	if msg.err != nil {
		s.do([]Effect{trouble(holdfast.Errorf(holdfast.KindInvalid, "chat", "the message was not edited, the editor failed: %w", msg.err).
			WithHint("set EDITOR to an editor that is installed; the message is unchanged"))})
		return
	}
	s.editor.Set(msg.text)
}

// complete completes the name of a command, or its argument.
func (s *screen) complete() tea.Cmd {
	text := s.editor.Text()
	if !strings.HasPrefix(text, "/") || !s.editor.AtEnd() || s.question != "" {
		return nil
	}
	name, _, values := strings.Cut(text, " ")
	all := commands()
	if !values {
		var names []string
		for _, c := range all {
			if strings.HasPrefix(c.name, name) {
				names = append(names, c.name)
			}
		}
		s.offer(text, "", names)
		return nil
	}
	i := slices.IndexFunc(all, func(c command) bool { return c.name == name })
	if i < 0 || all[i].values == nil {
		return nil
	}
	return func() tea.Msg {
		ctx, cancel := context.WithTimeout(s.l.ctx, callLimit)
		defer cancel()
		return offersMsg{text, all[i].values(ctx, s.l.calls)}
	}
}

func (s *screen) offered(msg offersMsg) {
	if s.editor.Text() != msg.begun {
		return
	}
	name, begun, _ := strings.Cut(msg.begun, " ")
	fit := slices.DeleteFunc(slices.Clone(msg.values), func(v string) bool { return !strings.HasPrefix(v, begun) })
	s.offer(begun, name+" ", fit)
}

// offer extends the text as far as all candidates agree, and shows the candidates if there are several.
func (s *screen) offer(begun, before string, all []string) {
	s.offers = nil
	if len(all) == 0 {
		return
	}
	common := all[0]
	for _, one := range all[1:] {
		for !strings.HasPrefix(one, common) {
			common = common[:len(common)-1]
		}
	}
	if len(all) == 1 {
		common += " "
	} else {
		s.offers = all
	}
	if len(common) > len(begun) {
		s.editor.Set(before + common)
	}
}
