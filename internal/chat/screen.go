package chat

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/chat/compose"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// Terminal describes the terminal that a screen draws on.
type Terminal struct {
	Out *os.File
	// Color is true if the terminal has colours and the user wants them.
	Color bool
	// Env is the environment, in which the renderer looks up the terminal's abilities.
	Env []string
	// Edit returns the command that opens a file in the user's editor.
	Edit func(path string) *exec.Cmd
}

// screen is the front end with an editor. The conversation is printed above it and scrolls away;
// below are the running turn, the editor and a status row. Its fields belong to bubbletea's
// loop.
type screen struct {
	c    *Chat
	t    *Talk
	l    *link
	look look

	height  int
	editor  compose.Editor
	history compose.History
	search  *search
	offers  []string

	// question is the open question that the editor is used for, draft the message that was being
	// written and comes back afterwards.
	question holdfast.ApprovalID
	draft    compose.Editor

	lines    []plain.Line // lines to be printed above the frame
	rows     []string     // lines that are broken into rows, to be printed next
	drawn    bool         // a frame is drawn, so rows can be printed above it
	resizes  int          // number of size changes within the last moment (settled)
	showing  bool
	ticking  bool
	end      *Leave
	quitting bool
	now      func() time.Time
}

// Messages that the screen sends to itself.
type (
	shownMsg struct{}
	drawnMsg struct{}
	goneMsg  struct{}
	// settledMsg is a message that arrives a moment after each change of the terminal's size.
	settledMsg struct{}
	tickMsg    struct{}
	signalMsg  struct{ os.Signal }
	editedMsg  struct {
		text string
		err  error
	}
	offersMsg struct {
		begun  string
		values []string
	}
)

