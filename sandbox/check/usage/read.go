package usage

import (
	"slices"
	"strings"
)

// Word is one word of a command line.
type Word struct {
	Text string
	// Computed is true if the word's value is known only at run time; Text is its source.
	// Vague is true if it may become several words, or a word that begins with a dash.
	Computed, Vague bool
}

// Use is one flag, option value or operand, and its meaning to the program.
type Use struct {
	Kind Kind
	// Option is the option's name; empty for an operand.
	Option string
	// At is the index of the word with the option or operand, Word the index of the word with its value
	// (-1 for flags), From the position in that word at which the value begins.
	At, Word, From int
	// Maybe is true if an unknown option precedes this word: the word may be that option's value, and so have
	// another meaning.
	Maybe bool
}

// Line is the meaning of a command line's words to its program. Words are given by index.
type Line struct {
	Uses []Use
	// Unknown is the index of the first word that is an option or subcommand missing in the table, or
	// that may become any option; -1 if there is none. If the table is open, a missing option does not count.
	Unknown int
	// Sub is the index of the word that names the subcommand; -1 if there is none.
	Sub int
	// Command is the index of the first word of the command that the program runs, -1 if it runs none.
	Command int
	// Execs are the commands inside of the line (as in find -exec): the index of the first
	// word, and that behind the last.
	Execs [][2]int
	// Unread is true if the subcommand runs other programs in ways that a table cannot describe.
	Unread bool
	// Operands are the indexes of the words that are operands.
	Operands []int
	// Quiet is true if the program only prints something, such as its version.
	Quiet bool
	// Lookup is true if the program, a launcher, runs no other program with these options.
	Lookup bool
	// Deep is true if the program works on the operands and everything below them.
	Deep bool
	// Unpack is true if the program writes files below the working directory, as when it extracts an archive.
	Unpack bool
	// Written is true if the program writes all its operands.
	Written bool
	// Strict is true if a line with an unknown option must be treated as not understood. Stdin is
	// true if the line has no code for the program, which then reads its code from standard input.
	Strict, Stdin bool
}

// Has reports whether an option with one of the names was given.
func (l *Line) Has(names ...string) bool {
	return slices.ContainsFunc(l.Uses, func(u Use) bool { return slices.Contains(names, u.Option) })
}

// reader is the state of reading one command line.
type reader struct {
	table, top *Program
	words      []Word
	line       *Line
	// loose is, if not 0, the index of the word behind the first unknown option: that word
	// may be its value, so the meaning of all later words is uncertain.
	loose int
	// targeted is true if an option names the target, that is, the file that is written. Otherwise the last operand
	// is the target.
	targeted bool
	// programmed is true if an option held the code (as in sed -e CODE). Otherwise the first operand is
	// the code. instead is true if the value of an option replaces a first operand of another kind.
	programmed, instead bool
}

// Read returns the meaning of the words that follow the program's name.
func (p *Program) Read(words []Word) *Line {
	r := &reader{table: p, top: p, words: words, line: &Line{Unknown: -1, Sub: -1, Command: -1}}
	i := 0
	if p.Old && len(words) > 0 && words[0].Text != "" && words[0].Text[0] != '-' && !words[0].Computed {
		i = r.old()
	}
	r.read(i)
	r.operands()
	r.line.Strict, r.line.Stdin = p.Strict, p.Stdin && !r.programmed && len(r.line.Operands) == 0
	return r.line
}

func (r *reader) read(i int) {
	options := true
	for ; i < len(r.words); i++ {
		w := r.words[i]
		switch {
		case r.table.Free:
			r.stays(i)
		case options && w.Text == "--" && !w.Computed:
			options = false
		case options && len(w.Text) > 1 && w.Text[0] == '-':
			i = r.option(i)
		case options && r.table.Plus && len(w.Text) > 1 && w.Text[0] == '+':
			i = r.plus(i)
		default:
			if options && w.Vague && r.table.Opens() {
				r.vague(i)
			}
			if r.table.Subs != nil && r.line.Sub < 0 {
				r.sub(i)
				continue
			}
			if !r.stays(i) {
				return
			}
			if r.table.First && r.loose == 0 {
				options = false
			}
		}
	}
}

// Opens reports whether the table has subcommands, or options that run or load something: only
// then does it matter that a word may become any option.
func (prog *Program) Opens() bool {
	return prog.Subs != nil || slices.ContainsFunc(prog.Options, func(o Option) bool { return o.Kind.opens() })
}

// vague records the word i as Line.Unknown, unless an earlier word is recorded there.
func (r *reader) vague(i int) {
	if r.line.Unknown < 0 {
		r.line.Unknown = i
	}
}

// unknown records an option that the table does not have.
func (r *reader) unknown(i int) {
	if !r.table.Open {
		r.vague(i)
	}
	if r.loose == 0 {
		r.loose = i + 1
	}
}

