package check

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// FS gives the links and directories of the file system that rules and paths refer to.
// Its errors are those of the system, or one of the two below.
type FS interface {
	// Readlink gives the target of a symbolic link. For what is there and is no link
	// the error is syscall.EINVAL; for what is not there fs.ErrNotExist.
	Readlink(name string) (string, error)
	// ReadDir returns the entries of a directory, in any order. It fails if there are more
	// than it is willing to return.
	ReadDir(name string) ([]Entry, error)
}

var (
	// ErrUnknown is the error for a part of a file system about which nothing is known:
	// paths there are taken as written.
	ErrUnknown = errors.New("nothing is known of the file system there")
	// ErrUnseen is the error of an FS that could not look: no path can be followed then,
	// and calls that depend on one are denied.
	ErrUnseen = errors.New("the links there could not be looked at")
)

// Entry is one entry of a directory.
type Entry struct {
	Name string
	// Link: the entry is a symbolic link. Dir: it is a directory.
	Link, Dir bool
}

// Host is the machine's own file system, except for the links in /proc: their meaning
// depends on the process that follows them, so Host reports none.
type Host struct{}

// maxEntries bounds how many entries of a directory are read.
const maxEntries = 10_000

// Readlink implements FS.
func (Host) Readlink(name string) (string, error) {
	if within(path.Clean(name), "/proc") {
		return "", syscall.EINVAL
	}
	return os.Readlink(name)
}

