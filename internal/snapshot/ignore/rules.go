package ignore

import (
	"bytes"
	"strings"
)

const (
	// MaxFile is how many bytes a .gitignore file may have. A longer one counts as empty.
	MaxFile = 256 << 10
	// maxPattern is how many bytes a pattern may have. A longer one matches nothing.
	maxPattern = 1024
)

// rules are the patterns of one .gitignore file. Of the patterns that match a path, the last in the file decides.
type rules struct {
	// names holds the patterns that are a plain name, with two verdicts for each name: that of the last pattern that holds
	// for a file of this name, and that of the last for a directory. rest are the other patterns, in the order of the
	// file.
	names map[string][2]verdict
	rest  []rule
	// last is the number of patterns in the file so far: the place of the last one, counted from 1.
	last int
}

// verdict is what a pattern says of a path that it matches.
type verdict struct {
	// place is the pattern's place in the file, from 1; the zero verdict says nothing.
	place   int
	negated bool
}

// rule is one pattern.
type rule struct {
	verdict
	dirOnly bool
	// name says that the pattern has no slash, so that it matches names at every depth.
	name bool
	// prefix is the literal text with which the pattern begins, glob is the rest.
	prefix string
	glob   glob
	// suffix is the literal text after the star, if the pattern is simple: a single star and text, as *.o.
	suffix string
	simple bool
}

// parse reads a .gitignore file as git does.
func parse(data []byte) *rules {
	r := &rules{names: map[string][2]verdict{}}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	for line := range bytes.SplitSeq(data, []byte("\n")) {
		line = bytes.TrimSuffix(line, []byte("\r"))
		if nul := bytes.IndexByte(line, 0); nul >= 0 {
			line = line[:nul]
		}
		if len(line) > 0 && line[0] != '#' {
			r.add(trimSpaces(string(line)))
		}
	}
	return r
}

// trimSpaces removes the spaces at the end of a line, unless a backslash quotes them.
func trimSpaces(line string) string {
	end := 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case ' ':
			continue
		case '\\':
			if i++; i == len(line) {
				return line
			}
		}
		end = i + 1
	}
	return line[:end]
}

func (r *rules) add(text string) {
	var one rule
	if one.negated = strings.HasPrefix(text, "!"); one.negated {
		text = text[1:]
	}
	if one.dirOnly = strings.HasSuffix(text, "/"); one.dirOnly {
		text = text[:len(text)-1]
	}
	if text == "" || len(text) > maxPattern {
		return
	}
	one.name = !strings.Contains(text, "/")
	if !one.name {
		text = strings.TrimPrefix(text, "/")
	}
	literal := strings.IndexAny(text, `*?[\`)
	if literal < 0 {
		literal = len(text)
	}
	r.last++
	one.place = r.last
	switch {
	case one.name && literal == len(text):
		last := r.names[text]
		if last[1] = one.verdict; !one.dirOnly {
			last[0] = one.verdict
		}
		r.names[text] = last
		return
	case one.name && literal == 0 && text[0] == '*' && !strings.ContainsAny(text[1:], `*?[\`):
		one.simple, one.suffix = true, text[1:]
	default:
		one.prefix = text[:literal]
		var ok bool
		if one.glob, ok = compile(text[literal:]); !ok {
			return
		}
	}
	r.rest = append(r.rest, one)
}

// decide returns what the rules say about a path, which is relative to the directory of their file: whether one
// matches, and whether the path is ignored then. It adds its work to steps.
func (r *rules) decide(rel string, dir bool, steps *int) (found, ignored bool) {
	name := rel[strings.LastIndexByte(rel, '/')+1:]
	best := r.names[name][0]
	if dir {
		best = r.names[name][1]
	}
	for i := len(r.rest) - 1; i >= 0 && r.rest[i].place > best.place; i-- {
		one := &r.rest[i]
		*steps++
		if one.dirOnly && !dir {
			continue
		}
		text := rel
		if one.name {
			text = name
		}
		if one.matches(text, steps) {
			best = one.verdict
		}
	}
	return best.place > 0, best.place > 0 && !best.negated
}

func (r *rule) matches(text string, steps *int) bool {
	if r.simple {
		return strings.HasSuffix(text, r.suffix)
	}
	rest, ok := strings.CutPrefix(text, r.prefix)
	if !ok {
		return false
	}
	return r.glob.match(rest, steps)
}
