package check

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
)

// FS reads links and directories of the file system that rules and paths refer to. Its errors
// are those of the operating system, or ErrUnknown or ErrUnseen.
type FS interface {
	// Readlink returns the target of a symbolic link. The error is syscall.EINVAL if name
	// exists but is not a link, and fs.ErrNotExist if it does not exist.
	Readlink(name string) (string, error)
	// ReadDir returns the entries of a directory, in any order. It fails if there are too many for the FS.
	ReadDir(name string) ([]Entry, error)
}

var (
	// ErrUnknown is the error for a part of the file system that the FS does not know. Paths there are used as written.
	ErrUnknown = errors.New("this part of the file system is not known, so the path is used as it is written")
	// ErrUnseen is the error of an FS that failed to look up a path. The path then cannot be
	// resolved, and calls that depend on it are denied.
	ErrUnseen = errors.New("the links in this path could not be read")
)

// Entry is one entry of a directory.
type Entry struct {
	Name string
	// Link is true for a symbolic link, Dir for a directory.
	Link, Dir bool
}

// Host is the machine's own file system without the links in /proc, whose targets depend on the process.
type Host struct{}

// maxEntries is the number of entries from which on Host does not list a directory.
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
	if err != nil && err != io.EOF { // io.EOF: the directory is empty
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

// none is an FS that knows nothing about its file system.
type none struct{}

func (none) Readlink(string) (string, error) { return "", ErrUnknown }

func (none) ReadDir(string) ([]Entry, error) { return nil, ErrUnknown }

// maxLinks is how many links a path may lead through, as in the kernel.
const maxLinks = 40

// Resolved holds the three forms of a path that rules are compared with.
type Resolved struct {
	// Clean is the path without `.`, `..` and doubled slashes, without following links.
	Clean string
	// Physical is the path after following links in the kernel's order; segments that do not
	// exist are appended as written.
	Physical string
	// Hops are the targets of the links that were followed.
	Hops []string
	// proc is true if the path leads through a process's files in /proc.
	proc bool
	// hidden is true if a directory of the path cannot be searched, so that links in it are not known.
	hidden bool
}

// maxResolved is the greatest length of a path joined with its directory, while links are
// followed: both may be as long as the kernel allows (PATH_MAX).
const maxResolved = 4 * maxPath

// Normalize resolves an absolute path. It fails if the path is too long, leads through more than maxLinks links, or
// has a link that the FS failed to read (ErrUnseen).
func Normalize(fsys FS, p string) (Resolved, error) {
	if len(p) > maxResolved {
		return Resolved{}, syscall.ENAMETOOLONG
	}
	r := Resolved{Clean: path.Clean(p)}
	if _, unknown := fsys.(none); unknown && strings.HasPrefix(p, "/") && !strings.Contains(p, "proc") && !strings.Contains(p, "fd") {
		// If no links are known, a path leads to where its text says.
		r.Physical = r.Clean
		return r, nil
	}
	at, rest, links := "/", p, 0
	for rest != "" {
		var seg string
		seg, rest, _ = strings.Cut(rest, "/")
		// A descriptor in /dev/fd may refer to any directory.
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
			// The path next is not a link, does not exist or is not known: keep it as written.
			at, r.hidden = next, r.hidden || errors.Is(err, fs.ErrPermission)
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

// clean returns a path in the form of path.Clean; an empty path stays empty.
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

// tree is a rule's path, as written and with links resolved, and the settings field it is in.
type tree struct{ written, physical, field string }

func (t tree) holds(p string) bool { return within(p, t.physical) || within(p, t.written) }

// Op says whether a path is read or written.
type Op uint8

// The operations on a path.
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

// Path decides whether an operation on the path p is allowed. A relative path is relative to the working directory.
// The path ~, or one that begins with ~/, must be allowed both as written and in the home directory. Without path
// rules every path is allowed.
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

// pathFrom decides about a path that is relative to cwd.
func (c *Checker) pathFrom(p, cwd string, o Op) Verdict {
	r, err := c.locate(p, cwd)
	if err != nil {
		return Verdict{Code: CodePathInvalid, Subject: p, Reason: "the path cannot be followed: " + err.Error()}
	}
	if r.proc {
		return Verdict{Code: CodeOutside, Subject: p, Reason: "where the files of a process in /proc lead is known only at run time"}
	}
	if t, ok := c.denied(r, o); ok {
		return Verdict{Code: CodeDeniedPath, Subject: p, Reason: "the path lies in " + t.written + ", which is among " + t.field}
	}
	if r.hidden {
		return Verdict{Code: CodePathInvalid, Subject: p, Reason: "a directory in the path cannot be searched, so where links in it lead is not known"}
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
	return Verdict{Code: CodeOutside, Subject: p, Reason: "the path leads to " + r.Physical + ", which is below no path in " + field}
}

// throughProc reports whether a path leads through a process's root, working directory or open files in /proc.
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

// processFiles are the names in /proc/PID, links or directories of links, through which a path leads to other places.
var processFiles = []string{"root", "cwd", "fd", "map_files"}

func (c *Checker) locate(p, cwd string) (Resolved, error) {
	if len(p) > maxPath {
		return Resolved{}, syscall.ENAMETOOLONG
	}
	return Normalize(c.opt.FS, absolute(cwd, p))
}

// refusing returns the trees that an operation may not access.
func (c *Checker) refusing(o Op) []tree {
	if o == Write {
		return slices.Concat(c.denies, c.readOnly)
	}
	return c.denies
}

// denied returns a denied tree that contains the path as written, the path with its links resolved, or the target of
// one of the links.
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

// Scope holds the path rules for one operation. The code that opens the files applies it, because only that code
// knows where links lead: a path has to lead below a root of each list in Within and below no root in Denied and no
// directory in Agents, and may neither match one of Patterns nor lie below a match. Roots and patterns are absolute, the
// directories of agents are relative to the home. Segments of patterns match as in path.Match, `**` matches any number.
type Scope struct {
	Denied   []string
	Within   [][]string
	Patterns []string
	Agents   []string
	// Layers restrict the processes that the operation starts.
	Layers []Layer
}

// Layer limits what the processes of one agent may access in its box, in a form that the kernel can enforce. Read and
// Write list the allowed paths; nil means no restriction. No path in Read or Write may lead to a path in Denied, and
// no path in Write to a path in ReadOnly.
type Layer struct{ Read, Write, Denied, ReadOnly []string }

// InHome returns the paths of settings as absolute paths, with ~ replaced by home.
func InHome(rules []string, home string) (out []string) {
	for _, r := range rules {
		if r == "~" || strings.HasPrefix(r, "~/") {
			r = home + r[1:]
		}
		out = append(out, path.Clean(r))
	}
	return out
}

// Scope returns the scope to, with the path rules of s for the operation o added. In the rules ~ means home.
func (s Settings) Scope(o Op, home string, to Scope) Scope {
	denied, allowed := s.DeniedPaths, s.AllowedReadPaths
	if o == Write {
		denied, allowed = slices.Concat(denied, s.DeniedWritePaths), s.AllowedWritePaths
	}
	to.Denied = append(to.Denied, InHome(denied, home)...)
	if len(allowed) > 0 {
		to.Within = append(to.Within, InHome(allowed, home))
	}
	return to
}