// ReadDir implements FS.
func (Host) ReadDir(name string) ([]Entry, error) {
	if within(path.Clean(name), "/proc") {
		return nil, fs.ErrNotExist
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(maxEntries)
	if err != nil {
		return nil, err
	}
	if len(list) == maxEntries {
		return nil, syscall.E2BIG
	}
	out := make([]Entry, len(list))
	for i, e := range list {
		out[i] = Entry{Name: e.Name(), Link: e.Type()&fs.ModeSymlink != 0, Dir: e.IsDir()}
	}
	return out, nil
}

// none is a file system of which nothing is known.
type none struct{}

func (none) Readlink(string) (string, error) { return "", ErrUnknown }

func (none) ReadDir(string) ([]Entry, error) { return nil, ErrUnknown }

// maxLinks is how many links a path may lead through, as in the kernel.
const maxLinks = 40

// Resolved is a path in the three readings that rules are held against.
type Resolved struct {
	// Clean is the path without `.`, `..` and doubled slashes, by its text alone.
	Clean string
	// Physical is where it leads: links followed in the kernel's order, what is
	// missing appended.
	Physical string
	// Hops are the targets of the links on the way.
	Hops []string
	// proc: the path leads through a process's files in /proc.
	proc bool
}

// maxResolved bounds a path with its directory in front and its links followed: the
// kernel takes paths of PATH_MAX, from directories that may lie as deep again.
const maxResolved = 4 * maxPath

// Normalize resolves an absolute path. It fails on a loop of links and on a path that
// is too long to follow.
func Normalize(fsys FS, p string) (Resolved, error) {
	if len(p) > maxResolved {
		return Resolved{}, syscall.ENAMETOOLONG
	}
	r := Resolved{Clean: path.Clean(p)}
	if _, unknown := fsys.(none); unknown && strings.HasPrefix(p, "/") && !strings.Contains(p, "proc") && !strings.Contains(p, "fd") {
		// Without links a path leads to where its text says.
		r.Physical = r.Clean
		return r, nil
	}
	at, rest, links := "/", p, 0
	for rest != "" {
		var seg string
		seg, rest, _ = strings.Cut(rest, "/")
		// A descriptor may be open on any directory.
		r.proc = r.proc || seg != "" && path.Dir(at) == "/dev/fd"
		switch seg {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := join(at, seg)
		r.proc = r.proc || throughProc(next)
		target, err := fsys.Readlink(next)
		if errors.Is(err, ErrUnseen) {
			return r, err
		}
		if err != nil {
			// Not a link, or not there: the name stands for itself.
			at = next
			continue
		}
		if links++; links > maxLinks {
			return r, syscall.ELOOP
		}
		if strings.HasPrefix(target, "/") {
			at = "/"
		}
		r.Hops = append(r.Hops, path.Clean(join(at, target)))
		rest = target + "/" + rest
		if len(rest) > maxResolved {
			return r, syscall.ENAMETOOLONG
		}
	}
	r.Physical = at
	return r, nil
}

func join(dir, name string) string {
	if strings.HasSuffix(dir, "/") {
		return dir + name
	}
	return dir + "/" + name
}

// clean is a path without a trailing slash; the root stays the root, empty stays
// empty.
func clean(p string) string {
	if p == "" {
		return ""
	}
	return path.Clean(p)
}

// within reports whether p is root or lies below it.
func within(p, root string) bool {
	if root == "/" || p == root {
		return true
	}
	return strings.HasPrefix(p, root) && p[len(root)] == '/'
}

// tree is a rule's root: as written, the path it leads to, and the field that names it.
type tree struct{ written, physical, field string }

func (t tree) holds(p string) bool { return within(p, t.physical) || within(p, t.written) }

// Op is what is done to a path.
type Op uint8

// The operations.
const (
	Read Op = iota + 1
	Write
)

func (o Op) String() string {
	if o == Write {
		return "write"
	}
	return "read"
}

// Path decides whether an operation on p is allowed. A relative path is taken from
// the working directory, one that begins with ~ both as it stands and from the
// home directory. Without path rules everything is.
func (c *Checker) Path(p string, o Op) Verdict {
	if !c.hasPaths {
		return allowed
	}
	if p == "" || strings.ContainsRune(p, 0) {
		return Verdict{Code: CodePathInvalid, Subject: p, Reason: "an empty path, or one with a NUL byte, cannot be located"}
	}
	if v := c.pathFrom(p, c.opt.Cwd, o); !v.Allowed {
		return v
	}
	if home, ok := c.underHome(p); ok {
		return c.pathFrom(home, "/", o)
	}
	return allowed
}

func (c *Checker) underHome(p string) (string, bool) {
	if c.opt.Home == "" || p != "~" && !strings.HasPrefix(p, "~/") {
		return "", false
	}
	return c.opt.Home + p[1:], true
}

// pathFrom decides about one reading of a path.
func (c *Checker) pathFrom(p, cwd string, o Op) Verdict {
	r, err := c.locate(p, cwd)
	if err != nil {
		return Verdict{Code: CodePathInvalid, Subject: p, Reason: "the path cannot be followed: " + err.Error()}
	}
	if r.proc {
		return Verdict{Code: CodeOutside, Subject: p, Reason: "where a process has its files is known only when it runs"}
	}
	if t, ok := c.denied(r, o); ok {
		return Verdict{Code: CodeDeniedPath, Subject: p, Reason: "it lies in " + t.written + ", which is among " + t.field}
	}
	roots, field := c.reads, "allowedReadPaths"
	if o == Write {
		roots, field = c.writes, "allowedWritePaths"
	}
	if len(roots) == 0 {
		return allowed
	}
	at := c.fold(r.Physical)
	for _, t := range roots {
		if within(at, t.physical) {
			return allowed
		}
	}
	return Verdict{Code: CodeOutside, Subject: p, Reason: "it leads to " + r.Physical + ", which no root of " + field + " holds"}
}

// throughProc reports whether a path leads through a process's files in /proc: its
// root, its working directory, its open files.
func throughProc(p string) bool {
	segs := split(p)
	if len(segs) < 3 || segs[0] != "proc" {
		return false
	}
	at := segs[2]
	if at == "task" && len(segs) > 4 {
		at = segs[4]
	}
	return slices.Contains(processFiles, at)
}

// processFiles lead out of /proc/PID to other places.
var processFiles = []string{"root", "cwd", "fd", "map_files"}

func (c *Checker) locate(p, cwd string) (Resolved, error) {
	if len(p) > maxPath {
		return Resolved{}, syscall.ENAMETOOLONG
	}
	if !strings.HasPrefix(p, "/") {
		p = join(cwd, p)
	}
	return Normalize(c.opt.FS, p)
}

// refusing are the roots that an operation may not touch.
func (c *Checker) refusing(o Op) []tree {
	if o == Write {
		return slices.Concat(c.denies, c.readOnly)
	}
	return c.denies
}

// denied finds the denied root that holds any reading of the path.
func (c *Checker) denied(r Resolved, o Op) (tree, bool) {
	for _, t := range c.refusing(o) {
		if t.holds(c.fold(r.Clean)) || t.holds(c.fold(r.Physical)) {
			return t, true
		}
		for _, h := range r.Hops {
			if t.holds(c.fold(h)) {
				return t, true
			}
		}
	}
	return tree{}, false
}

func (c *Checker) fold(p string) string {
	if c.opt.FoldCase {
		return strings.ToLower(p)
	}
	return p
}

// Scope holds the path rules for one operation, for the code that opens files and so
// knows where links lead: a path has to lead below a root of each list of Within and
// below none of Denied, and may neither match one of Patterns nor lie below a match.
// Roots and patterns are absolute. Pattern segments are matched as by path.Match; a
// segment `**` is any number of directories.
type Scope struct {
	Denied   []string
	Within   [][]string
	Patterns []string
	// Layers restrict the processes that the operation starts.
	Layers []Layer
}

// Layer is what the processes of one agent may touch in its box, in a form that the
// kernel can enforce. Read and Write are roots, nil for no restriction. No root in
// either list leads to a path in Denied, and no root in Write leads to a path in
// ReadOnly.
type Layer struct{ Read, Write, Denied, ReadOnly []string }

// Scope returns to with the rules of these settings for operation o added. ~ stands for home.
func (s Settings) Scope(o Op, home string, to Scope) Scope {
	at := func(rules []string) []string {
		var out []string
		for _, r := range rules {
			if r == "~" || strings.HasPrefix(r, "~/") {
				r = home + r[1:]
			}
			out = append(out, path.Clean(r))
		}
		return out
	}
	to.Denied = append(to.Denied, at(s.DeniedPaths)...)
	allowed := s.AllowedReadPaths
	if o == Write {
		to.Denied = append(to.Denied, at(s.DeniedWritePaths)...)
		allowed = s.AllowedWritePaths
	}
	if len(allowed) > 0 {
		to.Within = append(to.Within, at(allowed))
	}
	return to
}
