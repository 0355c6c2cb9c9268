package check

import (
	"path"
	"strings"
)

// judgePaths holds what commands name against the path rules.
func (c *Checker) judgePaths(an *Analysis) Verdict {
	if !c.hasPaths {
		return allowed
	}
	for i := range an.Commands {
		cmd := &an.Commands[i]
		if v := c.operands(cmd); !v.Allowed {
			v.Pos = cmd.Pos
			return v
		}
	}
	for i := range an.Redirects {
		r := &an.Redirects[i]
		if v := c.redirect(r); !v.Allowed {
			v.Pos = r.Pos
			return v
		}
	}
	return allowed
}

func (c *Checker) redirect(r *Redirect) Verdict {
	if r.target.kind == computed {
		return unknownOperand(r.target)
	}
	for _, o := range r.ops {
		if v := c.operand(r.target, r.cwds, o, true); !v.Allowed {
			return v
		}
	}
	return allowed
}

func unknownOperand(w word) Verdict {
	return Verdict{Code: CodeComputed, Subject: w.text, Reason: "an operand that is known only when it runs cannot be held against the path rules"}
}

// operands decides about the words of one command. The command word counts when
// it is a path.
func (c *Checker) operands(cmd *Command) Verdict {
	if strings.Contains(cmd.Name, "/") {
		if v := c.operand(word{text: cmd.Name}, cmd.cwds, Read, true); !v.Allowed {
			return v
		}
	}
	writes := mutates(cmd)
	for i, w := range cmd.words {
		if w.kind == computed {
			return unknownOperand(w)
		}
		o := Read
		if writes[i] {
			o = Write
		}
		for _, part := range candidates(w, o) {
			if v := c.operand(part.word, cmd.cwds, o, part.path); !v.Allowed {
				return v
			}
		}
	}
	return allowed
}

// candidate is a piece of an argument that may name a file; path says that it
// looks like one, and not like any word.
type candidate struct {
	word
	path bool
}

// candidates takes an argument apart: option values, key=value, and absolute paths
// behind the separators that programs use.
func candidates(w word, o Op) []candidate {
	switch w.kind {
	case pattern, digits:
		return []candidate{{w, true}}
	case stream:
		return nil
	}
	t := w.text
	if safeDevice(t) || t == "" || t == "-" || t == "--" {
		return nil
	}
	key, value, keyed := strings.Cut(t, "=")
	keyed = keyed && identifier(strings.TrimLeft(key, "-"))
	out := []candidate{{word{text: t}, !keyed && (o == Write || looksLikePath(t))}}
	add := func(s string) {
		if s != "" && !safeDevice(s) {
			out = append(out, candidate{word{text: s}, o == Write || looksLikePath(s)})
		}
	}
	if strings.HasPrefix(t, "-") {
		out = nil
		if !strings.HasPrefix(t, "--") && len(t) > 2 {
			add(t[2:])
		}
		if i := strings.IndexAny(t, "/~"); i > 0 {
			add(t[i:])
		}
	}
	if value != "" {
		add(value)
	}
	if rest, ok := strings.CutPrefix(t, "file://"); ok {
		if i := strings.IndexByte(rest, '/'); i >= 0 {
			add(rest[i:])
		}
	}
	if strings.ContainsAny(t, ":,@") {
		for piece := range strings.FieldsFuncSeq(t, func(r rune) bool { return strings.ContainsRune(":,@=", r) }) {
			if strings.HasPrefix(piece, "/") {
				// Only a denial is of interest: the path behind a host is not one of ours.
				out = append(out, candidate{word{text: piece}, false})
			}
		}
	}
	return out
}

func looksLikePath(s string) bool {
	return strings.Contains(s, "/") || s == "." || s == ".." || s == "~"
}

// safeDevice is always fine to read and to write.
func safeDevice(p string) bool {
	switch p {
	case "/dev/null", "/dev/stdout", "/dev/stderr", "/dev/stdin", "/dev/tty", "/dev/zero", "/dev/urandom", "/dev/random", "/dev/full":
		return true
	}
	return false
}

// operand decides about one name, from every directory it may be used in. What
// does not look like a path is held against deniedPaths only, unless a link of that
// name is there.
func (c *Checker) operand(w word, cwds []string, o Op, isPath bool) Verdict {
	if safeDevice(w.text) {
		return allowed
	}
	if w.kind == pattern || w.kind == digits {
		return c.pattern(w, cwds, o)
	}
	if strings.HasPrefix(w.text, "/") {
		cwds = []string{"/"}
	}
	if len(cwds) == 0 {
		return Verdict{Code: CodeComputed, Subject: w.text, Reason: "the directory it is relative to is known only when it runs"}
	}
	for _, cwd := range cwds {
		if isPath {
			if v := c.pathFrom(w.text, cwd, o); !v.Allowed {
				return v
			}
			continue
		}
		r, err := c.locate(w.text, cwd)
		if err != nil {
			continue // too long or too odd for a name: text
		}
		if t, ok := c.denied(r); ok {
			return Verdict{Code: CodeDeniedPath, Subject: w.text, Reason: "it lies in " + t.written + ", which is among deniedPaths"}
		}
		if len(r.Hops) > 0 {
			if v := c.pathFrom(w.text, cwd, o); !v.Allowed {
				return v
			}
		}
	}
	return allowed
}

