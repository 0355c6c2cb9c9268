package check

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/holdfast-run/holdfast"
)

// The parser and the walks over its trees recurse, and a Go stack overflow ends the process (recover cannot stop it).
// Therefore a program is measured before it is parsed, and its tree before it is walked. The limits are far above
// what people and models write, and far below what would take too much memory.
const (
	// maxProgram is the longest program that is read, in bytes. maxPrograms limits a program
	// together with those nested in it.
	maxProgram  = 64 << 10
	maxPrograms = 256 << 10
	// maxOpeners is how many openers (see the function openers) a program may have: it cannot
	// nest deeper than that. maxAllOpeners limits a program together with those nested in it.
	maxOpeners    = 1000
	maxAllOpeners = 2000
	// maxTree is how deep the tree of a program may be, in nodes. Chains such as
	// a | b | c make deep trees without any opener.
	maxTree = 2000
	// maxWork is how many words and statements an analysis may read. Nested launchers read the same words again.
	maxWork = 1 << 18
	// maxSteps is how many nodes walks over parts of a tree may visit; nested parts are walked again.
	maxSteps = 1 << 21
	// maxPath is PATH_MAX: the kernel opens no longer path.
	maxPath = 4096
)

// bounds is the remaining budget for the analysis of one command line, including its nested programs. A nil *bounds
// must not be used.
type bounds struct {
	// ended returns an error once the analysis has to stop; a nil function means that there is no deadline.
	ended                func() error
	bytes, openers, work int
	ticks, steps         int
}

func newBounds(ended func() error) *bounds {
	return &bounds{ended: ended, bytes: maxPrograms, openers: maxAllOpeners, work: maxWork, steps: maxSteps}
}

// exceeded is the panic of an analysis over its bounds. AnalyzeWithin and CommandWithin recover from it.
type exceeded struct{ err error }

func tooMuch(format string, args ...any) error {
	return holdfast.Errorf(holdfast.KindInvalid, "command", format, args...).
		WithHint("split the command, or write it to a file with the Write tool and run the file")
}

// admit refuses a program that is too long or too deeply nested, before it is parsed.
func (b *bounds) admit(text string) error {
	if len(text) > maxProgram {
		return tooMuch("the command is %d bytes long, over the limit of %d bytes that are read", len(text), maxProgram)
	}
	n := openers(text)
	if n > maxOpeners {
		return tooMuch("the command has %d brackets, keywords and operators that open something, over the limit of %d", n, maxOpeners)
	}
	if b.bytes, b.openers = b.bytes-len(text), b.openers-n; b.bytes < 0 || b.openers < 0 {
		return tooMuch("the command and the programs in it are together too long or nested too deep to be read")
	}
	return nil
}

// openers counts the characters and words that may make the parser go one level deeper.
// It also counts quoted brackets: quoting is known only after parsing.
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

// opening holds the keywords that a command or a list of commands follows.
var opening = map[string]bool{
	"if": true, "then": true, "elif": true, "else": true, "for": true, "while": true, "until": true, "do": true,
	"case": true, "select": true, "function": true, "time": true, "coproc": true,
}

// shallow refuses a tree that is too deep to walk.
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
		return tooMuch("the command's parts are nested or chained too deep to be read")
	}
	return nil
}

// spend subtracts n words or statements from the budget, and panics when it is used up.
func (b *bounds) spend(n int) {
	if b.work -= n; b.work < 0 {
		panic(exceeded{tooMuch("the command expands to more words than this checker reads")})
	}
	b.tick()
}

// step subtracts one visit of a tree node from the budget, and panics when it is used up.
func (b *bounds) step() {
	if b.steps--; b.steps < 0 {
		panic(exceeded{tooMuch("the command's parts are nested too deep to be read")})
	}
	b.tick()
}

// tick panics when the time for the analysis is over. Long loops must call it; every 64th call checks the time.
func (b *bounds) tick() {
	if b.ticks++; b.ended == nil || b.ticks&0x3f != 0 {
		return
	}
	if err := b.ended(); err != nil {
		panic(exceeded{err})
	}
}

// place takes from the budget what the possible working directories of a command cost: the
// command stores them all, and each of its operands is joined with each of them. It returns the
// directories, or none if one of them is longer than maxPath.
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

// head returns a text of at most maxProgram bytes unchanged; of a longer one, only its first 200 bytes and "…".
func head(s string) string {
	const most = 200
	if len(s) <= maxProgram {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
