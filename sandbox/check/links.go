package check

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
	"syscall"
)

// alias is a name that a line makes for a path elsewhere. If the name is a copy, only
// the links below it lead there.
type alias struct {
	at, to string
	copied bool
}

const (
	// maxAliases bounds the names that a line makes, maxReadings the paths that one of
	// these names may mean.
	maxAliases, maxReadings = 64, 32
	// maxLooks bounds the directories and links that are looked up for one line.
	maxLooks = 2000
)

// collect finds the names that the line makes. They apply to the whole line: a loop or
// a function may use them before they are made.
func (j *judging) collect(an *Analysis) {
	for i := range an.Commands {
		cmd := &an.Commands[i]
		for _, l := range cmd.links {
			for _, cwd := range cmd.cwds {
				if len(j.aliases) == maxAliases {
					return
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
}

func absolute(dir, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	return join(dir, name)
}

// through decides about a path in every reading that the line's own links allow.
func (j *judging) through(p, cwd string, o Op) Verdict {
	if v := j.pathFrom(p, cwd, o); !v.Allowed || len(j.aliases) == 0 {
		return v
	}
	readings, ok := j.readings(absolute(cwd, p))
	if !ok {
		return Verdict{Code: CodeComputed, Subject: p, Reason: "the line makes more links than this checker follows"}
	}
	for _, r := range readings {
		if r.copied && !j.linked(r.to) {
			continue
		}
		if v := j.pathFrom(r.to, "/", o); !v.Allowed {
			v.Subject, v.Reason = p, "a link that the line makes: "+v.Reason
			return v
		}
	}
	return allowed
}

// linked reports whether a path leads through a link.
func (j *judging) linked(p string) bool {
	r, err := Normalize(j.opt.FS, p)
	return err != nil || len(r.Hops) > 0
}

// readings returns the other paths that a path may mean because of links the line
// makes. It returns false if there are too many.
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

// replacements returns the paths that following one of the links gives.
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
		// A path whose links could not be read was denied earlier.
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

// pattern decides about a glob: it must not be able to reach a denied tree, its fixed
// beginning must lie where everything below is allowed, and the links that it matches
// must lead there as well.
func (j *judging) pattern(w word, cwds []string, o Op) Verdict {
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
		if v := j.glob(glob, w, o, 0); !v.Allowed {
			return v
		}
	}
	return allowed
}

// glob decides about an absolute pattern. depth counts the links of the line that led
// to it.
func (j *judging) glob(glob string, w word, o Op, depth int) Verdict {
	fixed, rest := splitGlob(glob)
	if strings.Contains("/"+rest+"/", "/../") || depth > 4 {
		return unknownOperand(w)
	}
	if j.looks--; j.looks < 0 {
		return tooMany(w)
	}
	if globThroughProc(glob) {
		return Verdict{Code: CodeOutside, Subject: w.text, Reason: "where a process has its files is known only when it runs"}
	}
	for _, t := range j.refusing(o) {
		if reaches(glob, t.written) || reaches(glob, t.physical) {
			return Verdict{Code: CodeDeniedPath, Subject: w.text, Reason: "the pattern can reach " + t.written + ", which is among " + t.field}
		}
	}
	if v := j.through(fixed, "/", o); !v.Allowed {
		return v
	}
	for _, a := range j.aliases {
		if a.copied || !reaches(glob, a.at) {
			continue
		}
		if v := j.glob(join(escapeGlob(a.to), afterReach(glob, a.at)), w, o, depth+1); !v.Allowed {
			return v
		}
	}
	return j.expand(fixed, rest, w, o)
}

// afterReach returns the part of a pattern that applies below root; reaches(glob, root)
// must be true. A segment with ** may match any number of directories, below root too: the
// part begins with it.
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

// expand looks for links among the names that a pattern matches.
func (j *judging) expand(dir, rest string, w word, o Op) Verdict {
	if rest == "" {
		return allowed
	}
	if j.looks--; j.looks < 0 {
		return tooMany(w)
	}
	seg, more, _ := strings.Cut(rest, "/")
	entries, err := j.opt.FS.ReadDir(dir)
	switch {
	case errors.Is(err, ErrUnknown), errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EINVAL):
		return allowed // nothing that could match exists or can be listed
	case errors.Is(err, ErrUnseen):
		return unseen(w.text)
	case err != nil:
		return tooMany(w)
	}
	for _, e := range entries {
		if !matches(seg, e.Name) || !e.Link && (!e.Dir || more == "") {
			continue
		}
		if v := j.matched(join(dir, e.Name), more, w, o); !v.Allowed {
			return v
		}
	}
	return allowed
}

// matched decides about one name that a pattern matches, and continues below it.
func (j *judging) matched(name, more string, w word, o Op) Verdict {
	fixed, rest := splitGlob(join(escapeGlob(name), more))
	if j.looks--; j.looks < 0 {
		return tooMany(w)
	}
	if v := j.pathFrom(fixed, "/", o); !v.Allowed {
		v.Subject = w.text
		return v
	}
	return j.expand(fixed, rest, w, o)
}

func tooMany(w word) Verdict {
	return Verdict{Code: CodeComputed, Subject: w.text, Reason: "the pattern stands for more names than this checker looks at"}
}

// matches matches a name against one segment of a pattern. It also returns true for
// segments that Go's matcher and bash read differently.
func matches(seg, name string) bool {
	if strings.Contains(seg, "**") || strings.Contains(seg, "[!") || strings.Contains(seg, "[[") || strings.Contains(seg, "[.") {
		return true
	}
	ok, err := path.Match(seg, name)
	return ok || err != nil
}
