package check

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"mvdan.cc/sh/v3/expand"
	"mvdan.cc/sh/v3/syntax"
)

type wordKind uint8

const (
	literal  wordKind = iota // the word's value is known: it is the word's text
	pattern                  // the word is a glob pattern
	computed                 // the word's value is known only at run time
	stream                   // the word is a process substitution, which stands for a pipe
	digits                   // the word contains numbers known only at run time; in its text a 0 stands for each
)

// word is a shell word after quotes and escapes were removed.
type word struct {
	// text is the word's value, or its source if the value is computed.
	text string
	kind wordKind
	// marks holds one mark for each byte of text: whether bash takes the byte literally, as a part of
	// a pattern, or as an unknown number. Words of other kinds than pattern and digits have none.
	marks string
	pos   int
	// brace is true if the word came from a brace expansion. split is true if it may become several words.
	brace, split bool
}

// The marks of a word's bytes.
const (
	plainMark  = '.' // bash takes the byte literally
	wildMark   = '*' // the byte is a wildcard
	extMark    = '(' // the byte is a part of an extended pattern, such as @(a|b)
	numberMark = '0' // the byte stands for a number that is not known
)

// glob returns a pattern of the names that the word may become, with its literal characters escaped.
func (w word) glob() string {
	if w.marks == "" {
		return escapeGlob(w.text)
	}
	var b strings.Builder
	for i := range len(w.text) {
		switch c, mark := w.text[i], w.marks[i]; {
		case mark == wildMark:
			b.WriteByte(c)
		case mark == numberMark:
			b.WriteString(`[\-0-9]*`)
		case mark == extMark:
			if i == 0 || w.marks[i-1] != extMark {
				b.WriteByte('*')
			}
		default:
			b.WriteString(escapeGlob(w.text[i : i+1]))
		}
	}
	return b.String()
}

// unmatched returns the word that a pattern becomes if it matches no file: bash then takes its wildcards literally.
func (w word) unmatched() word {
	w.kind, w.marks = literal, strings.NewReplacer(string(wildMark), string(plainMark), string(extMark), string(plainMark)).Replace(w.marks)
	if strings.Contains(w.marks, string(numberMark)) {
		w.kind = digits
	}
	return w
}

// part returns the bytes from index from up to index to of a word whose bytes are known or marked.
func (w word) part(from, to int) word {
	w.text = w.text[from:to]
	if w.marks == "" {
		return w
	}
	w.marks = w.marks[from:to]
	w.kind = literal
	switch {
	case strings.ContainsAny(w.marks, string(wildMark)+string(extMark)):
		w.kind = pattern
	case strings.Contains(w.marks, string(numberMark)):
		w.kind = digits
	}
	return w
}

// after returns the word with the literal text s put before it.
func (w word) after(s string) word {
	if w.text = s + w.text; w.marks != "" {
		w.marks = strings.Repeat(string(plainMark), len(s)) + w.marks
	}
	return w
}

// maxBraces is how many words the braces of one word may expand to.
const maxBraces = 64

// words expands the braces in a list of words and reduces each result.
func (a *analyzer) words(list []*syntax.Word) []word {
	var out []word
	for _, w := range list {
		out = append(out, a.expanded(w)...)
	}
	return out
}

// expanded expands the braces of one word and reduces each resulting word.
func (a *analyzer) expanded(w *syntax.Word) []word {
	braces, sequence := 0, false
	for _, p := range w.Parts {
		if l, ok := p.(*syntax.Lit); ok {
			braces += strings.Count(l.Value, "{")
			sequence = sequence || strings.Contains(l.Value, "..") && strings.Contains(l.Value, "{")
		}
	}
	if braces == 0 {
		return []word{a.reduce(w)}
	}
	unknown := func() []word {
		r := a.reduce(w)
		r.kind = computed
		return []word{r}
	}
	if braces > 3 || sequence {
		return unknown()
	}
	// Split a copy: the tree is walked again for substitutions and must not change.
	split := &syntax.Word{Parts: append([]syntax.WordPart(nil), w.Parts...)}
	if !syntax.SplitBraces(split) {
		return []word{a.reduce(w)}
	}
	var out []word
	for e, err := range expand.BracesSeq(nil, split) {
		if err != nil || len(out) == maxBraces {
			return unknown()
		}
		r := a.reduce(e)
		r.brace = true
		out = append(out, r)
	}
	return out
}

