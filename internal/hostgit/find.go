package hostgit

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// maxDepth is how deep submodules may be nested.
const maxDepth = 20

// maxPointer is how many bytes are read of a file whose content is a single path, such as a file .git.
const maxPointer = 8 << 10

// finder finds the paths whose content git obeys in one directory, for one Look.
type finder struct {
	dir    string // the directory's path, with symlinks resolved
	held   map[string]bool
	links  int
	stamps map[string]stamp
	// fault is the first error that leaves open what git sees at a path (see note).
	fault error
}

// note keeps an error of a look at a path as the fault, unless git, which runs as the same user, meets the same error
// and takes the path for missing.
func (f *finder) note(path string, err error) {
	var no syscall.Errno
	same := []syscall.Errno{syscall.ENOENT, syscall.ENOTDIR, syscall.ELOOP, syscall.ENAMETOOLONG, syscall.EACCES, syscall.EPERM}
	if f.fault == nil && errors.As(err, &no) && !slices.Contains(same, no) {
		f.fault = f.failed(path, err)
	}
}

// find finds the paths that git obeys in the directory dir. It looks for the repository as git does: .git, then the
// directory itself as a bare repository, then the same in each directory above.
func (f *finder) find(dir string) error {
	f.held = map[string]bool{}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return f.failed("", err)
	}
	f.dir = real
	if git, there := f.gitIn(real); there {
		return f.repository(real, git, 0)
	}
	if f.isHead(filepath.Join(real, "HEAD")) {
		f.hold(real) // a bare repository: git obeys its files config, commondir and others
		return nil
	}
	// The directory is not a bare repository as long as it has no HEAD, so the agent must not create one.
	f.hold(filepath.Join(real, "HEAD"))
	for above := filepath.Dir(real); ; above = filepath.Dir(above) {
		if git, there := f.gitIn(above); there {
			return f.repository(above, git, 0)
		}
		if f.isGit(above) {
			return f.repository(above, above, 0)
		}
		if above == filepath.Dir(above) {
			return nil
		}
	}
}

// list returns the paths that were found, sorted. It leaves out those that lie below another found path, and .git with
// all below it.
func (f *finder) list() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(f.held)), func(rel string) bool {
		for above := rel; above != "."; {
			above = filepath.Dir(above)
			if f.held[above] {
				return true
			}
		}
		return rel == ".git" || strings.HasPrefix(rel, ".git/")
	})
}

// hold adds an absolute path to the paths found, as it is and with its symlinks resolved. It leaves out a path that
// does not lie in the directory.
func (f *finder) hold(path string) {
	for _, p := range []string{path, f.resolved(path)} {
		if rel, err := filepath.Rel(f.dir, p); err == nil && filepath.IsLocal(rel) {
			f.held[rel] = true
		}
	}
}

// resolved returns a path with the symlinks resolved in that part of it that exists.
func (f *finder) resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if above := filepath.Dir(path); above != path {
		return filepath.Join(f.resolved(above), filepath.Base(path))
	}
	return path
}

// repository adds what git obeys when it works on a repository with the worktree work: the git directory git, the
// directory that this shares with other worktrees, and the submodules.
func (f *finder) repository(work, git string, depth int) error {
	if depth == maxDepth {
		return f.failed(work, errors.New("the submodules of the repository are nested too deeply"))
	}
	f.hold(git)
	f.hold(f.common(git))
	links, err := f.submodules(git)
	if err != nil {
		return f.failed(git, err)
	}
	for _, link := range links {
		if f.links++; f.links > maxLinks {
			return f.failed(work, errLinks)
		}
		sub := filepath.Join(work, filepath.FromSlash(link))
		if rel, err := filepath.Rel(f.dir, sub); err != nil || !filepath.IsLocal(rel) || rel == "." {
			continue // the agent cannot write outside of the directory; the directory's own .git is protected anyway
		}
		dotGit := filepath.Join(sub, ".git")
		if f.stamp(dotGit); stampOf(dotGit) == (stamp{}) {
			// The submodule has no .git yet. git expects an empty directory here and would fail if a placeholder for .git were
			// in it, so the whole submodule is protected.
			f.hold(sub)
			continue
		}
		f.hold(dotGit)
		// Git enters no submodule across a symlink.
		if real, err := filepath.EvalSymlinks(sub); err != nil || real != sub {
			f.note(sub, err)
			continue
		}
		if inner, there := f.gitIn(sub); there {
			if err := f.repository(sub, inner, depth+1); err != nil {
				return err
			}
		}
	}
	return nil
}