// sub records the word i as the subcommand, and switches to the table of that subcommand for the words after it.
func (r *reader) sub(i int) {
	r.line.Sub = i
	next := r.table.Subs[r.words[i].Text]
	if r.words[i].Computed {
		next, r.loose = nil, 0
		r.vague(i)
	}
	if next == nil {
		if next = r.table.Subs[""]; next == nil {
			r.unknown(i)
			next = &Program{repeat: -1}
		}
	}
	r.table, r.line.Unread = next, next.Unread
}

// stays records the word i as an operand or assignment. If the word begins a command that the program runs, it
// records that as Command and returns false: all words from there on belong to the command.
func (r *reader) stays(i int) bool {
	n := len(r.line.Operands)
	if len(r.table.operands) > 0 && r.table.operands[0] == Assign {
		if assigns(r.words[i]) {
			r.line.Uses = append(r.line.Uses, Use{Kind: Assign, At: i, Word: i})
			return true
		}
		n++
	}
	if n < len(r.table.operands) && r.table.operands[n] == Command {
		r.line.Command = i
		return false
	}
	r.line.Operands = append(r.line.Operands, i)
	return true
}

// assigns reports whether a word has the form NAME=VALUE.
func assigns(w Word) bool {
	name, _, ok := strings.Cut(w.Text, "=")
	for i, c := range []byte(name) {
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9' || i == 0) {
			return false
		}
	}
	return ok && name != ""
}

// find returns the options that a long name may mean: the option of that name, else all that
// begin with it, else those that it negates with --no-. Every program has --help and --version.
func (r *reader) find(name string) []Option {
	if name == "--help" || name == "--version" {
		return []Option{{Name: name, Kind: Quiet}}
	}
	out := r.named(name)
	if positive, ok := strings.CutPrefix(name, "--no-"); ok && len(out) == 0 && positive != "" {
		for _, o := range r.named("--" + positive) {
			// A negated option neither opens nor runs anything.
			out = append(out, Option{Name: o.Name, Kind: Text})
		}
	}
	return out
}

// named returns the option of that name, else all options that begin with it.
func (r *reader) named(name string) []Option {
	var out []Option
	tables := []*Program{r.table}
	if r.table != r.top && r.top.Anywhere {
		tables = append(tables, r.top)
	}
	for _, t := range tables {
		for _, o := range t.Options {
			if o.Name == name {
				return []Option{o}
			}
			if len(name) > 2 && strings.HasPrefix(o.Name, name) && len(o.Name) > 2 {
				out = append(out, o)
			}
		}
	}
	return out
}

// option reads the option in the word i, and returns the index of the last word that belongs to it.
func (r *reader) option(i int) int {
	w := r.words[i]
	if r.table.Numbers && strings.Trim(w.Text[1:], "0123456789") == "" {
		r.line.Uses = append(r.line.Uses, Use{Option: "-#", At: i, Word: -1})
		return i
	}
	long := strings.HasPrefix(w.Text, "--")
	if long || r.table.Single {
		name, _, valued := strings.Cut(w.Text, "=")
		found := r.find(name)
		if r.table.Single && len(found) != 1 {
			other := "-" + name
			if long {
				other = name[1:]
			}
			if more := r.find(other); len(more) == 1 || len(found) == 0 {
				found = more
			}
		}
		if n := r.prefix(w.Text); n != nil && (len(found) != 1 || found[0].Name != name) {
			return r.take([]Option{*n}, i, len(n.Name), true)
		}
		if len(found) == 0 && r.table.Single && !long {
			return r.attached(i)
		}
		if len(found) == 0 || w.Computed && !valued {
			r.unknown(i)
			return i
		}
		return r.take(found, i, len(name)+1, valued)
	}
	return r.cluster(i)
}

// prefix finds the longest prefix option that the text begins with.
func (r *reader) prefix(text string) *Option {
	var out *Option
	for i, o := range r.table.Options {
		if o.Prefix && strings.HasPrefix(text, o.Name) && (out == nil || len(o.Name) > len(out.Name)) {
			out = &r.table.Options[i]
		}
	}
	return out
}

// attached reads a single-dash option with its value behind it, as -ofile.
func (r *reader) attached(i int) int {
	w := r.words[i]
	for n := len(w.Text) - 1; n >= 2; n-- {
		for _, o := range r.table.Options {
			if o.Name == w.Text[:n] && (o.Optional || o.Values > 0 && n == 2) {
				return r.take([]Option{o}, i, n, true)
			}
		}
	}
	r.unknown(i)
	return i
}

// cluster reads short options: letters, of which the last may have a value.
func (r *reader) cluster(i int) int {
	w := r.words[i]
	for j := 1; j < len(w.Text); j++ {
		o, ok := r.short(w.Text[j])
		switch {
		case !ok:
			r.unknown(i)
		case o.Digits:
			r.flag(o, i)
			for j+1 < len(w.Text) && w.Text[j+1] >= '0' && w.Text[j+1] <= '9' {
				j++
			}
		case o.Optional && j+1 == len(w.Text) || o.Values == 0 && !o.Optional:
			r.flag(o, i)
		default:
			return r.take([]Option{o}, i, j+1, j+1 < len(w.Text))
		}
	}
	if w.Computed {
		r.unknown(i)
	}
	return i
}

