package check

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
)

// FS is the file system that rules and paths are about, as far as links go.
type FS interface {
	// Readlink gives the target of a symbolic link. For what is there and is no link
	// the error is syscall.EINVAL; for what is not there fs.ErrNotExist.
	Readlink(name string) (string, error)
}

// Host is the machine's own file system.
type Host struct{}

// Readlink implements FS.
func (Host) Readlink(name string) (string, error) { return os.Readlink(name) }

// none is a file system of which nothing is known.
type none struct{}

func (none) Readlink(string) (string, error) { return "", fs.ErrNotExist }

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
}

// Normalize resolves an absolute path. It fails on a loop of links.
func Normalize(fsys FS, p string) (Resolved, error) {
	r := Resolved{Clean: path.Clean(p)}
	at, rest, links := "/", p, 0
	for rest != "" {
		var seg string
		seg, rest, _ = strings.Cut(rest, "/")
		switch seg {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := join(at, seg)
		target, err := fsys.Readlink(next)
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

// exists reports whether fsys knows of something at p.
func exists(fsys FS, p string) bool {
	_, err := fsys.Readlink(p)
	return err == nil || errors.Is(err, syscall.EINVAL)
}

// tree is a rule's root as it is written and where it leads.
type tree struct{ written, physical string }

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
	if t, ok := c.denied(r); ok {
		return Verdict{Code: CodeDeniedPath, Subject: p, Reason: "it lies in " + t.written + ", which is among deniedPaths"}
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

func (c *Checker) locate(p, cwd string) (Resolved, error) {
	if !strings.HasPrefix(p, "/") {
		p = join(cwd, p)
	}
	return Normalize(c.opt.FS, p)
}

// denied finds the denied root that holds any reading of the path.
func (c *Checker) denied(r Resolved) (tree, bool) {
	for _, t := range c.denies {
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

// Scope is what path rules come to for one operation, for whoever opens files where
// the links are: a path has to lead below a root of each list of Within, and below
// none of Denied. The roots are absolute.
type Scope struct {
	Denied []string
	Within [][]string
}

// Scope adds the rules of these settings to s. Home is what ~ stands for.
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
		allowed = s.AllowedWritePaths
	}
	if len(allowed) > 0 {
		to.Within = append(to.Within, at(allowed))
	}
	return to
}
