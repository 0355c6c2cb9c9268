package pattern

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/holdfast-run/holdfast"
)

const (
	// maxPattern is the longest pattern, in bytes; the longest path has the same length.
	maxPattern = 4096
	// maxAlternatives is how many patterns without braces the braces of a pattern may expand to.
	maxAlternatives = 1000
	// maxExpansion is how many bytes of patterns the expansion of braces may produce, because the
	// time and memory to compile them grow with these bytes.
	maxExpansion = 256 << 10
)

// Pattern is a compiled glob. It consists of alternatives, one for each pattern to which the braces
// expand; an alternative is a list of segments. A path matches if it matches an alternative,
// component by component. A character is a valid UTF-8 sequence, or one byte that is not part of any.
type Pattern struct {
	alts [][]segment
}

// segment is one component of a pattern. deep is true for the segment "**", which matches any number
// of path components, also none. Any other segment consists of items, in order.
type segment struct {
	deep  bool
	items []item
}

// item matches any number of characters if star is true, otherwise one character: any character if
// any is true, a character of class, or lit.
type item struct {
	star, any bool
	lit       rune
	// class holds the ranges of a class such as [a-z]: for each range its first and its last
	// character. If negate is true, the item matches the characters outside these ranges.
	class  []rune
	negate bool
}

// badByte is added to a byte that is not valid UTF-8: the sum is the number of a character that Unicode does not have.
const badByte = 0x110000

// Compile compiles a glob. The special forms are * ? [a-z] [!a-z] {a,b} ** and \ before a character.
// "**" is special only if it is a whole component; in a longer component it means "*". Empty and "."
// components are dropped; a ".." component is an error. "**" at the end matches everything below a
// directory, but not the directory itself.
func Compile(op, src string) (*Pattern, error) {
	bad := func(why string) error {
		return holdfast.Errorf(holdfast.KindInvalid, op, "the pattern %s is invalid: %s", holdfast.Quote(src), why).
			WithHint(`write \ before a special character that is meant literally`)
	}
	if len(src) > maxPattern {
		return nil, bad("it is longer than 4096 bytes")
	}
	b := braces{left: maxExpansion}
	if why := b.expand(src); why != "" {
		return nil, bad(why)
	}
	p := &Pattern{}
	for _, text := range b.texts {
		var segs []segment
		for part := range strings.SplitSeq(text, "/") {
			switch part {
			case "", ".":
				continue
			case "..":
				return nil, bad(`".." may only stand before the first wildcard`)
			case "**":
				if n := len(segs); n == 0 || !segs[n-1].deep {
					segs = append(segs, segment{deep: true})
				}
				continue
			}
			items, why := compileSegment(part)
			if why != "" {
				return nil, bad(why)
			}
			segs = append(segs, segment{items: items})
		}
		if n := len(segs); n > 0 && segs[n-1].deep {
			segs = append(segs, segment{items: []item{{star: true}}})
		}
		if len(segs) > 0 {
			p.alts = append(p.alts, segs)
		}
	}
	if len(p.alts) == 0 {
		return nil, bad("it has no path component")
	}
	return p, nil
}

// braces expands the braces of a pattern, up to maxAlternatives patterns and maxExpansion bytes. texts are the results.
type braces struct {
	texts []string
	// left is how many more bytes the expansion may produce.
	left int
}

// expand appends to texts the patterns without braces to which src expands. If src is invalid or
// exceeds a limit, why is the reason; otherwise it is empty.
func (b *braces) expand(src string) (why string) {
	open, depth, start := -1, 0, 0
	var options []string
	for i := 0; i < len(src); i++ {
		switch src[i] {
		case '\\':
			i++
		case '[':
			i = skipClass(src, i)
		case '{':
			if depth++; depth == 1 {
				open, start = i, i+1
			}
		case ',':
			if depth == 1 {
				options = append(options, src[start:i])
				start = i + 1
			}
		case '}':
			if depth == 0 {
				continue
			}
			if depth--; depth > 0 {
				continue
			}
			for _, o := range append(options, src[start:i]) {
				if b.left -= open + len(o) + len(src) - i; b.left < 0 {
					return "the braces stand for more than 256 KiB of patterns"
				}
				if why := b.expand(src[:open] + o + src[i+1:]); why != "" {
					return why
				}
			}
			return ""
		}
	}
	if depth > 0 {
		return "a { is not closed"
	}
	if len(b.texts) == maxAlternatives {
		return "the braces stand for more than 1000 patterns"
	}
	b.texts = append(b.texts, src)
	return ""
}

// skipClass returns the index of the ] that closes the class whose [ is at index i, or i if no ] closes it.
func skipClass(src string, i int) int {
	j := i + 1
	if j < len(src) && (src[j] == '!' || src[j] == '^') {
		j++
	}
	for first := true; j < len(src) && src[j] != '/'; j++ {
		if src[j] == ']' && !first {
			return j
		}
		first = false
		if src[j] == '\\' {
			j++
		}
	}
	return i
}