func (r *reader) short(c byte) (Option, bool) {
	for _, t := range []*Program{r.table, r.top} {
		if t == r.top && t != r.table && !t.Anywhere {
			break
		}
		for _, o := range t.Options {
			if len(o.Name) == 2 && o.Name[0] == '-' && o.Name[1] == c {
				return o, true
			}
		}
	}
	return Option{}, false
}

// take records the values of an option, and returns the index of the last word that belongs to it. If a name may mean
// several options, it records the values for each.
func (r *reader) take(found []Option, i, from int, attached bool) int {
	last := i
	for _, o := range found {
		if o.Kind == Exec {
			last = r.exec(i)
			continue
		}
		if o.Values == 0 && !(attached && (o.Optional || o.Prefix)) {
			r.flag(o, i)
			continue
		}
		at, begin := i, from
		if !attached {
			at, begin = i+1, 0
		}
		if at < len(r.words) {
			r.use(Use{Kind: o.Kind, Option: o.Name, At: i, Word: at, From: begin})
			end := at + max(o.Values, 1) - 1
			last = max(last, min(end, len(r.words)-1))
		}
	}
	return last
}

func (r *reader) use(u Use) {
	u.Maybe = r.loose > 0
	r.means(u.Kind, u.Option)
	r.line.Uses = append(r.line.Uses, u)
}

// means records what an option changes in the meaning of the whole line.
func (r *reader) means(k Kind, option string) {
	r.instead = r.instead || slices.Contains(r.table.instead, option)
	switch k {
	case Target:
		r.targeted = true
	case Writes, Refer:
		r.line.Written = true
	case Deep:
		r.line.Deep = true
	case Unpack:
		r.line.Unpack = true
	case Quiet:
		r.line.Quiet = true
	case Lookup:
		r.line.Lookup = true
	case Code, Sed, Awk, Load, Module, Shell:
		r.programmed = true
	}
}

func (r *reader) flag(o Option, i int) {
	r.means(o.Kind, o.Name)
	r.line.Uses = append(r.line.Uses, Use{Kind: o.Kind, Option: o.Name, At: i, Word: -1})
}

// exec reads a command within the line, up to the word ; or + that ends it, and returns the index of that word.
func (r *reader) exec(i int) int {
	end := i + 1
	for end < len(r.words) && r.words[end].Text != ";" && r.words[end].Text != "+" {
		end++
	}
	r.line.Execs = append(r.line.Execs, [2]int{i + 1, end})
	return end
}

// plus reads a word that begins with + and is an option, as in vim +command.
func (r *reader) plus(i int) int {
	for _, o := range r.table.Options {
		if o.Name == "+" {
			r.use(Use{Kind: o.Kind, Option: "+", At: i, Word: i, From: 1})
			return i
		}
	}
	r.unknown(i)
	return i
}

// old reads a first word that holds options without a dash, such as tar's xzf. The values of
// these options follow as words, in the same order.
func (r *reader) old() int {
	next := 1
	for _, c := range []byte(r.words[0].Text) {
		o, ok := r.short(c)
		switch {
		case !ok:
			r.unknown(0)
		case o.Values > 0:
			if next < len(r.words) {
				r.use(Use{Kind: o.Kind, Option: o.Name, At: 0, Word: next})
			}
			next++
		default:
			r.flag(o, 0)
		}
	}
	return next
}

// operands assigns each operand its kind, now that all options are known.
func (r *reader) operands() {
	list := r.line.Operands
	shift := 0
	if r.instead {
		shift = 1
	}
	if r.programmed && len(r.table.operands) > 0 {
		switch r.table.operands[0] {
		case Sed, Awk, Load, Code:
			shift = 1
		}
	}
	for n, i := range list {
		kind := r.table.operand(n+shift, len(list)+shift)
		if k, special := r.table.words[r.words[i].Text]; special && n == 0 && !r.words[i].Computed {
			kind = k
		}
		switch {
		case r.line.Written && (kind == Read || kind == Any || kind == Text):
			kind = Write
		case r.targeted && kind == Write && r.table.operands[0] == Read:
			kind = Read
		}
		r.line.Uses = append(r.line.Uses, Use{Kind: kind, At: i, Word: i, Maybe: r.loose > 0 && i >= r.loose})
		if r.loose == 0 || i < r.loose {
			continue
		}
		for _, k := range r.table.operands {
			if k != kind {
				r.line.Uses = append(r.line.Uses, Use{Kind: k, At: i, Word: i, Maybe: true})
			}
		}
	}
}
