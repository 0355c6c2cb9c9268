package chat

import (
	"regexp"
	"strings"
)

var (
	heading = regexp.MustCompile(`^#{1,6} +(.*)$`)
	item    = regexp.MustCompile(`^(\s*)([-*+]|\d{1,4}[.)]) +(.*)$`)
	inline  = regexp.MustCompile("(`+)(.+?)(`+)" + `|\B\*\*([^*\s](?:[^*]*[^*\s])?)\*\*\B|\B\*([^*\s](?:[^*]*[^*\s])?)\*\B|\b_([^_\s](?:[^_]*[^_\s])?)_\b`)
)

// markdown renders an answer as rows. Without styles, the marks of Markdown stay in the text. Links
// always stay as they were written, so that no address is hidden.
func (k look) markdown(s string) (rows []string) {
	fence := ""
	for l := range strings.SplitSeq(strings.TrimRight(s, "\n"), "\n") {
		trimmed := strings.TrimSpace(l)
		mark := fenceOf(trimmed)
		switch {
		case fence == "" && mark != "":
			fence = mark
			rows = append(rows, k.block("", faint, trimmed)...)
		case fence != "" && strings.HasPrefix(mark, fence) && strings.Trim(trimmed, fence[:1]) == "":
			fence = ""
			rows = append(rows, k.block("", faint, trimmed)...)
		case fence != "":
			rows = append(rows, k.block("  ", code, l)...)
		default:
			rows = append(rows, k.prose(l)...)
		}
	}
	return rows
}

// fenceOf returns the code fence that a line begins with, or "".
func fenceOf(l string) string {
	for _, c := range []string{"`", "~"} {
		if n := len(l) - len(strings.TrimLeft(l, c)); n >= 3 {
			return strings.Repeat(c, n)
		}
	}
	return ""
}

// prose renders a line that is outside of code blocks.
func (k look) prose(l string) []string {
	if !k.color {
		return k.wrap("", l)
	}
	if m := heading.FindStringSubmatch(l); m != nil {
		return k.block("", strong, m[1])
	}
	if m := item.FindStringSubmatch(l); m != nil {
		mark := m[2]
		if strings.Contains("-*+", mark) {
			mark = "•"
		}
		return k.wrap(strings.Repeat(" ", min(len(m[1]), 8))+mark+" ", k.spans(m[3]))
	}
	if rest, ok := strings.CutPrefix(l, "> "); ok {
		return k.block("│ ", faint, rest)
	}
	return k.wrap("", k.spans(l))
}

// spans styles the bold, italic and code spans of a line.
func (k look) spans(l string) string {
	var b strings.Builder
	for {
		m := inline.FindStringSubmatchIndex(l)
		if m == nil {
			b.WriteString(l)
			return b.String()
		}
		b.WriteString(l[:m[0]])
		group := func(i int) string { return l[m[2*i]:m[2*i+1]] }
		switch {
		case m[2] >= 0 && len(group(1)) == len(group(3)):
			b.WriteString(k.paint(code, group(2)))
		case m[8] >= 0:
			b.WriteString(k.paint(strong, group(4)))
		case m[10] >= 0:
			b.WriteString(k.paint(slanted, group(5)))
		case m[12] >= 0:
			b.WriteString(k.paint(slanted, group(6)))
		default:
			b.WriteString(l[m[0]:m[1]])
		}
		l = l[m[1]:]
	}
}