func compileSegment(src string) (items []item, why string) {
	for len(src) > 0 {
		switch src[0] {
		case '*':
			src = strings.TrimLeft(src, "*")
			items = append(items, item{star: true})
		case '?':
			src = src[1:]
			items = append(items, item{any: true})
		case '[':
			var it item
			if it, src, why = compileClass(src[1:]); why != "" {
				return nil, why
			}
			items = append(items, it)
		case '\\':
			if src = src[1:]; src == "" {
				return nil, `the \ at its end escapes nothing`
			}
			fallthrough
		default:
			r, n := char(src)
			src = src[n:]
			items = append(items, item{lit: r})
		}
	}
	return items, ""
}

// compileClass compiles a class such as [a-z]. src begins after the [; rest is the part of src after the ]. If the
// class is invalid, why is the reason.
func compileClass(src string) (it item, rest, why string) {
	const open = "a [ is not closed"
	if src != "" && (src[0] == '!' || src[0] == '^') {
		it.negate, src = true, src[1:]
	}
	one := func() (rune, bool) {
		src = strings.TrimPrefix(src, `\`)
		if src == "" {
			return 0, false
		}
		r, n := char(src)
		src = src[n:]
		return r, true
	}
	for first := true; ; first = false {
		if src == "" {
			return it, "", open
		}
		if src[0] == ']' && !first {
			return it, src[1:], ""
		}
		lo, ok := one()
		if !ok {
			return it, "", open
		}
		hi := lo
		if len(src) > 1 && src[0] == '-' && src[1] != ']' {
			src = src[1:]
			if hi, ok = one(); !ok {
				return it, "", open
			}
		}
		if hi < lo {
			return it, "", "a range of a [..] is the wrong way round"
		}
		it.class = append(it.class, lo, hi)
	}
}

// char returns the first character of s and its length in bytes. If s begins with a byte that is not valid UTF-8, the
// character is badByte plus this byte.
func char(s string) (rune, int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 {
		return badByte + rune(s[0]), 1
	}
	return r, n
}

func (it item) matches(r rune) bool {
	switch {
	case it.any:
		return true
	case it.class == nil:
		return it.lit == r
	}
	for i := 0; i < len(it.class); i += 2 {
		if it.class[i] <= r && r <= it.class[i+1] {
			return !it.negate
		}
	}
	return it.negate
}

// matches reports whether the segment matches a name from its beginning to its end. It backtracks
// only to the last star, so it takes about len(items) times len(name) steps at most.
func (s segment) matches(name string) bool {
	i, star, again := 0, -1, ""
	for name != "" {
		r, n := char(name)
		switch {
		case i < len(s.items) && s.items[i].star:
			star, again = i, name
			i++
			continue
		case i < len(s.items) && s.items[i].matches(r):
			i++
			name = name[n:]
			continue
		case star < 0:
			return false
		}
		_, n = char(again)
		again = again[n:]
		i, name = star+1, again
	}
	for i < len(s.items) && s.items[i].star {
		i++
	}
	return i == len(s.items)
}

// Place is a position in a pattern during the match of a path: the segment of an alternative that
// the next component of the path has to match.
type Place struct{ alt, seg int }

// Start returns the places at which the match of a path begins.
func (p *Pattern) Start() []Place {
	out := make([]Place, 0, len(p.alts))
	for a := range p.alts {
		out = p.add(out, Place{a, 0})
	}
	return out
}

// add appends the place at to the list to, unless it is there. If the segment at this place is "**",
// it appends the place after it too, because "**" can match no component. The list is ordered by
// alternative and segment, and Step adds for a place at most this segment and the next two. So if a
// place is in the list already, it is among the last three.
func (p *Pattern) add(to []Place, at Place) []Place {
	for {
		if slices.Contains(to[max(0, len(to)-3):], at) {
			return to
		}
		to = append(to, at)
		if !p.alts[at.alt][at.seg].deep {
			return to
		}
		at.seg++
	}
}

// Step matches name, the next component of a path, at the places from. matched is true if a path that
// ends with this component matches. next holds the places for the component after it; it is empty if
// no path below this component can match.
func (p *Pattern) Step(from []Place, name string) (next []Place, matched bool) {
	for _, at := range from {
		segs := p.alts[at.alt]
		switch seg := segs[at.seg]; {
		case seg.deep:
			next = p.add(next, at)
		case !seg.matches(name):
		case at.seg+1 == len(segs):
			matched = true
		default:
			next = p.add(next, Place{at.alt, at.seg + 1})
		}
	}
	return next, matched
}

// Match reports whether a path matches. The path is relative, and slashes separate its components.
func (p *Pattern) Match(path string) bool {
	at, matched := p.Start(), false
	for part := range strings.SplitSeq(path, "/") {
		if len(at) == 0 {
			return false
		}
		at, matched = p.Step(at, part)
	}
	return matched
}

// HasMeta reports whether s, a component of a pattern, contains a wildcard, a brace or a backslash.
func HasMeta(s string) bool { return strings.ContainsAny(s, `*?[{\`) }
