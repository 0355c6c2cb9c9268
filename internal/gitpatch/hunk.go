package gitpatch

import (
	"bufio"
	"bytes"
	"fmt"
)

// contextLines is how many equal lines surround a change. Changes with at most twice as many between them
// are one hunk.
const contextLines = 3

// count returns how many lines are added and removed.
func (d *comparison) count() (added, removed int) {
	for _, e := range d.edits {
		added += e.b1 - e.b0
		removed += e.a1 - e.a0
	}
	return added, removed
}

// write writes the edits of a comparison as the hunks of a patch.
func (d *comparison) write(out *bufio.Writer) error {
	var heading []byte
	for limit := 0; len(d.edits) > 0; {
		n := 1
		for n < len(d.edits) && d.edits[n].a0-d.edits[n-1].a1 <= 2*contextLines {
			n++
		}
		start := d.old.at(d.edits[0].a0 - d.lead())
		if found := findHeading(d.old.data[limit:start]); found != nil {
			heading = found
		}
		if err := d.hunk(out, n, heading); err != nil {
			return err
		}
		limit, d.edits = start, d.edits[n:]
	}
	return nil
}

// lead returns how many unchanged lines a hunk shows before its first edit: contextLines, or fewer at the start of the
// file.
func (d *comparison) lead() int { return min(contextLines, d.edits[0].a0+d.before) }

// hunk writes one hunk: the next n edits with the unchanged lines around them.
func (d *comparison) hunk(out *bufio.Writer, n int, heading []byte) error {
	first, last := d.edits[0], d.edits[n-1]
	lead := d.lead()
	trail := min(contextLines, d.old.lines-last.a1+d.old.after(contextLines))
	out.WriteString("@@ -")
	span(out, first.a0-lead+d.before, last.a1+trail+d.before)
	out.WriteString(" +")
	span(out, first.b0-lead+d.before, last.b1+trail+d.before)
	out.WriteString(" @@")
	if len(heading) > 0 {
		out.WriteByte(' ')
		out.Write(heading)
	}
	out.WriteByte('\n')
	at := first.a0 - lead
	for _, e := range d.edits[:n] {
		writeLines(out, ' ', d.old.data[d.old.at(at):d.old.at(e.a0)])
		writeLines(out, '-', d.old.data[d.old.at(e.a0):d.old.at(e.a1)])
		writeLines(out, '+', d.now.data[d.now.at(e.b0):d.now.at(e.b1)])
		at = e.a1
	}
	writeLines(out, ' ', d.old.data[d.old.at(at):d.old.at(last.a1+trail)])
	_, err := out.Write(nil)
	return err
}

// span writes a range of lines as in the head of a hunk: the number of the first line, counted from 1, a comma, and how
// many lines there are; a single line has no count. For an empty range it writes the number of the line before it, and 0.
func span(out *bufio.Writer, from, to int) {
	switch to - from {
	case 0:
		fmt.Fprintf(out, "%d,0", from)
	case 1:
		fmt.Fprintf(out, "%d", from+1)
	default:
		fmt.Fprintf(out, "%d,%d", from+1, to-from)
	}
}

func writeLines(out *bufio.Writer, prefix byte, lines []byte) {
	for len(lines) > 0 {
		out.WriteByte(prefix)
		n := bytes.IndexByte(lines, '\n')
		if n < 0 {
			out.Write(lines)
			out.WriteString("\n\\ No newline at end of file\n")
			return
		}
		out.Write(lines[:n+1])
		lines = lines[n+1:]
	}
}

// headingBytes is the length of a heading at most.
const headingBytes = 80

// findHeading returns the last line that begins with a letter, _ or $, without the spaces at its end: mostly the
// head of the function that a hunk is in. git shows it behind a hunk's line numbers.
func findHeading(lines []byte) []byte {
	for len(lines) > 0 {
		at := bytes.LastIndexByte(lines[:len(lines)-1], '\n') + 1
		if c := lines[at]; c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == '$' {
			line := bytes.TrimSuffix(lines[at:], newline)
			return bytes.TrimRight(line[:min(len(line), headingBytes)], " \t\r\n")
		}
		lines = lines[:at]
	}
	return nil
}