// reduce removes quotes and escapes from a word. It does not analyze substitutions; the analyzer does that separately.
func (a *analyzer) reduce(w *syntax.Word) word {
	r := reducer{a: a, out: word{pos: a.pos(w.Pos())}}
	for i, p := range w.Parts {
		r.part(p, i == 0)
	}
	r.out.text = r.text.String()
	switch {
	case r.computed:
		r.out.kind = computed
	case r.wild || r.bracket && strings.Contains(r.out.text, "]"):
		r.out.kind, r.out.marks = pattern, r.marks.String()
	case r.stream:
		r.out.kind = stream
	case r.digits:
		r.out.kind, r.out.marks = digits, r.marks.String()
	}
	return r.out
}

type reducer struct {
	a                      *analyzer
	out                    word
	text, marks            strings.Builder
	computed, wild, stream bool
	bracket, digits        bool
	// quoted is true for a part between double quotes.
	quoted bool
}

// add appends text to the word, with the same mark for every byte.
func (r *reducer) add(s string, mark byte) {
	r.text.WriteString(s)
	for range len(s) {
		r.marks.WriteByte(mark)
	}
}

// number appends a number that is not known to the word, as a marked 0.
func (r *reducer) number() {
	r.digits = true
	r.add("0", numberMark)
}

// plain appends text to the word that bash takes literally.
func (r *reducer) plain(s string) { r.add(s, plainMark) }

func (r *reducer) unknown(s string) {
	r.computed = true
	r.out.split = r.out.split || !r.quoted
	r.plain(s)
}

func (r *reducer) part(p syntax.WordPart, first bool) {
	switch p := p.(type) {
	case *syntax.Lit:
		r.bare(p.Value, first)
	case *syntax.SglQuoted:
		if !p.Dollar {
			r.plain(p.Value)
			return
		}
		s, ok := ansiC(p.Value)
		if r.plain(s); !ok {
			r.computed = true
		}
	case *syntax.DblQuoted:
		for _, q := range p.Parts {
			if l, ok := q.(*syntax.Lit); ok {
				r.plain(unescapeQuoted(l.Value))
				continue
			}
			r.quoted = !manyWords(q)
			r.part(q, false)
			r.quoted = false
		}
	case *syntax.ParamExp:
		s, ok := r.a.known(p)
		switch {
		case ok:
			r.plain(s)
		case r.a.numeric(p):
			r.number()
		default:
			r.unknown("$…")
		}
	case *syntax.ArithmExp:
		r.number() // the analyzer checks the arithmetic expression itself elsewhere
	case *syntax.ProcSubst:
		r.stream = true
		r.plain("/dev/fd/63")
	case *syntax.ExtGlob:
		r.wild = true
		r.add(p.Op.String()+p.Pattern.Value+")", extMark)
	default:
		r.unknown("$(…)")
	}
}

// manyWords reports whether a part may become several words even between quotes, as "$@" and
// "${a[@]}" do. It takes every ${!...} for such a part.
func manyWords(p syntax.WordPart) bool {
	e, ok := p.(*syntax.ParamExp)
	if !ok || e.Param == nil {
		return false
	}
	index, _ := e.Index.(*syntax.Word)
	return e.Param.Value == "@" || index != nil && index.Lit() == "@" || e.Excl
}

