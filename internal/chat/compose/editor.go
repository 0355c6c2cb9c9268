package compose

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/charmbracelet/x/ansi"

	"github.com/holdfast-run/holdfast/internal/plain"
)

// Editor is a text with a cursor. The cursor moves by grapheme clusters, which are what
// people take for characters. The zero value is an empty text.
type Editor struct {
	cells []cell
	at    int // the cursor stands before this cell
}

// cell is a grapheme cluster, or a long paste, which counts as one character.
type cell struct {
	text  string
	label string // shown instead of text for a long paste, else empty
	// look is the text as shown on the screen; wide is its width in columns by each method of
	// measuring (ansi.Method).
	look string
	wide [2]int
}

func newCell(text, label string) cell {
	look := label
	switch {
	case label != "":
	case text == "\t":
		look = "    "
	case ansi.StringWidth(text) == 0:
		look = plain.OneLine(text)
	default:
		look = plain.Prose(text)
	}
	return cell{text, label, look, [2]int{ansi.WcWidth: ansi.WcWidth.StringWidth(look), ansi.GraphemeWidth: ansi.GraphemeWidth.StringWidth(look)}}
}

// A paste of more than foldBytes bytes or foldLines lines is shown as a label that counts as one
// character. Text still returns all of it.
const (
	foldBytes = 2000
	foldLines = 8
)

// Text returns the whole text.
func (e *Editor) Text() string {
	var b strings.Builder
	for _, c := range e.cells {
		b.WriteString(c.text)
	}
	return b.String()
}

// Empty reports whether the text is empty.
func (e *Editor) Empty() bool { return len(e.cells) == 0 }

// AtEnd reports whether the cursor is at the end of the text.
func (e *Editor) AtEnd() bool { return e.at == len(e.cells) }

// Set replaces the text and puts the cursor at its end.
func (e *Editor) Set(s string) {
	*e = Editor{}
	e.Paste(s)
}

// Insert adds a text at the cursor. A combining character joins the character before it.
func (e *Editor) Insert(s string) {
	s = Clean(s)
	from := e.at
	if from > 0 && e.cells[from-1].label == "" && e.cells[from-1].text != "\n" {
		from--
		s = e.cells[from].text + s
	}
	e.replace(from, e.at, clusters(s))
}

// Paste adds a text at the cursor; a long one is shown as a label.
func (e *Editor) Paste(s string) {
	s = Clean(s)
	lines := strings.Count(s, "\n") + 1
	if len(s) <= foldBytes && lines <= foldLines {
		e.Insert(s)
		return
	}
	label := fmt.Sprintf("[pasted: %s, %s]", plain.Count(lines, "line", "lines"), plain.Size(int64(len(s))))
	e.replace(e.at, e.at, []cell{newCell(s, label)})
}

// replace removes the cells from index from up to, but not including, index to, and puts the cells of
// with there. The cursor is behind them then.
func (e *Editor) replace(from, to int, with []cell) {
	out := append([]cell(nil), e.cells[:from]...)
	out = append(out, with...)
	e.cells, e.at = append(out, e.cells[to:]...), from+len(with)
}

func clusters(s string) (out []cell) {
	for s != "" {
		c, _ := ansi.FirstGraphemeCluster(s, ansi.GraphemeWidth)
		if c == "" {
			_, n := utf8.DecodeRuneInString(s)
			c = s[:n]
		}
		out = append(out, newCell(c, ""))
		s = s[len(c):]
	}
	return out
}

// Left moves to the previous character.
func (e *Editor) Left() { e.at = max(0, e.at-1) }

// Right moves to the next character.
func (e *Editor) Right() { e.at = min(len(e.cells), e.at+1) }

// WordLeft moves to the beginning of the word before the cursor.
func (e *Editor) WordLeft() { e.at = e.wordLeft() }

// WordRight moves behind the end of the next word.
func (e *Editor) WordRight() { e.at = e.wordRight() }

func (e *Editor) wordLeft() int {
	i := e.at
	for i > 0 && !e.cells[i-1].word() {
		i--
	}
	for i > 0 && e.cells[i-1].word() {
		i--
	}
	return i
}

