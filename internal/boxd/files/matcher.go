package files

import (
	"bytes"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// maxCount is how many matches of a multi-line expression are found in one file at most.
const maxCount = 100_000

// matcher finds a regular expression in file contents. lit is a text that every match contains, or
// empty: the search for lit, which comes first, is many times faster than the expression.
type matcher struct {
	re        *regexp.Regexp
	lit       []byte
	multiline bool
	// late, if set, reports whether the time of the search is up. It is called now and then between
	// lines, but not by a multi-line search.
	late func() bool
}

func newMatcher(op string, req wire.GrepRequest) (matcher, error) {
	m := matcher{multiline: req.Multiline}
	if req.Pattern == "" {
		return m, holdfast.Errorf(holdfast.KindInvalid, op, "the search pattern is empty")
	}
	if len(req.Pattern) > maxGrepPattern {
		return m, holdfast.Errorf(holdfast.KindInvalid, op, "the search pattern has %d bytes, more than %d", len(req.Pattern), maxGrepPattern)
	}
	flags := ""
	if req.IgnoreCase {
		flags += "i"
	}
	if req.Multiline {
		flags += "ms"
	}
	src := req.Pattern
	if flags != "" {
		src = "(?" + flags + ")" + src
	}
	re, err := regexp.Compile(src)
	if err != nil {
		return m, holdfast.Errorf(holdfast.KindInvalid, op, "the search pattern %s is invalid: %s", holdfast.Quote(req.Pattern), reason(err)).
			WithHint("search patterns have the syntax RE2: no look-around, no back-references")
	}
	m.re = re
	if tree, err := syntax.Parse(src, syntax.Perl); err == nil {
		m.lit = []byte(required(tree.Simplify()))
	}
	if !m.multiline && bytes.IndexByte(m.lit, '\n') >= 0 {
		return m, holdfast.Errorf(holdfast.KindInvalid, op, "the search pattern %s contains a line end, so it matches no single line", holdfast.Quote(req.Pattern)).
			WithHint("set multiline in the search")
	}
	return m, nil
}

func reason(err error) string {
	return strings.TrimPrefix(err.Error(), "error parsing regexp: ")
}

// required returns a text that every match of the expression contains: the longest that it finds
// without much effort, or "".
func required(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return ""
		}
		text := string(re.Rune)
		if strings.ContainsRune(text, utf8.RuneError) {
			return "" // U+FFFD matches an invalid byte as well
		}
		return text
	case syntax.OpCapture, syntax.OpPlus:
		return required(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return required(re.Sub[0])
		}
	case syntax.OpConcat:
		best := ""
		for _, sub := range re.Sub {
			if text := required(sub); len(text) > len(best) {
				best = text
			}
		}
		return best
	}
	return ""
}

// possible returns false if data cannot contain a match, because it is empty or does not contain lit.
func (m matcher) possible(data []byte) bool {
	return len(data) > 0 && (len(m.lit) == 0 || bytes.Contains(data, m.lit))
}

// each calls yield for every matching line, in order, until yield returns false or the time of the
// search is up. yield gets the offsets where the line starts and ends, and its number, counted from
// 1. A match of several lines makes each of them a matching line.
func (m matcher) each(data []byte, yield func(start, end, no int) bool) {
	if m.multiline {
		m.eachMulti(data, yield)
		return
	}
	for pos, no, n := 0, 1, 0; pos < len(data); n++ {
		if n%256 == 255 && m.late != nil && m.late() {
			return
		}
		start := pos
		if len(m.lit) > 0 {
			i := bytes.Index(data[pos:], m.lit)
			if i < 0 {
				return
			}
			start = lineStart(data, pos+i)
			no += bytes.Count(data[pos:start], newline)
		}
		end := lineEnd(data, start)
		if m.re.Match(trimCR(data[start:end])) && !yield(start, end, no) {
			return
		}
		pos, no = end+1, no+1
	}
}

func (m matcher) eachMulti(data []byte, yield func(start, end, no int) bool) {
	pos, no := 0, 1
	for _, at := range m.re.FindAllIndex(data, maxCount) {
		first := min(at[0], len(data)-1)
		last := max(first, at[1]-1)
		start := lineStart(data, first)
		if start < pos {
			start = pos // the previous match ended in the line in which this match starts
		}
		no += bytes.Count(data[pos:start], newline)
		for start <= last {
			end := lineEnd(data, start)
			if !yield(start, end, no) {
				return
			}
			start, no = end+1, no+1
		}
		pos = start
		if pos >= len(data) {
			return
		}
	}
}

// count returns the number of matching lines, or for a multi-line expression the number of matches, at most maxCount.
func (m matcher) count(data []byte) (n int) {
	if m.multiline {
		return len(m.re.FindAllIndex(data, maxCount))
	}
	m.each(data, func(int, int, int) bool { n++; return true })
	return n
}

var newline = []byte{'\n'}

// lineStart returns the offset of the first byte of the line that contains offset i.
func lineStart(data []byte, i int) int {
	return bytes.LastIndexByte(data[:i], '\n') + 1
}

// lineEnd returns the offset of the newline that ends the line at offset i; the length of data if no newline follows.
func lineEnd(data []byte, i int) int {
	if n := bytes.IndexByte(data[i:], '\n'); n >= 0 {
		return i + n
	}
	return len(data)
}

func trimCR(line []byte) []byte { return bytes.TrimSuffix(line, []byte{'\r'}) }
