package plain

import "io"

// Printer writes lines: answers and data to Out, all others to Err. Style returns the terminal
// sequence of a style; nil for output without styles.
type Printer struct {
	Out, Err io.Writer
	Style    func(Style) string

	mid bool // the cursor is within a line of an answer
}

// Style is the look of a line on a terminal.
type Style int

// The styles.
const (
	Dim Style = iota
	Red
	Green
	Reset
)

// Print writes lines. It returns an error if writing to Out fails; errors of writing to Err are ignored.
func (p *Printer) Print(lines ...Line) error {
	for _, l := range lines {
		if err := p.line(l); err != nil {
			return err
		}
	}
	return nil
}

func (p *Printer) line(l Line) error {
	style, before := Dim, ""
	switch l.Kind {
	case Answer:
		return p.answer(l.Text)
	case Data:
		if err := p.Break(); err != nil {
			return err
		}
		_, err := io.WriteString(p.Out, l.Text+"\n")
		return err
	case Break:
		return p.Break()
	case Added:
		style, before = Green, "    + "
	case Removed:
		style, before = Red, "    - "
	case Context, Thought:
		before = "      "
	case Own:
		before = "> "
	case Trouble:
		style = Red
	case Hint:
		style = Reset
	}
	err := p.Break()
	on, off := p.style(style), p.style(Reset)
	if style == Reset {
		on, off = "", ""
	}
	_, _ = io.WriteString(p.Err, on+before+l.Text+off+"\n")
	return err
}

func (p *Printer) answer(s string) error {
	if s == "" {
		return nil
	}
	p.mid = s[len(s)-1] != '\n'
	_, err := io.WriteString(p.Out, s)
	return err
}

// Break ends a line of an answer before something else is shown.
func (p *Printer) Break() error {
	if !p.mid {
		return nil
	}
	p.mid = false
	_, err := io.WriteString(p.Out, "\n")
	return err
}

func (p *Printer) style(s Style) string {
	if p.Style == nil {
		return ""
	}
	return p.Style(s)
}