func (e *Editor) wordRight() int {
	i := e.at
	for i < len(e.cells) && !e.cells[i].word() {
		i++
	}
	for i < len(e.cells) && e.cells[i].word() {
		i++
	}
	return i
}

func (c cell) word() bool {
	r, _ := utf8.DecodeRuneInString(c.text)
	return c.label != "" || unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_'
}

// Home moves to the beginning of the line.
func (e *Editor) Home() { e.at = e.lineStart() }

// End moves to the end of the line.
func (e *Editor) End() { e.at = e.lineEnd() }

func (e *Editor) lineStart() int {
	i := e.at
	for i > 0 && e.cells[i-1].text != "\n" {
		i--
	}
	return i
}

func (e *Editor) lineEnd() int {
	i := e.at
	for i < len(e.cells) && e.cells[i].text != "\n" {
		i++
	}
	return i
}

// Backspace removes the character before the cursor.
func (e *Editor) Backspace() {
	if e.at > 0 {
		e.replace(e.at-1, e.at, nil)
	}
}

// Delete removes the character at the cursor.
func (e *Editor) Delete() {
	if e.at < len(e.cells) {
		at := e.at
		e.replace(at, at+1, nil)
	}
}

// DeleteWord removes the text from the beginning of the word before the cursor to the cursor.
func (e *Editor) DeleteWord() { e.replace(e.wordLeft(), e.at, nil) }

// DeleteWordRight removes the text from the cursor to the end of the next word.
func (e *Editor) DeleteWordRight() { e.replace(e.at, e.wordRight(), nil) }

// DeleteLeft removes the text from the beginning of the line to the cursor.
func (e *Editor) DeleteLeft() { e.replace(e.lineStart(), e.at, nil) }

// DeleteRight removes the text from the cursor to the end of the line.
func (e *Editor) DeleteRight() { e.replace(e.at, e.lineEnd(), nil) }

// row is a row of the screen: the cells from one index up to another.
type row struct{ from, to int }

// rows breaks the text at line ends and where a row is full.
func (e *Editor) rows(width int, m ansi.Method) (out []row) {
	from, x := 0, 0
	for i, c := range e.cells {
		if c.text == "\n" {
			out = append(out, row{from, i})
			from, x = i+1, 0
			continue
		}
		w := min(c.wide[m], width)
		if x+w > width && x > 0 {
			out = append(out, row{from, i})
			from, x = i, 0
		}
		x += w
	}
	return append(out, row{from, len(e.cells)})
}

// shown returns the text of a cell for the screen, cut to a width.
func (c cell) shown(width int, m ansi.Method) string {
	if c.wide[m] > width {
		return m.Truncate(c.look, width, "…")
	}
	return c.look
}

// Rows returns the text as rows of at most width columns, and the column and row of the cursor.
func (e *Editor) Rows(width int, m ansi.Method) (text []string, x, y int) {
	width = max(width, 1)
	for i, r := range e.rows(width, m) {
		var b strings.Builder
		at := 0
		for j, c := range e.cells[r.from:r.to] {
			if r.from+j == e.at {
				x, y = at, i
			}
			at += min(c.wide[m], width)
			b.WriteString(c.shown(width, m))
		}
		if e.at == r.to {
			x, y = at, i
		}
		text = append(text, b.String())
	}
	if x >= width { // the row is full: the next character goes below
		x, y = 0, y+1
		if y == len(text) {
			text = append(text, "")
		}
	}
	return text, x, y
}

// Up moves the cursor a row up, and reports false in the first row.
func (e *Editor) Up(width int, m ansi.Method) bool { return e.vertical(width, m, -1) }

// Down moves the cursor a row down, and reports false in the last row.
func (e *Editor) Down(width int, m ansi.Method) bool { return e.vertical(width, m, 1) }

func (e *Editor) vertical(width int, m ansi.Method, by int) bool {
	width = max(width, 1)
	rows := e.rows(width, m)
	_, x, y := e.Rows(width, m)
	y = min(y, len(rows)-1)
	if y+by < 0 || y+by >= len(rows) {
		return false
	}
	to := rows[y+by]
	e.at = to.from
	for w := 0; e.at < to.to; e.at++ {
		if w += min(e.cells[e.at].wide[m], width); w > x {
			break
		}
	}
	return true
}
