package ignore

import "strings"

// kind is what a token of a glob matches.
type kind uint8

const (
	literal kind = iota // one byte
	one                 // any byte but a slash
	class               // a byte of a set, but no slash
	star                // any bytes but slashes
	deep                // any bytes
	// skip matches nothing itself: the two tokens after it, a deep and a slash, are optional. The three together stand for
	// "**/".
	skip
)

// token is one element of a glob. set is a position in glob.sets.
type token struct {
	kind kind
	b    byte
	set  int32
}

// glob is a pattern in the language of git's wildmatch with WM_PATHNAME.
type glob struct {
	tokens []token
	sets   []set
}

// set is a set of bytes.
type set [256 / 64]uint64

func (s *set) add(b byte)      { s[b/64] |= 1 << (b % 64) }
func (s *set) has(b byte) bool { return s[b/64]&(1<<(b%64)) != 0 }

// compile reads a glob; ok is false if the glob matches nothing.
func compile(text string) (g glob, ok bool) {
	for i := 0; i < len(text); i++ {
		t := token{kind: literal, b: text[i]}
		switch text[i] {
		case '\\':
			if i++; i == len(text) {
				return g, false
			}
			t.b = text[i]
		case '?':
			t.kind = one
		case '[':
			members, size := bracket(text[i+1:])
			if size == 0 {
				return g, false
			}
			t.kind, t.set = class, int32(len(g.sets))
			g.sets = append(g.sets, members)
			i += size
		case '*':
			begin := i
			for i+1 < len(text) && text[i+1] == '*' {
				i++
			}
			if t.kind = stars(text, begin, i+1); t.kind == skip {
				g.tokens = append(g.tokens, t)
				t.kind = deep
			}
		}
		g.tokens = append(g.tokens, t)
	}
	return g, true
}

// stars returns the kind of token for the run of stars text[begin:end].
func stars(text string, begin, end int) kind {
	rest := text[end:]
	switch {
	case end-begin == 1 || begin > 0 && text[begin-1] != '/':
		return star
	case rest == "":
		return deep
	case rest[0] == '/':
		return skip
	case strings.HasPrefix(rest, `\/`):
		return deep
	}
	return star
}

// bracket reads a set of bytes after its opening bracket. size is the length of the text up to and with the closing
// bracket; 0 if the set is not closed or names an unknown class.
func bracket(text string) (s set, size int) {
	i := 0
	negated := text != "" && (text[0] == '!' || text[0] == '^')
	if negated {
		i++
	}
	before := -1 // the last byte of the set, which may begin a range; -1 if none may
	for first := true; ; first = false {
		if i >= len(text) {
			return s, 0
		}
		b := text[i]
		switch {
		case b == ']' && !first:
			if negated {
				for j := range s {
					s[j] = ^s[j]
				}
			}
			return s, i + 1
		case b == '-' && before > 0 && i+1 < len(text) && text[i+1] != ']':
			if i++; text[i] == '\\' {
				if i++; i == len(text) {
					return s, 0
				}
			}
			for c := before; c <= int(text[i]); c++ {
				s.add(byte(c))
			}
			before = -1
		case b == '[' && strings.HasPrefix(text[i+1:], ":"):
			end := strings.IndexByte(text[i+2:], ']')
			if end < 0 {
				return s, 0
			}
			name, closed := strings.CutSuffix(text[i+2:i+2+end], ":")
			if !closed {
				s.add(b)
				before = int(b)
				break
			}
			is := classes[name]
			if is == nil {
				return s, 0
			}
			for c := range 256 {
				if is(byte(c)) {
					s.add(byte(c))
				}
			}
			i += 2 + end
			before = -1
		default:
			if b == '\\' {
				if i++; i == len(text) {
					return s, 0
				}
				b = text[i]
			}
			s.add(b)
			before = int(b)
		}
		i++
	}
}

func between(low, high byte) func(byte) bool {
	return func(b byte) bool { return low <= b && b <= high }
}

func either(list ...func(byte) bool) func(byte) bool {
	return func(b byte) bool {
		for _, is := range list {
			if is(b) {
				return true
			}
		}
		return false
	}
}

var (
	upper, lower, digit = between('A', 'Z'), between('a', 'z'), between('0', '9')
	alnum               = either(upper, lower, digit)
	graph               = between('!', '~')
)

// classes are the named sets of bytes: "alpha" stands for [:alpha:].
var classes = map[string]func(byte) bool{
	"alnum": alnum, "alpha": either(upper, lower), "digit": digit, "lower": lower, "upper": upper, "graph": graph,
	"blank":  func(b byte) bool { return b == ' ' || b == '\t' },
	"cntrl":  func(b byte) bool { return b < ' ' || b == 0x7f },
	"print":  between(' ', '~'),
	"punct":  func(b byte) bool { return graph(b) && !alnum(b) },
	"space":  func(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' },
	"xdigit": either(digit, between('a', 'f'), between('A', 'F')),
}

// match reports whether the glob matches the whole text. It follows all ways to match at once, so its time is at most
// proportional to the length of the glob times that of the text. It adds this cost to steps.
func (g *glob) match(text string, steps *int) bool {
	at := make([]bool, len(g.tokens)+1)
	next := make([]bool, len(g.tokens)+1)
	at[0] = true
	for i := range len(text) {
		*steps += len(g.tokens) + 1
		g.free(at)
		alive := false
		b := text[i]
		clear(next)
		for k, t := range g.tokens {
			if !at[k] {
				continue
			}
			to := k + 1
			switch t.kind {
			case literal:
				if b != t.b {
					continue
				}
			case one:
				if b == '/' {
					continue
				}
			case class:
				if b == '/' || !g.sets[t.set].has(b) {
					continue
				}
			case star:
				if b == '/' {
					continue
				}
				to = k
			case deep:
				to = k
			case skip:
				continue
			}
			next[to], alive = true, true
		}
		if !alive {
			return false
		}
		at, next = next, at
	}
	g.free(at)
	return at[len(g.tokens)]
}

// free adds to at the positions in the glob that are reached without matching another byte.
func (g *glob) free(at []bool) {
	for k, t := range g.tokens {
		if at[k] && t.kind >= star {
			at[k+1] = true
			if t.kind == skip {
				at[k+3] = true
			}
		}
	}
}