// OnScreen runs the conversation on the terminal c.Screen.
func (c *Chat) OnScreen(ctx context.Context) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &screen{c: c, t: c.talk(), look: look{color: c.Screen.Color}, now: time.Now}
	s.t.Echo = true
	begin, err := s.begin(ctx)
	if err != nil {
		return Outcome{Session: c.Session.ID}, err
	}
	out := newPane(c.Screen.Out)
	program := tea.NewProgram(s, tea.WithInput(c.Stdin), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithContext(ctx), tea.WithEnvironment(c.Screen.Env))
	if s.l, err = c.link(ctx, func(in Input) { program.Send(in) }); err != nil {
		return Outcome{}, err
	}
	s.do(begin)
	go func() {
		for {
			select {
			case sig := <-c.Signals:
				program.Send(signalMsg{sig})
			case <-out.drawn:
				program.Send(drawnMsg{})
			case <-out.failed:
				program.Send(goneMsg{})
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	_, err = program.Run()
	return s.over(err)
}

// over returns how the conversation ended, and prints the text in the editor that was not sent.
func (s *screen) over(err error) (Outcome, error) {
	out := Outcome{Session: s.t.Session.ID, Code: 1}
	if s.question != "" {
		s.editor = s.draft
	}
	left := s.editor.Text()
	if s.end == nil && err == nil || s.end == nil && errors.Is(err, tea.ErrProgramKilled) {
		err = gone(s.t)
	}
	if s.end != nil {
		out.Code, out.Lost = s.end.Code, s.end.Lost
		if err == nil {
			err = s.end.Err
		}
		_ = s.c.Printer.Print(s.end.Lines...) // an error of printing is ignored: the exit code also tells how the chat ended
	}
	if left != "" {
		_ = s.c.Printer.Print(plain.Line{Text: "not sent:"}, plain.Line{Kind: plain.Own, Text: plain.Prose(left)})
	}
	return out, err
}

// gone returns the error for a terminal that can no longer be read or written.
func gone(t *Talk) error {
	return holdfast.Errorf(holdfast.KindUnavailable, "chat", "the terminal can no longer be read or written").WithHint("to come back: holdfast chat %s", t.name())
}

// begin fetches from the server what the screen shows first.
func (s *screen) begin(ctx context.Context) ([]Effect, error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	cl, err := s.c.Client(client.Config{})
	if err != nil {
		return nil, err
	}
	if s.t.Create != nil {
		m, err := cl.Models(ctx)
		if err != nil && holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.IsKind(err, holdfast.KindUnauthenticated) {
			return nil, err
		}
		s.t.Session.Model, s.t.Session.Mode = m.Default, holdfast.Mode(s.t.Create.Mode)
		if s.t.Create.Model != "" {
			s.t.Session.Model = s.t.Create.Model
		}
		return s.t.Begin(), nil
	}
	past, after, err := messages(ctx, cl, s.t.Session)
	if err != nil {
		return nil, err
	}
	s.history.Load(past)
	s.t.live.known = s.t.Session.LastSeq
	out := append(s.t.Begin(), Follow{s.t.Session.ID, after})
	if after == s.t.Session.LastSeq {
		return append(out, recall(s.t.Session.ID)), nil
	}
	s.t.recallAt = s.t.Session.LastSeq // the open questions are shown once the earlier turns have been shown
	return out, nil
}

// lookBack is how many events before the newest one the screen searches for messages, shownTurns
// how many earlier turns it shows.
const (
	lookBack   = 20_000
	shownTurns = 3
)

// messages returns the user's messages among the last lookBack events, and the number of the event
// after which the last shownTurns turns begin.
func messages(ctx context.Context, c *client.Client, s holdfast.Session) (past []string, after int64, err error) {
	after = s.LastSeq
	var starts []int64
	for at := max(0, s.LastSeq-lookBack); ; {
		const limit = 1000
		page, err := c.Events(ctx, s.ID, holdfast.EventFilter{After: at, Limit: limit, Types: []holdfast.EventType{holdfast.EventMessageUser}})
		if err != nil {
			return nil, 0, err
		}
		for _, ev := range page {
			var m holdfast.UserMessage
			if ev.Decode(&m) != nil {
				continue // the stream reports a damaged event
			}
			at, past = ev.Seq, append(past, m.Text())
			if !m.Steer {
				starts = append(starts, ev.Seq-1)
			}
		}
		if len(page) < limit {
			break
		}
	}
	if n := len(starts); n > 0 {
		after = starts[max(0, n-shownTurns)]
	}
	return past, after, nil
}

// Init is called by bubbletea.
func (s *screen) Init() tea.Cmd { return nil }

// Update is called by bubbletea with each message.
func (s *screen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	var cmds []tea.Cmd
	switch msg := msg.(type) {
	case Input:
		s.do(msg(s.t))
	case tea.KeyPressMsg:
		cmds = append(cmds, s.key(msg))
	case tea.PasteMsg:
		s.offers, s.search = nil, nil
		s.editor.Paste(msg.Content)
	case tea.WindowSizeMsg:
		s.look.width, s.height = max(msg.Width-1, 8), max(msg.Height, 4)
		s.resizes++
		cmds = append(cmds, tea.Tick(settled, func(time.Time) tea.Msg { return settledMsg{} }))
	case tea.ModeReportMsg:
		if msg.Mode == ansi.ModeUnicodeCore && (msg.Value == ansi.ModeReset || msg.Value == ansi.ModeSet || msg.Value == ansi.ModePermanentlySet) {
			s.look.method = ansi.GraphemeWidth
		}
	case signalMsg:
		if msg.Signal == os.Interrupt {
			s.do(s.t.Interrupt())
		} else {
			s.do(s.t.Leave(130))
		}
	case editedMsg:
		s.edited(msg)
	case offersMsg:
		s.offered(msg)
	case shownMsg:
		s.showing = false
	case drawnMsg:
		s.drawn = true
	case goneMsg:
		s.end, s.rows, s.lines = &Leave{Code: 1, Err: gone(s.t)}, nil, nil
	case settledMsg:
		s.resizes--
	case tickMsg:
		s.ticking = false
	}
	s.turnTo()
	return s, tea.Batch(append(cmds, s.next()...)...)
}

// do carries out effects.
func (s *screen) do(effects []Effect) {
	for _, e := range effects {
		switch e := e.(type) {
		case Show:
			s.say(e)
		case Restore:
			s.turnTo()
			if s.editor.Empty() {
				s.editor.Set(e.Text)
			} else {
				s.history.Add(e.Text)
				s.say([]plain.Line{{Text: "the message was not sent; Up brings it back"}})
			}
		case Leave:
			if s.end == nil {
				s.end = &e
			}
		default:
			s.l.do(e)
		}
	}
}

// say queues lines to be printed above the frame.
func (s *screen) say(lines []plain.Line) { s.lines = append(s.lines, lines...) }

// turnTo gives the editor to a new question, or back to the message that was being written.
func (s *screen) turnTo() {
	a, _ := s.t.Question()
	if a.ID == s.question {
		return
	}
	if s.question == "" {
		s.draft = s.editor
	}
	s.editor, s.search, s.offers = compose.Editor{}, nil, nil
	if s.question = a.ID; a.ID == "" {
		s.editor, s.draft = s.draft, compose.Editor{}
	}
}

// settled is how long nothing is printed above the frame after a change of the size: rows that
// are broken for another width would run into each other.
const settled = 80 * time.Millisecond

// next returns the commands that follow each message. Rows are printed above in order, a few at
// a time, because they must fit the terminal together with the frame. The clock ticks while
// something runs. At the end, when all is shown, the program quits.
func (s *screen) next() (cmds []tea.Cmd) {
	// Rows need the width of the terminal, but a screen that ends does not wait for it.
	sized := s.look.width > 0 || s.end != nil
	if s.drawn && sized && !s.showing && s.resizes == 0 {
		if len(s.rows) == 0 {
			s.rows, s.lines = s.look.lines(s.lines), nil
		}
		if n := min(len(s.rows), max(1, s.height-s.most()-1)); n > 0 {
			above := strings.Join(s.rows[:n], "\n")
			if above == "" {
				above = " " // print a space for an empty text, because the empty text would show no row
			}
			s.rows, s.showing = s.rows[n:], true
			cmds = append(cmds, tea.Sequence(tea.Println(above), func() tea.Msg { return shownMsg{} }))
		}
	}
	if _, running := s.t.Running(); !s.ticking && (running || s.t.live.away || len(s.t.live.Outbox) > 0) {
		s.ticking = true
		cmds = append(cmds, tea.Tick(time.Second, func(time.Time) tea.Msg { return tickMsg{} }))
	}
	if s.end != nil && len(s.rows)+len(s.lines) == 0 && !s.showing && !s.quitting {
		s.quitting = true
		cmds = append(cmds, tea.Quit)
	}
	return cmds
}
