package workspaces

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// parseMount returns a mount scope as it is stored: holdfast.MountTree, or the empty string for the workspace alone.
func parseMount(text string) (string, error) {
	switch text {
	case "", holdfast.MountWorkspace:
		return "", nil
	case holdfast.MountTree:
		return text, nil
	}
	return "", holdfast.Errorf(holdfast.KindInvalid, "mount", "%s is not a mount scope", holdfast.Quote(text)).
		WithHint("use %s or %s", holdfast.MountWorkspace, holdfast.MountTree)
}

// checkMount fails with conflict if a change gives a workspace the scope tree-ro and the server's tree cannot be mounted.
func (c *Config) checkMount(before, after *holdfast.Workspace) error {
	if after.Mount == before.Mount || after.Mount == "" {
		return nil
	}
	return c.treeIntact()
}

// Mounts decides which sessions have the server's tree. Safe for concurrent use.
type Mounts struct{ cfg *Config }

// Choose returns the mount scope of a new session: the one that is asked for, else that of its workspace, space. The ID of
// space is empty if the session has no workspace. Choose fails with conflict if the session asks for more than its
// workspace has, or if the server's tree cannot be mounted. It fails with invalid if a trusted session asks for the
// server's tree, because no mount keeps the tools of a trusted session from writing.
func (m Mounts) Choose(space *holdfast.Workspace, asked string, trust holdfast.Trust) (string, error) {
	mount, err := parseMount(asked)
	if err != nil {
		return "", err
	}
	switch {
	case asked == "":
		mount = space.Mount
	case mount == holdfast.MountTree && trust != holdfast.Untrusted:
		return "", holdfast.Errorf(holdfast.KindInvalid, "session.create", "a %s session has no mounts: its tools may read and write all that the server's user may", trust).
			WithHint("create an untrusted session, or leave out the mount scope")
	case mount == holdfast.MountTree && space.ID == "":
		return "", holdfast.Errorf(holdfast.KindConflict, "session.create", "the session has no workspace, and only a workspace gives its sessions the mount scope %s", mount).
			WithHint("holdfast workspace create NAME --mount %s; holdfast session create --workspace NAME", mount)
	case mount == holdfast.MountTree && space.Mount != mount:
		return "", holdfast.Errorf(holdfast.KindConflict, "session.create", "the mount scope %s is wider than that of workspace %s, which is %s", mount, space.ID, holdfast.MountWorkspace).
			WithHint("leave out the mount scope, or give it to the workspace: holdfast workspace update %s --mount %s", space.ID, mount)
	}
	if mount == holdfast.MountTree && trust == holdfast.Untrusted {
		err = m.cfg.treeIntact()
	}
	return mount, err
}

// Root returns the directory that sessions with the mount scope tree-ro may read; empty: none may.
func (m Mounts) Root() string { return m.cfg.TreeRoot }

// Intact fails with conflict if no session may have the server's tree: tree_root is not set, is not a directory,
// contains a home directory, or contains or lies in the data directory or a directory of it. own is the directory of the session's
// workspace. One of the two directories may lie in the other, but only under the same path: path rules would not match
// another path to the same files.
func (m Mounts) Intact(own string) error {
	if err := m.cfg.treeIntact(); err != nil {
		return err
	}
	root := m.cfg.TreeRoot
	for _, two := range [][2]string{{own, root}, {root, own}} {
		in, err := lies(two[0], two[1])
		if err == nil && in && !within(two[0], two[1]) {
			err = errors.New("one of the two directories contains the other under another path, such as that of a mount")
		}
		if err != nil {
			return holdfast.Errorf(holdfast.KindConflict, "mount", "tree_root %s cannot be mounted together with the workspace %s: %w", holdfast.Quote(root), holdfast.Quote(own), err).
				WithHint("name tree_root by the same path by which the workspace is named, or use the mount scope %s", holdfast.MountWorkspace)
		}
	}
	return nil
}

func (c *Config) treeIntact() error {
	root := c.TreeRoot
	if root == "" {
		return holdfast.Errorf(holdfast.KindConflict, "mount", "the setting tree_root is empty: this server has no tree that a session could have").
			WithHint("set tree_root in the configuration of the server, or use the mount scope %s", holdfast.MountWorkspace)
	}
	no := func(format string, args ...any) *holdfast.Error {
		return holdfast.Errorf(holdfast.KindConflict, "mount", "tree_root %s cannot be mounted: "+format, append([]any{holdfast.Quote(root)}, args...)...).
			WithHint("set tree_root to a directory that has only what sessions may read, or use the mount scope %s", holdfast.MountWorkspace)
	}
	switch path, err := filepath.EvalSymlinks(root); {
	case err != nil:
		return no("%w", err)
	case path != root:
		return no("it leads through a symlink, to %s", holdfast.Quote(path))
	}
	st, err := lstat(root)
	if err != nil {
		return no("%w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return no("it is not a directory")
	}
	if root == "/" {
		return no("it is the root of the file system")
	}
	switch home, err := homeIn(root); {
	case err != nil:
		return no("the users of this machine cannot be read: %w", err)
	case home != "":
		return no("the home directory %s lies in it, with keys and settings of its user", holdfast.Quote(home))
	}
	return c.apartFromData(root, st, no)
}

// apartFromData refuses a tree that contains the data directory or a directory of it, or lies in one, whatever symlinks
// or mounts lead to it.
func (c *Config) apartFromData(root string, st unix.Stat_t, no func(string, ...any) *holdfast.Error) error {
	entries, err := os.ReadDir(c.Data)
	if err != nil {
		return no("the data directory cannot be read: %w", err)
	}
	dirs := []string{c.Data}
	for _, e := range entries {
		if e.IsDir() || e.Type()&fs.ModeSymlink != 0 {
			dirs = append(dirs, filepath.Join(c.Data, e.Name()))
		}
	}
	for _, dir := range dirs {
		real, err := filepath.EvalSymlinks(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the directory was removed meanwhile, or is a symlink that leads nowhere
		}
		var own unix.Stat_t
		if err == nil {
			own, err = lstat(real)
		}
		var in, around bool
		if err == nil {
			if in, err = below(root, own); err == nil {
				around, err = below(real, st)
			}
		}
		if err != nil {
			return no("%s cannot be examined: %w", holdfast.Quote(dir), err)
		}
		if in || around {
			return no("it is, or contains, or lies in %s, of the data directory of this server", holdfast.Quote(real))
		}
	}
	return nil
}

// lies reports whether path is the directory dir or lies below it, whatever names lead there.
func lies(path, dir string) (bool, error) {
	st, err := lstat(dir)
	if err != nil {
		return false, err
	}
	return below(path, st)
}

// below reports whether a directory is the one that st describes, or lies below it. path has no symlinks.
func below(path string, st unix.Stat_t) (bool, error) {
	for {
		at, err := lstat(path)
		if err != nil {
			return false, err
		}
		if at.Dev == st.Dev && at.Ino == st.Ino {
			return true, nil
		}
		if path == "/" {
			return false, nil
		}
		path = filepath.Dir(path)
	}
}