// pattern decides about a glob: it may not be able to reach a denied tree, and its
// fixed beginning has to lie where all below is allowed.
func (c *Checker) pattern(w word, cwds []string, o Op) Verdict {
	if strings.HasPrefix(w.glob, "/") {
		cwds = []string{"/"}
	}
	if len(cwds) == 0 {
		return unknownOperand(w)
	}
	for _, cwd := range cwds {
		glob := w.glob
		if !strings.HasPrefix(glob, "/") {
			glob = join(escapeGlob(cwd), glob)
		}
		fixed, rest := splitGlob(glob)
		if strings.Contains("/"+rest+"/", "/../") {
			return unknownOperand(w)
		}
		for _, t := range c.denies {
			if reaches(glob, t.written) || reaches(glob, t.physical) {
				return Verdict{Code: CodeDeniedPath, Subject: w.text, Reason: "the pattern can reach " + t.written + ", which is among deniedPaths"}
			}
		}
		if v := c.pathFrom(fixed, "/", o); !v.Allowed {
			return v
		}
	}
	return allowed
}

// escapeGlob makes a path match itself only.
func escapeGlob(p string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(p)
}

// splitGlob cuts a pattern before its first segment with a wildcard; the first
// part is a plain path.
func splitGlob(glob string) (fixed, rest string) {
	fixed = "/"
	for rest = strings.TrimPrefix(glob, "/"); rest != ""; {
		seg, more, _ := strings.Cut(rest, "/")
		plain, wild := plainSegment(seg)
		if wild {
			return fixed, rest
		}
		fixed, rest = join(fixed, plain), more
	}
	return fixed, ""
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
func reaches(glob, root string) bool {
	segs := split(glob)
	for i, want := range split(root) {
		if i >= len(segs) {
			return false
		}
		if strings.Contains(segs[i], "**") {
			return true
		}
		// What Go's matcher reads in another way than bash may match.
		if ok, err := path.Match(segs[i], want); !ok && err == nil && !strings.Contains(segs[i], "[!") && !strings.Contains(segs[i], "[[") && !strings.Contains(segs[i], "[.") {
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

// mutates marks the words that a known program writes to.
func mutates(cmd *Command) map[int]bool {
	how, known := mutators[baseName(cmd.Name)]
	if !known {
		return nil
	}
	out := map[int]bool{}
	var operands []int
	options, named := true, false
	for i, w := range cmd.words {
		switch {
		case options && w.text == "--":
			options = false
		case options && strings.HasPrefix(w.text, "-") && w.text != "-":
			if how == last && (w.text == "-t" || strings.HasPrefix(w.text, "-t") || strings.HasPrefix(w.text, "--target-directory")) {
				named = true
				out[i], out[i+1] = true, w.text == "-t" || w.text == "--target-directory"
			}
		case how == dd:
			out[i] = strings.HasPrefix(w.text, "of=")
		default:
			operands = append(operands, i)
		}
	}
	switch {
	case how == inPlace && !editsInPlace(cmd):
		return nil
	case how == last && len(operands) > 0 && !named:
		out[operands[len(operands)-1]] = true
	case how == afterFirst && len(operands) > 0:
		operands = operands[1:]
		fallthrough
	default:
		if how != last {
			for _, i := range operands {
				out[i] = true
			}
		}
	}
	return out
}

func editsInPlace(cmd *Command) bool {
	for _, w := range cmd.words {
		if strings.HasPrefix(w.text, "-i") || strings.HasPrefix(w.text, "--in-place") {
			return true
		}
	}
	return false
}

// mutation says which operands a program writes to.
type mutation uint8

const (
	every      mutation = iota + 1
	last                // the last one, or that of -t
	afterFirst          // all but the first
	dd                  // of=
	inPlace             // all, with -i
)

var mutators = map[string]mutation{
	"touch": every, "mkdir": every, "rmdir": every, "rm": every, "unlink": every, "shred": every, "mv": every,
	"tee": every, "truncate": every, "mkfifo": every, "mknod": every, "sponge": every, "mktemp": every,
	"cp": last, "ln": last, "install": last, "rsync": last, "link": last,
	"chmod": afterFirst, "chown": afterFirst, "chgrp": afterFirst,
	"dd": dd, "sed": inPlace, "perl": inPlace,
}