// bare appends unquoted text to the word. In it escapes, a tilde and wildcards have a meaning.
func (r *reducer) bare(s string, first bool) {
	if first && strings.HasPrefix(s, "~") {
		name, rest, _ := strings.Cut(s[1:], "/")
		home, ok := r.a.home()
		if name != "" || !ok {
			// Another user's home directory, or a home directory that is not known.
			r.unknown(s)
			return
		}
		r.plain(home)
		if len(s) == 1 {
			return
		}
		s = "/" + rest
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '\\':
			if i++; i < len(s) && s[i] != '\n' {
				_, n := utf8.DecodeRuneInString(s[i:])
				r.plain(s[i : i+n])
				i += n - 1
			}
		case '*', '?', '[':
			r.bracket = r.bracket || c == '['
			r.wild = r.wild || c != '['
			r.add(s[i:i+1], wildMark)
		default:
			r.plain(s[i : i+1])
		}
	}
}

// unescapeQuoted removes the backslashes that are escapes between double quotes.
func unescapeQuoted(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && strings.IndexByte("$`\"\\\n", s[i+1]) >= 0 {
			if i++; s[i] != '\n' {
				b.WriteByte(s[i])
			}
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// known returns the value of a parameter if it is known: $HOME or $PWD.
func (a *analyzer) known(p *syntax.ParamExp) (string, bool) {
	if !simpleParam(p) || p.Length {
		return "", false
	}
	switch p.Param.Value {
	case "HOME":
		return a.home()
	case "PWD":
		if len(a.cwds) == 1 && !a.assigned["PWD"] {
			return a.cwds[0], true
		}
	}
	return "", false
}

// numeric reports whether a parameter expansion always yields a number.
func (a *analyzer) numeric(p *syntax.ParamExp) bool {
	if !simpleParam(p) {
		return false
	}
	name := p.Param.Value
	switch name {
	case "?", "#", "$", "!", "RANDOM", "SECONDS", "UID", "EUID", "PPID", "BASHPID", "LINENO":
		return !a.assigned[name]
	}
	return p.Length || a.assigned[name] && !a.holdsText(name)
}

func simpleParam(p *syntax.ParamExp) bool {
	return p.Param != nil && p.Flags == nil && !p.Excl && !p.Width && !p.IsSet && p.NestedParam == nil && p.Index == nil &&
		len(p.Modifiers) == 0 && p.Slice == nil && p.Repl == nil && p.Names == 0 && p.Exp == nil
}

func (a *analyzer) home() (string, bool) {
	return a.homeDir, a.homeDir != "" && !a.assigned["HOME"]
}

// ansiC decodes the text of $'…'; false if it has an escape that this checker does not decode.
func ansiC(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		i++
		if j := strings.IndexByte(`abeEfnrtv\'"?`, s[i]); j >= 0 {
			b.WriteByte("\a\b\x1b\x1b\f\n\r\t\v\\'\"?"[j])
			continue
		}
		v, n := escaped(s[i:])
		if n == 0 || v == 0 {
			return s, false
		}
		if s[i] == 'u' || s[i] == 'U' {
			b.WriteRune(rune(v))
		} else {
			b.WriteByte(byte(v))
		}
		i += n - 1
	}
	return b.String(), true
}

// escaped decodes a numeric escape, given without its backslash. It returns the value and
// the length of the escape; the length is 0 if s does not begin with one.
func escaped(s string) (v uint64, n int) {
	digits, most, base, from := "01234567", 3, 8, 0
	switch s[0] {
	case 'x':
		digits, most, base, from = "0123456789abcdefABCDEF", 2, 16, 1
	case 'u':
		digits, most, base, from = "0123456789abcdefABCDEF", 4, 16, 1
	case 'U':
		digits, most, base, from = "0123456789abcdefABCDEF", 8, 16, 1
	}
	end := from
	for end < len(s) && end-from < most && strings.IndexByte(digits, s[end]) >= 0 {
		end++
	}
	v, err := strconv.ParseUint(s[from:end], base, 32)
	if err != nil || v > 0x10ffff {
		return 0, 0
	}
	return v, end
}

// identifier reports whether s can name a variable.
func identifier(s string) bool {
	for i, c := range []byte(s) {
		if c != '_' && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9' || i == 0) {
			return false
		}
	}
	return s != ""
}
