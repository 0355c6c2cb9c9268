package chat

import (
	"context"
	"fmt"
	"strings"

	tea "charm.land/bubbletea/v2"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/chat/compose"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// pickMost is the most sessions that the list offers to choose from.
const pickMost = 100

// picker is a list from which the user chooses a session: by the arrow keys, or by typing a part
// of its title, id or agent.
type picker struct {
	look   look
	height int
	all    []holdfast.Session
	typed  string
	at     int
	chosen *holdfast.Session
	done   bool
}

// Pick lets the user choose one of the first pickMost sessions; it returns nil if none was chosen.
func (c *Chat) Pick(ctx context.Context, sessions []holdfast.Session) (*holdfast.Session, error) {
	p := &picker{look: look{color: c.Screen.Color}, all: sessions[:min(len(sessions), pickMost)]}
	program := tea.NewProgram(p, tea.WithInput(c.Stdin), tea.WithOutput(c.Screen.Out), tea.WithContext(ctx), tea.WithEnvironment(c.Screen.Env))
	if _, err := program.Run(); err != nil && p.chosen == nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "chat", "no session was chosen, the terminal failed: %w", err).WithHint("choose a session again: holdfast chat --resume")
	}
	return p.chosen, nil
}

// Init is called by bubbletea.
func (p *picker) Init() tea.Cmd { return nil }

// fit returns the sessions of which the title, the id or the agent contains the text that was typed.
func (p *picker) fit() (out []holdfast.Session) {
	for _, s := range p.all {
		if strings.Contains(strings.ToLower(s.Title+" "+string(s.ID)+" "+string(s.Agent)), strings.ToLower(p.typed)) {
			out = append(out, s)
		}
	}
	return out
}

// Update is called by bubbletea with each message.
func (p *picker) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		p.look.width, p.height = max(msg.Width-1, 8), max(msg.Height, 4)
	case tea.PasteMsg:
		p.typed, p.at = p.typed+strings.Join(strings.Fields(compose.Clean(msg.Content)), " "), 0
	case tea.KeyPressMsg:
		return p, p.key(msg)
	}
	return p, nil
}

func (p *picker) key(msg tea.KeyPressMsg) tea.Cmd {
	fit := p.fit()
	switch msg.String() {
	case "ctrl+c", "esc", "ctrl+d":
		p.done = true
		return tea.Quit
	case "enter":
		if p.at >= len(fit) {
			return nil
		}
		p.chosen, p.done = &fit[p.at], true
		return tea.Quit
	case "up", "ctrl+p":
		p.at = max(0, p.at-1)
	case "down", "ctrl+n":
		p.at = min(max(0, len(fit)-1), p.at+1)
	case "pgup":
		p.at = max(0, p.at-p.room())
	case "pgdown":
		p.at = min(max(0, len(fit)-1), p.at+p.room())
	case "backspace":
		if r := []rune(p.typed); len(r) > 0 {
			p.typed, p.at = string(r[:len(r)-1]), 0
		}
	default:
		if msg.Text != "" {
			p.typed, p.at = p.typed+compose.Clean(msg.Text), 0
		}
	}
	return nil
}

// room returns how many sessions fit on the screen at once.
func (p *picker) room() int { return max(1, min(p.height-3, 15)) }

// View is called by bubbletea after each message.
func (p *picker) View() tea.View {
	if p.done || p.look.width == 0 {
		return tea.NewView(blank)
	}
	fit := p.fit()
	first := "search: " + plain.OneLine(p.typed)
	rows := []string{p.look.cut(first)}
	from := max(0, p.at-p.room()+1)
	for i := from; i < min(len(fit), from+p.room()); i++ {
		s, mark, t := fit[i], "  ", faint
		if i == p.at {
			mark, t = "> ", mine
		}
		title := plain.OneLine(s.Title)
		if title == "" {
			title = "(no title)"
		}
		rows = append(rows, p.look.paint(t, p.look.cut(mark+plain.OneLine(fmt.Sprintf("%s  %s  %s  %s", plain.ShortID(s.ID), title, s.Status, plain.When(s.LastActiveAt))))))
	}
	if len(fit) == 0 {
		rows = append(rows, p.look.cut("no session matches"))
	}
	rows = append(rows, p.look.paint(faint, p.look.cut(fmt.Sprintf("%s · Enter takes it, Esc none", plain.Count(len(fit), "session", "sessions")))))
	v := tea.NewView(strings.Join(rows, "\n"))
	v.Cursor = tea.NewCursor(min(p.look.method.StringWidth(first), p.look.width-1), 0)
	return v
}
