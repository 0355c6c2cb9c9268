package check

import (
	"cmp"
	"errors"
	"net/url"
	"strings"
)

// judging checks the files of one line against the path rules.
type judging struct {
	*Checker
	// aliases are the paths that the command line itself makes lead to other paths.
	aliases []alias
	left    *bounds
	// looks is how many more steps through directories and matched names patterns may take.
	looks int
}

// judgePaths checks the files that commands and redirections name against the path rules.
func (c *Checker) judgePaths(an *Analysis) Verdict {
	if !c.hasPaths {
		return allowed
	}
	j := &judging{Checker: c, left: an.left, looks: maxLooks}
	if v := j.collect(an); !v.Allowed {
		return v
	}
	for i := range an.Commands {
		cmd := &an.Commands[i]
		if v := j.operands(cmd); !v.Allowed {
			v.Pos = cmd.Pos
			return v
		}
	}
	for i := range an.Redirects {
		r := &an.Redirects[i]
		an.left.tick()
		if v := j.redirect(r); !v.Allowed {
			v.Pos = r.Pos
			return v
		}
	}
	return allowed
}

func (j *judging) redirect(r *Redirect) Verdict {
	if r.target.kind == computed {
		return unknownOperand(r.target)
	}
	for _, o := range r.ops {
		if v := j.operand(operand{word: r.target, path: true}, r.cwds, o); !v.Allowed {
			return v
		}
	}
	return allowed
}

func unseen(name string) Verdict {
	return Verdict{Code: CodePathInvalid, Subject: name, Reason: "the path cannot be followed: " + ErrUnseen.Error()}
}

func unknownOperand(w word) Verdict {
	return Verdict{Code: CodeComputed, Subject: w.text, Reason: "an operand that is known only at run time cannot be checked against the path rules"}
}

// operands decides about the words of one command, including its name if that is a path. If the program has no table
// of options, every word may name a file; otherwise only the files that the table found count.
func (j *judging) operands(cmd *Command) Verdict {
	if strings.Contains(cmd.Name, "/") {
		if v := j.operand(operand{word: word{text: cmd.Name}, path: true}, cmd.cwds, Read); !v.Allowed {
			return v
		}
	}
	for _, w := range cmd.words {
		j.left.place(cmd.cwds)
		if w.kind == computed {
			return unknownOperand(w)
		}
		if cmd.tabled {
			continue
		}
		for _, part := range candidates(w, Read) {
			if v := j.operand(part, cmd.cwds, Read); !v.Allowed {
				return v
			}
		}
	}
	for _, f := range cmd.files {
		j.left.place(cmd.cwds)
		if v := j.file(f, cmd.cwds); !v.Allowed {
			return v
		}
	}
	return allowed
}

// file decides about a file that a command opens according to its program's table.
func (j *judging) file(f file, cwds []string) Verdict {
	switch {
	case f.kind == computed:
		return unknownOperand(f.word)
	case f.names:
		return Verdict{Code: CodeComputed, Subject: f.text, Reason: "the command reads file names from this file, so they are known only at run time"}
	}
	for _, part := range candidates(f.word, f.op) {
		part.path = part.path || f.sure && part.text == f.text
		part.deep = f.deep
		if v := j.operand(part, cwds, f.op); !v.Allowed {
			return v
		}
	}
	return allowed
}

// below denies a command that works on everything below a directory, if the directory contains a denied path.
func (j *judging) below(name, cwd string, o Op) Verdict {
	r, err := j.locate(name, cwd)
	if err != nil {
		return Verdict{Code: CodePathInvalid, Subject: name, Reason: "the path cannot be followed: " + err.Error()}
	}
	for _, t := range j.refusing(o) {
		if within(t.physical, j.fold(r.Physical)) || within(t.written, j.fold(r.Clean)) {
			return Verdict{Code: CodeDeniedPath, Subject: name, Reason: "the directory contains " + t.written + ", which is among " + t.field}
		}
	}
	return allowed
}

// operand is a part of an argument that may name a file. path is true if the part is certainly or probably a path,
// and false if it may be any word. deep is true if the command works on everything that a directory contains.
type operand struct {
	word
	path, deep bool
}

// candidates returns the parts of an argument that may name files: the argument itself, the values of options and of
// key=value, absolute paths behind the separators that programs use, and the path of a file URL.
func candidates(w word, o Op) []operand {
	t := w.text
	if w.kind == stream || safeDevice(t) || t == "" || t == "-" || t == "--" {
		return nil
	}
	wild := w.kind != literal
	key, value, keyed := strings.Cut(t, "=")
	keyed = keyed && identifier(strings.TrimLeft(key, "-"))
	out := []operand{{word: w, path: wild || !keyed && (o == Write || looksLikePath(t))}}
	add := func(from int) {
		if part := w.part(from, len(t)); part.text != "" && !safeDevice(part.text) {
			out = append(out, operand{word: part, path: o == Write || looksLikePath(part.text)})
		}
	}
	if strings.HasPrefix(t, "-") {
		if !wild {
			out = nil
		}
		if !strings.HasPrefix(t, "--") && len(t) > 2 {
			add(2)
		}
		if i := strings.IndexAny(t, "/~"); i > 0 {
			add(i)
		}
	}
	if value != "" {
		add(len(key) + 1)
	}
	for _, url := range []string{t, value} {
		if name := fileURL(url); name != "" {
			part := word{text: name, pos: w.pos}
			if strings.HasSuffix(t, name) {
				part = w.part(len(t)-len(name), len(t))
			}
			out = append(out, operand{word: part, path: true})
			break
		}
	}
	if strings.ContainsAny(t, ":,@") {
		for from := 0; from < len(t); {
			n := strings.IndexAny(t[from:]+":", ":,@=")
			if strings.HasPrefix(t[from:], "/") {
				// This operand is not marked as a path: in host:/path it is a file of another machine.
				out = append(out, operand{word: w.part(from, from+n)})
			}
			from += n + 1
		}
	}
	return out
}

