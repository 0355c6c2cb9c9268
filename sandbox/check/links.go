package check

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// alias records that a command line, for example with ln, makes the path at lead to the path to. copied is true if at
// is a copy of to: then only symbolic links in the copy lead elsewhere.
type alias struct {
	at, to string
	copied bool
}

const (
	// maxAliases limits the aliases of a command line, maxReadings the other paths that aliases make of one path.
	maxAliases, maxReadings = 64, 32
	// maxLooks is how many steps through directories and matched names the patterns of a command line may take.
	maxLooks = 2000
)

// collect finds the aliases that the command line makes. They apply to the whole line, because a loop or a function
// may use an alias before the text that makes it. More than maxAliases are denied.
func (j *judging) collect(an *Analysis) Verdict {
	for i := range an.Commands {
		cmd := &an.Commands[i]
		for _, l := range cmd.links {
			for _, cwd := range cmd.cwds {
				if len(j.aliases) == maxAliases {
					return tooManyLinks(l.at.text)
				}
				at := absolute(cwd, l.at.text)
				to := absolute(cwd, l.to.text)
				if l.beside {
					to = absolute(path.Dir(at), l.to.text)
				}
				if path.Clean(at) != path.Clean(to) {
					j.aliases = append(j.aliases, alias{at: path.Clean(at), to: to, copied: l.copied})
				}
			}
		}
	}
	return allowed
}

func tooManyLinks(subject string) Verdict {
	return Verdict{Code: CodeComputed, Subject: subject, Reason: "the command line makes more links than this checker follows"}
}

func absolute(dir, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return join(dir, name)
}

// through decides about a path, and about every path that it may mean because of the aliases of the command line.
func (j *judging) through(p, cwd string, o Op) Verdict {
	if v := j.pathFrom(p, cwd, o); !v.Allowed || len(j.aliases) == 0 {
		return v
	}
	readings, ok := j.readings(absolute(cwd, p))
	if !ok {
		return tooManyLinks(p)
	}
	for _, r := range readings {
		if r.copied && !j.linked(r.to) {
			continue
		}
		if v := j.pathFrom(r.to, "/", o); !v.Allowed {
			v.Subject, v.Reason = p, "through a link that the command line makes: "+v.Reason
			return v
		}
	}
	return allowed
}

// linked reports whether a path leads through a symbolic link, or cannot be resolved.
func (j *judging) linked(p string) bool {
	r, err := Normalize(j.opt.FS, p)
	return err != nil || len(r.Hops) > 0
}

// readings returns the other paths that a path may mean because of aliases that the command line makes. It returns
// false if there are more than maxReadings.
func (j *judging) readings(p string) ([]alias, bool) {
	var out []alias
	next := []string{p}
	for len(next) > 0 {
		p, next = next[0], next[1:]
		for _, r := range j.replacements(p) {
			if slices.Contains(out, r) {
				continue
			}
			if len(out) == maxReadings {
				return nil, false
			}
			out = append(out, r)
			next = append(next, r.to)
		}
	}
	return out, true
}

