package check

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/holdfast-run/holdfast"
)

// The parser and the walks over its trees recurse, and a Go stack that overflows
// ends the process: recover does not see it. So a program is measured before it is
// parsed, and its tree before it is walked. The figures are far above what people
// and models write, and far below what costs memory.
const (
	// maxProgram is the longest program that is read, in bytes; nested ones count
	// together up to maxPrograms.
	maxProgram  = 64 << 10
	maxPrograms = 256 << 10
	// maxOpeners is how many openers a program may have. Nothing nests deeper than
	// it has openers. Nested programs count together up to maxAllOpeners.
	maxOpeners    = 1000
	maxAllOpeners = 2000
	// maxTree is how deep the tree of a program may be, in nodes. Chains such as
	// a | b | c make deep trees without any opener.
	maxTree = 2000
	// maxWork is how many words and statements an analysis may read. A launcher that
	// launches a launcher reads the same words again.
	maxWork = 1 << 18
	// maxSteps is how many nodes the walks over parts of a tree may visit: a part in
	// ten others is walked ten times.
	maxSteps = 1 << 21
	// maxPath is PATH_MAX: the kernel opens no longer path.
	maxPath = 4096
)

// bounds is what is left to the analysis of one command, its nested programs
// included. Nil is no analysis: nothing is left.
type bounds struct {
	// ended says why the analysis has to end, if it has; nil: it has all the time.
	ended                func() error
	bytes, openers, work int
	ticks, steps         int
}

func newBounds(ended func() error) *bounds {
	return &bounds{ended: ended, bytes: maxPrograms, openers: maxAllOpeners, work: maxWork, steps: maxSteps}
}

// exceeded is the panic that ends an analysis over its bounds. guard recovers it.
type exceeded struct{ err error }

func tooMuch(format string, args ...any) error {
	return holdfast.Errorf(holdfast.KindInvalid, "command", format, args...).
		WithHint("split the command, or write it to a file with the Write tool and run the file")
}

// admit refuses a program before it is parsed.
func (b *bounds) admit(text string) error {
	if len(text) > maxProgram {
		return tooMuch("it is %d bytes long, and no more than %d are read", len(text), maxProgram)
	}
	n := openers(text)
	if n > maxOpeners {
		return tooMuch("it has %d brackets, keywords and operators that open something, and no more than %d are read", n, maxOpeners)
	}
	if b.bytes, b.openers = b.bytes-len(text), b.openers-n; b.bytes < 0 || b.openers < 0 {
		return tooMuch("it and the programs in it are together too long or nested too deep to be read")
	}
	return nil
}

// openers counts what may make the parser go one level deeper, wherever it stands:
// whether a bracket is quoted is known only after parsing.
func openers(text string) int {
	n := 0
	for i := 0; i < len(text); i++ {
		switch c := text[i]; c {
		case '(', '{', '[', '`', '!', '?':
			n++
		case '&', '|':
			if i+1 < len(text) && text[i+1] == c {
				n++
				i++
			}
		default:
			if !letter(c) || i > 0 && letter(text[i-1]) {
				continue
			}
			end := i
			for end < len(text) && letter(text[end]) {
				end++
			}
			if opening[text[i:end]] {
				n++
			}
			i = end - 1
		}
	}
	return n
}

func letter(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// opening are the keywords behind which a command or a list of them stands.
var opening = map[string]bool{
	"if": true, "then": true, "elif": true, "else": true, "for": true, "while": true, "until": true, "do": true,
	"case": true, "select": true, "function": true, "time": true, "coproc": true,
}

// shallow refuses a tree that is too deep to be walked.
func shallow(f *syntax.File) error {
	depth, deep := 0, false
	syntax.Walk(f, func(n syntax.Node) bool {
		if n == nil {
			depth--
			return true
		}
		if deep = deep || depth >= maxTree; deep {
			return false
		}
		depth++
		return true
	})
	if deep {
		return tooMuch("its parts are nested or chained too deep to be read")
	}
	return nil
}

// spend takes n words or statements from what is left, and panics when nothing is.
func (b *bounds) spend(n int) {
	if b.work -= n; b.work < 0 {
		panic(exceeded{tooMuch("it comes to more words than are read")})
	}
	b.tick()
}

// step takes one visit of a node from what is left.
func (b *bounds) step() {
	if b.steps--; b.steps < 0 {
		panic(exceeded{tooMuch("its parts are nested too deep to be read")})
	}
	b.tick()
}

// tick panics when the time of the analysis is over. It is called in loops and looks
// at the clock now and then.
func (b *bounds) tick() {
	if b.ticks++; b.ended == nil || b.ticks&0x3f != 0 {
		return
	}
	if err := b.ended(); err != nil {
		panic(exceeded{err})
	}
}

// place charges for directories that a command may run in: each command keeps them,
// each of its operands is joined with them, and one may be as long as a path. A
// longer one is not followed: none is left then.
func (b *bounds) place(dirs []string) []string {
	b.tick()
	for _, d := range dirs {
		if len(d) > maxPath {
			return nil
		}
		b.spend(len(d) / 32)
	}
	return dirs
}

// head is the beginning of what was refused for its length.
func head(s string) string {
	const most = 200
	if len(s) <= maxProgram {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
