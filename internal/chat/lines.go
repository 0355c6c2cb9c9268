package chat

import (
	"bufio"
	"context"
	"io"
	"os"
	"strings"

	"github.com/holdfast-run/holdfast/internal/chat/compose"
	"github.com/holdfast-run/holdfast/internal/plain"
)

// lines is the front end without an editor: it reads lines from stdin, writes answers to stdout
// and the rest to stderr. Its fields belong to the goroutine of run.
type lines struct {
	c        *Chat
	t        *Talk
	l        *link
	prompted string // the prompt that is on the terminal's line now; empty for none
}

// Lines runs the conversation line by line. If no person types, each line waits for the end of
// the turn before it.
func (c *Chat) Lines(ctx context.Context, live bool) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	inputs := make(chan Input)
	l, err := c.link(ctx, func(in Input) {
		select {
		case inputs <- in:
		case <-ctx.Done():
		}
	})
	if err != nil {
		return Outcome{}, err
	}
	f := &lines{c: c, t: c.talk(), l: l}
	f.t.Teller.Live = live
	return f.run(ctx, inputs)
}

func (f *lines) run(ctx context.Context, inputs <-chan Input) (Outcome, error) {
	typed := make(chan string)
	go f.read(ctx, typed)
	effects := f.t.Begin()
	if f.t.Create == nil {
		effects = append(effects, Follow{f.t.Session.ID, f.t.Session.LastSeq})
		if f.t.Person && !f.t.JSON {
			effects = append(effects, recall(f.t.Session.ID))
		}
	}
	for {
		if end, err := f.apply(effects); end != nil || err != nil {
			return f.over(end, err)
		}
		take := typed
		switch _, question := f.t.Question(); {
		case (f.t.Idle() || question) && f.t.Person:
			f.prompt()
		case !f.t.Idle() && (!f.t.Person || typed == nil):
			take = nil
		case f.t.Idle() && typed == nil:
			end, err := f.apply(f.t.Leave(0))
			return f.over(end, err)
		}
		select {
		case in := <-inputs:
			effects = in(f.t)
		case l, ok := <-take:
			f.prompted = ""
			switch {
			case ok:
				effects = f.t.Line(l)
			case f.t.Person:
				effects = f.t.Leave(0)
			default:
				typed, effects = nil, nil
			}
		case s := <-f.c.Signals:
			if s == os.Interrupt {
				effects = f.t.Interrupt()
			} else {
				effects = f.t.Leave(130)
			}
		}
	}
}

// apply carries out effects. end is set once the conversation is over.
func (f *lines) apply(effects []Effect) (end *Leave, err error) {
	for _, e := range effects {
		switch e := e.(type) {
		case Show:
			err = f.show(e)
		case Print:
			f.unprompt()
			err = f.c.PrintJSON(e.Event)
		case Restore:
			if f.t.Person {
				err = f.show([]plain.Line{{Kind: plain.Own, Text: plain.Prose(e.Text)}})
			}
		case Leave:
			return &e, f.show(e.Lines)
		default:
			f.l.do(e)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (f *lines) over(end *Leave, err error) (Outcome, error) {
	out := Outcome{Session: f.t.Session.ID}
	if end != nil {
		out.Code, out.Lost = end.Code, end.Lost
		if err == nil {
			err = end.Err
		}
	}
	return out, err
}

func (f *lines) show(lines []plain.Line) error {
	f.unprompt()
	return f.c.Printer.Print(lines...)
}

// prompt shows the prompt for the next line, unless it is shown already or the chat prints JSON.
func (f *lines) prompt() {
	if f.prompted != "" || f.t.JSON {
		return
	}
	f.prompted = "> "
	if _, ok := f.t.Question(); ok {
		f.prompted = "y once, s session, w workspace, n deny [reason] > "
	}
	_, _ = io.WriteString(f.c.Printer.Err, f.prompted)
}

// unprompt removes the prompt so that another line can be printed; what the user has typed
// remains in the terminal's input.
func (f *lines) unprompt() {
	if f.prompted != "" {
		_, _ = io.WriteString(f.c.Printer.Err, "\r"+strings.Repeat(" ", len(f.prompted))+"\r")
	}
	f.prompted = ""
}

// read sends the lines of stdin to a channel. If the chat ends first, read stays blocked in its
// last read.
func (f *lines) read(ctx context.Context, to chan<- string) {
	defer close(to)
	in := bufio.NewReader(f.c.Stdin)
	for {
		l, err := in.ReadString('\n')
		if l != "" {
			if l = strings.TrimRight(l, "\r\n"); f.c.Person {
				l = compose.Clean(l)
			}
			select {
			case to <- l:
			case <-ctx.Done():
				return
			}
		}
		if err != nil {
			return
		}
	}
}