// replacements returns the paths that p becomes when one of the aliases is followed.
func (j *judging) replacements(p string) []alias {
	var out []alias
	at, rest := "/", p
	for links := 0; rest != ""; {
		j.left.step()
		var seg string
		seg, rest, _ = strings.Cut(rest, "/")
		switch seg {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		at = join(at, seg)
		for _, a := range j.aliases {
			j.left.step()
			if a.at == at {
				out = append(out, alias{to: join(a.to, rest), copied: a.copied})
			}
		}
		// Ignore an error: a path whose links cannot be read is denied elsewhere.
		if target, err := j.opt.FS.Readlink(at); err == nil && links < maxLinks {
			links++
			rest = target + "/" + rest
			if at = path.Dir(at); strings.HasPrefix(target, "/") {
				at = "/"
			}
		}
	}
	return out
}

// pattern decides about a glob pattern: it must not be able to match a denied tree, and links that it matches must lead
// to allowed places. If the word is taken for a path, the directory before the first wildcard must be allowed, too.
func (j *judging) pattern(w operand, cwd string, o Op) Verdict {
	return j.glob(absolute(escapeGlob(cwd), w.glob()), w, o, 0)
}

// glob decides about an absolute pattern; depth is how many aliases and links were followed to get to the pattern.
func (j *judging) glob(glob string, w operand, o Op, depth int) Verdict {
	fixed, rest := splitGlob(glob)
	if strings.Contains("/"+rest+"/", "/../") || depth > 4 {
		return unknownOperand(w.word)
	}
	if j.looks--; j.looks < 0 {
		return tooMany(w)
	}
	if globThroughProc(glob) {
		return Verdict{Code: CodeOutside, Subject: w.text, Reason: "where the files of a process in /proc lead is known only at run time"}
	}
	for _, t := range j.refusing(o) {
		if reaches(glob, t.written) || reaches(glob, t.physical) {
			return Verdict{Code: CodeDeniedPath, Subject: w.text, Reason: "the pattern can reach " + t.written + ", which is among " + t.field}
		}
		if w.deep && (meets(glob, t.written, true) || meets(glob, t.physical, true)) {
			return Verdict{Code: CodeDeniedPath, Subject: w.text, Reason: "the pattern can match a directory that contains " + t.written + ", which is among " + t.field}
		}
	}
	if w.path {
		if v := j.through(fixed, "/", o); !v.Allowed {
			return v
		}
	}
	for _, a := range j.aliases {
		if a.copied || !reaches(glob, a.at) {
			continue
		}
		if v := j.glob(join(escapeGlob(a.to), afterReach(glob, a.at)), w, o, depth+1); !v.Allowed {
			return v
		}
	}
	return j.expand(fixed, rest, w, o, depth)
}

// afterReach returns the rest of a pattern that applies below root; reaches(glob, root) must be true. If a segment
// with ** matches part of root, the rest begins with **, which may match further directories below root.
func afterReach(glob, root string) string {
	segs := split(glob)
	for i := range split(root) {
		if strings.Contains(segs[i], "**") {
			return strings.Join(append([]string{"**"}, segs[i+1:]...), "/")
		}
	}
	return strings.Join(segs[len(split(root)):], "/")
}

// globThroughProc reports whether a pattern could match a process's files in /proc.
func globThroughProc(glob string) bool {
	segs := split(glob)
	if len(segs) < 3 || !matches(segs[0], "proc") {
		return false
	}
	return slices.ContainsFunc(segs[2:], func(seg string) bool {
		return slices.ContainsFunc(processFiles, func(name string) bool { return matches(seg, name) })
	})
}

// expand decides about the names in a directory that the rest of a pattern matches, and follows links among them.
// depth has the meaning that it has in glob.
func (j *judging) expand(dir, rest string, w operand, o Op, depth int) Verdict {
	if rest == "" {
		return allowed
	}
	if j.looks--; j.looks < 0 {
		return tooMany(w)
	}
	switch r, err := Normalize(j.opt.FS, dir); {
	case errors.Is(err, ErrUnseen):
		return unseen(w.text)
	case err != nil:
		return allowed // a path that the kernel cannot follow has no entries
	case r.Physical != dir:
		return j.glob(join(escapeGlob(r.Physical), rest), w, o, depth+1)
	}
	seg, more, _ := strings.Cut(rest, "/")
	for _, dots := range [...]string{".", ".."} {
		// A segment that begins with a dot may match the directory itself and its parent.
		if !strings.HasPrefix(strings.TrimPrefix(seg, `\`), ".") || !matches(seg, dots) {
			continue
		}
		if v := j.matched(path.Join(dir, dots), more, w, o, depth); !v.Allowed {
			return v
		}
	}
	recursive := seg == "**"
	if recursive && more != "" {
		if v := j.matched(dir, more, w, o, depth); !v.Allowed {
			return v
		}
	}
	entries, err := j.opt.FS.ReadDir(dir)
	switch {
	case errors.Is(err, ErrUnknown), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EINVAL):
		return allowed // nothing is known about the directory, or nothing can match because there is none
	case errors.Is(err, fs.ErrPermission):
		return Verdict{Code: CodePathInvalid, Subject: w.text, Reason: "the pattern cannot be followed: the directory " + dir + " cannot be listed"}
	case errors.Is(err, ErrUnseen):
		return unseen(w.text)
	case err != nil:
		return tooMany(w)
	}
	for _, e := range entries {
		if !matches(seg, e.Name) || !e.Link && (!e.Dir || more == "" && !recursive) {
			continue
		}
		v, name := allowed, join(dir, e.Name)
		if recursive && e.Dir {
			v = j.expand(name, rest, w, o, depth)
		} else {
			v = j.matched(name, more, w, o, depth)
		}
		if !v.Allowed {
			return v
		}
	}
	return allowed
}

// matched decides about one name that a pattern matches, and about the names below it that the rest of the pattern
// matches. depth has the meaning that it has in glob.
func (j *judging) matched(name, more string, w operand, o Op, depth int) Verdict {
	fixed, rest := splitGlob(join(escapeGlob(name), more))
	if j.looks--; j.looks < 0 {
		return tooMany(w)
	}
	v := j.pathFrom(fixed, "/", o)
	if v.Allowed && w.deep {
		v = j.below(fixed, "/", o)
	}
	if !v.Allowed {
		v.Subject = w.text
		return v
	}
	return j.expand(fixed, rest, w, o, depth)
}

func tooMany(w operand) Verdict {
	return Verdict{Code: CodeComputed, Subject: w.text, Reason: "the pattern matches more names than this checker examines"}
}

// matches reports whether a name may match one segment of a pattern. It returns true for each segment with **, [!, [[
// or [., which path.Match and bash interpret differently, and for a malformed one.
func matches(seg, name string) bool {
	if strings.Contains(seg, "**") || strings.Contains(seg, "[!") || strings.Contains(seg, "[[") || strings.Contains(seg, "[.") {
		return true
	}
	ok, err := path.Match(seg, name)
	return ok || err != nil
}