// gitIn returns the git directory of a directory that has a .git: .git itself, or the path that a file .git names.
// there is false if git takes no notice of .git. For a file .git that is not valid, with which git fails, it returns
// the file's path.
func (f *finder) gitIn(dir string) (git string, there bool) {
	dotGit := filepath.Join(dir, ".git")
	f.stamp(dotGit)
	info, err := os.Stat(dotGit)
	if err != nil {
		f.note(dotGit, err)
		return "", false
	}
	if info.IsDir() {
		return dotGit, f.isGit(dotGit)
	}
	if !info.Mode().IsRegular() {
		return "", false
	}
	to, ok := strings.CutPrefix(f.pointer(dotGit), "gitdir: ")
	if !ok {
		return dotGit, true
	}
	return absolute(dir, to), true
}

// absolute returns the absolute form of a path. A relative one begins at the directory dir, whose symlinks are resolved
// first.
func absolute(dir, to string) string {
	if filepath.IsAbs(to) {
		return filepath.Clean(to)
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return filepath.Join(dir, to)
}

// common returns the directory that a git directory shares with other worktrees: the git directory itself, unless a
// file commondir names another.
func (f *finder) common(git string) string {
	path := filepath.Join(git, "commondir")
	if to := f.pointer(path); to != "" {
		return absolute(git, to)
	}
	return git
}

// isGit reports whether git takes a directory for a git directory, by the checks that git makes.
func (f *finder) isGit(dir string) bool {
	if !f.isHead(filepath.Join(dir, "HEAD")) {
		return false
	}
	common := f.common(dir)
	for _, name := range []string{"objects", "refs"} {
		p := filepath.Join(common, name)
		f.stamp(p)
		if info, err := os.Stat(p); err != nil || !info.IsDir() {
			f.note(p, err)
			return false
		}
	}
	return true
}

// detached matches the content of a file HEAD that names a branch ("ref: refs/...") or a commit; git looks at no more
// than this beginning.
var detached = regexp.MustCompile(`^(ref:\s*refs/|[0-9a-fA-F]{40})`)

// isHead reports whether a file can be the HEAD of a repository.
func (f *finder) isHead(path string) bool {
	f.stamp(path)
	if to, err := os.Readlink(path); err == nil && strings.HasPrefix(to, "refs/") {
		return true
	}
	return detached.MatchString(f.pointer(path))
}

// submodules returns the paths of the submodules that a repository's index lists.
func (f *finder) submodules(git string) ([]string, error) {
	top, err := f.index(filepath.Join(git, "index"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil || top.shared == "" {
		return top.links, err
	}
	base, err := f.index(filepath.Join(git, "sharedindex."+top.shared))
	if err == nil && base.shared != "" {
		err = errIndex
	}
	links := slices.Concat(top.links, base.links)
	slices.Sort(links)
	return slices.Compact(links), err
}

func (f *finder) index(path string) (index, error) {
	file, size, err := f.open(path)
	if err != nil {
		return index{}, err
	}
	defer file.Close()
	return readIndex(file, size)
}

// pointer returns the content of a file that holds one path or name, without the end of the line. It returns "" if the
// file does not exist or cannot be read.
func (f *finder) pointer(path string) string {
	file, _, err := f.open(path)
	if err != nil {
		f.note(path, err)
		return ""
	}
	defer file.Close()
	b, err := io.ReadAll(io.LimitReader(file, maxPointer))
	if err != nil {
		f.note(path, err)
		return ""
	}
	return strings.TrimRight(string(b), "\r\n")
}

// open opens a regular file, and remembers the stamp that the file has before.
func (f *finder) open(path string) (*os.File, int64, error) {
	f.stamp(path)
	if info, err := os.Stat(path); err != nil {
		return nil, 0, err
	} else if !info.Mode().IsRegular() {
		return nil, 0, errors.New("a file that git reads is not a regular file")
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("a file that git reads is not a regular file")
	}
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// stamp remembers the present stamp of a file before the file is read: if the stamp changes, the next Look reads all
// again.
func (f *finder) stamp(path string) {
	if _, ok := f.stamps[path]; !ok {
		f.stamps[path] = stampOf(path)
	}
}

// failed returns the error for a repository that cannot be read. Since the agent gets to read this error, it names no
// path outside of the directory.
func (f *finder) failed(path string, err error) error {
	name := "the repository that this directory belongs to"
	if rel, relErr := filepath.Rel(f.dir, path); relErr == nil && filepath.IsLocal(rel) {
		name = "the repository " + holdfast.Quote(rel)
	}
	if named := (*fs.PathError)(nil); errors.As(err, &named) {
		err = named.Err
	}
	return holdfast.Errorf(holdfast.KindConflict, "git", "cannot find out which files the user's git executes or obeys: reading %s failed: %w", name, err).
		WithHint("let git write the index again, with git update-index --no-split-index --force-write-index; or allow Edit(.git/**)")
}
