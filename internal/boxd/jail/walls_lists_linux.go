package jail

import (
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// listed returns the trees that lists of allowed paths restrict: the workspace and the home, or with KeepHome only the
// workspace.
func (w *walls) listed() []string {
	if w.spec.KeepHome {
		return []string{w.grounds.workspace}
	}
	return w.grounds.lasting()
}

// writable requests mounts that make the trees of w.listed read-only, except for the paths that all
// lists of allowed write paths allow. Temporary directories stay writable. Without lists it does nothing.
func (w *walls) writable() error {
	if len(w.spec.Writable) == 0 {
		return nil
	}
	roots, err := w.allowed(w.spec.Writable, true)
	if err != nil {
		return err
	}
	for _, t := range w.listed() {
		if slices.ContainsFunc(roots, func(r string) bool { return within(t, r) }) {
			continue
		}
		w.want(node{path: t, kind: wire.WallReadOnly, dir: true, rule: t, listed: true})
		for _, r := range roots {
			if within(r, t) {
				w.want(node{path: r, writable: true, rule: r})
			}
		}
	}
	return nil
}

// readable hides the trees of w.listed and most other directories of the root, except for the paths
// that all lists of allowed read paths allow. It does not hide the directories that programs need to run,
// such as /usr, /etc, /proc, /dev, /tmp and /run. Without lists it does nothing.
func (w *walls) readable() error {
	if len(w.spec.Readable) == 0 {
		return nil
	}
	roots, err := w.allowed(w.spec.Readable, false)
	if err != nil {
		return err
	}
	hidden := w.listed()
	entries, err := os.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		p := "/" + e.Name()
		usual := slices.Contains([]string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/proc", "/dev", "/tmp", "/run"}, p)
		if e.IsDir() && !usual && p != "/"+wallsDir && !slices.ContainsFunc(w.grounds.trees(), func(t string) bool { return within(t, p) }) {
			hidden = append(hidden, p)
		}
	}
	for _, t := range hidden {
		if slices.ContainsFunc(roots, func(r string) bool { return within(t, r) }) {
			continue
		}
		inner := slices.DeleteFunc(slices.Clone(roots), func(r string) bool { return !within(r, t) })
		if err := w.cover(t, inner); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot hide everything in the directory %s except the allowed read paths in it: %w", holdfast.Quote(t), err).WithHint("%s", fixRule)
		}
	}
	return nil
}

// allowed resolves lists of allowed paths, and returns the paths that all lists allow. For create, see roots.
func (w *walls) allowed(lists [][]string, create bool) ([]string, error) {
	var all [][]string
	for _, list := range lists {
		roots, err := w.roots(list, create)
		if err != nil {
			return nil, err
		}
		all = append(all, roots)
	}
	return meet(all), nil
}

// roots returns the real paths of a list of allowed paths. It leaves out a path that does not exist; but
// if create is set and the path is in a tree of w.listed, roots makes a directory there instead.
func (w *walls) roots(list []string, create bool) ([]string, error) {
	var out []string
	for _, rule := range list {
		p, err := w.follow(path.Clean(rule))
		if err != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "the allowed path %s cannot be resolved: %w", holdfast.Quote(rule), err).WithHint("%s", fixRule)
		}
		at := p.path
		if len(p.rest) > 0 && create && p.isDir() && slices.ContainsFunc(w.listed(), func(t string) bool { return within(p.path, t) }) {
			for _, name := range p.rest {
				at = path.Join(at, name)
				switch err := w.placeholder(at, true); {
				case errors.Is(err, unix.EEXIST) && again(w):
					return w.roots(list, create) // another box of the same workspace has just made a file there
				case err != nil:
					return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "the allowed path %s cannot be created: %w", holdfast.Quote(rule), err).WithHint("%s", fixRule)
				}
				w.made[at] = true
			}
			p.rest = nil
		}
		if len(p.rest) > 0 || p.loop {
			if w.grounds.tree(p.where()) != "" {
				w.note(rule, "it does not exist, so it allows nothing until the box starts again")
			}
			continue
		}
		out = append(out, at)
	}
	return out, nil
}

// meet returns the paths that all lists allow. If a path of one list is inside a path of another, the inner one counts.
func meet(lists [][]string) []string {
	out := lists[0]
	for _, list := range lists[1:] {
		var both []string
		for _, a := range out {
			for _, b := range list {
				switch {
				case within(a, b):
					both = append(both, a)
				case within(b, a):
					both = append(both, b)
				}
			}
		}
		out = both
	}
	slices.Sort(out)
	out = slices.Compact(out)
	return slices.DeleteFunc(slices.Clone(out), func(r string) bool {
		return slices.ContainsFunc(out, func(o string) bool { return o != r && within(r, o) })
	})
}

// cover mounts an empty, read-only directory over the directory top. In it, it mounts the paths in inner,
// which lie below top, at their places, so that they stay visible.
func (w *walls) cover(top string, inner []string) error {
	trees := make([]int, 0, len(inner))
	dirs := make([]bool, 0, len(inner))
	defer func() {
		for _, fd := range trees {
			unix.Close(fd)
		}
	}()
	for _, p := range inner {
		fd, err := w.at(p)
		if err != nil {
			return err
		}
		var st unix.Stat_t
		err = unix.Fstat(fd, &st)
		tree := -1
		if err == nil {
			tree, err = unix.OpenTree(fd, "", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH|unix.AT_RECURSIVE)
		}
		unix.Close(fd)
		if err != nil {
			return err
		}
		trees, dirs = append(trees, tree), append(dirs, st.Mode&unix.S_IFMT == unix.S_IFDIR)
	}
	at := strings.TrimPrefix(top, "/")
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=1m,nr_inodes=16384"); err != nil {
		return err
	}
	for i, p := range inner {
		rel := strings.TrimPrefix(p, "/")
		if err := os.MkdirAll(path.Dir(rel), 0o755); err != nil {
			return err
		}
		if err := mountPoint(rel, !dirs[i]); err != nil {
			return err
		}
		if err := unix.MoveMount(trees[i], "", unix.AT_FDCWD, rel, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
			return err
		}
	}
	return unix.MountSetattr(unix.AT_FDCWD, at, 0, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
}