// fileURL returns the path of a file URL in any form that programs accept.
func fileURL(s string) string {
	if len(s) < 6 || !strings.EqualFold(s[:5], "file:") {
		return ""
	}
	rest := s[5:]
	if host, ok := strings.CutPrefix(rest, "//"); ok {
		i := strings.IndexByte(host, '/')
		if i < 0 {
			return ""
		}
		rest = host[i:]
	}
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		rest = rest[:i]
	}
	if plain, err := url.PathUnescape(rest); err == nil {
		rest = plain
	}
	return rest
}

func looksLikePath(s string) bool {
	return strings.Contains(s, "/") || s == "." || s == ".." || s == "~"
}

// safeDevice reports whether a path is a device that may always be read and written.
func safeDevice(p string) bool {
	switch p {
	case "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full":
		return true
	}
	return false
}

// operand decides about one operand, relative to every possible working directory. An operand that does not look like
// a path is compared only with the denied paths, unless it leads through a link or the command line makes links.
func (j *judging) operand(w operand, cwds []string, o Op) Verdict {
	if safeDevice(w.text) {
		return allowed
	}
	if strings.HasPrefix(w.text, "/") {
		cwds = []string{"/"}
	}
	if len(cwds) == 0 {
		return Verdict{Code: CodeComputed, Subject: w.text, Reason: "the working directory that the path is relative to is known only at run time"}
	}
	for _, cwd := range cwds {
		if v := j.operandIn(w, cwd, o); !v.Allowed {
			return v
		}
	}
	return allowed
}

func (j *judging) operandIn(w operand, cwd string, o Op) (v Verdict) {
	switch {
	case w.kind == digits:
		return j.pattern(w, cwd, o)
	case w.kind == pattern:
		if v = j.pattern(w, cwd, o); !v.Allowed {
			return v
		}
		w.word = w.unmatched()
		return j.operandIn(w, cwd, o)
	case w.path:
		v = j.through(w.text, cwd, o)
	default:
		v = j.maybe(w.text, cwd, o)
	}
	if v.Allowed && w.deep {
		return j.below(w.text, cwd, o)
	}
	return v
}

// maybe decides about a text that may be a file name or something else.
func (j *judging) maybe(text, cwd string, o Op) Verdict {
	r, err := j.locate(text, cwd)
	if errors.Is(err, ErrUnseen) {
		return unseen(text)
	}
	if err != nil {
		return allowed // a text that cannot be resolved as a path is no file name
	}
	if t, ok := j.denied(r, o); ok {
		return Verdict{Code: CodeDeniedPath, Subject: text, Reason: "the path lies in " + t.written + ", which is among " + t.field}
	}
	if len(r.Hops) > 0 || len(j.aliases) > 0 {
		return j.through(text, cwd, o)
	}
	return allowed
}

// escapeGlob returns the pattern that matches only the given path.
func escapeGlob(p string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(p)
}

// splitGlob cuts a pattern before its first segment with a wildcard. The part before it is returned as a plain path,
// without escapes.
func splitGlob(glob string) (fixed, rest string) {
	b := strings.Builder{}
	for rest = strings.TrimPrefix(glob, "/"); rest != ""; {
		seg, more, _ := strings.Cut(rest, "/")
		plain, wild := plainSegment(seg)
		if wild {
			break
		}
		b.WriteString("/" + plain)
		rest = more
	}
	return cmp.Or(b.String(), "/"), rest
}

func plainSegment(seg string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(seg); i++ {
		switch seg[i] {
		case '\\':
			if i++; i < len(seg) {
				b.WriteByte(seg[i])
			}
		case '*', '?', '[':
			return "", true
		default:
			b.WriteByte(seg[i])
		}
	}
	return b.String(), false
}

// reaches reports whether a pattern could expand to root or to something below it.
func reaches(glob, root string) bool { return meets(glob, root, false) }

// meets reports whether a pattern could expand to root or to something below it. If above is true, it also
// reports a pattern that could expand to a directory which contains root.
func meets(glob, root string, above bool) bool {
	segs := split(glob)
	for i, want := range split(root) {
		if i >= len(segs) {
			return above
		}
		if strings.Contains(segs[i], "**") {
			return true
		}
		if !matches(segs[i], want) {
			return false
		}
	}
	return true
}

func split(p string) []string {
	var out []string
	for seg := range strings.SplitSeq(p, "/") {
		if seg != "" && seg != "." {
			out = append(out, seg)
		}
	}
	return out
}
