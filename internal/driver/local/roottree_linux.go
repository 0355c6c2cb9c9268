package local

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/internal/driver/roottree"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// rootTreeProven is what boxd reports once it has proved that tools cannot make set-uid files.
const rootTreeProven = "no-special-modes"

// checkRootTree returns an error if the workspace is a directory of root of the host and the server does not run as
// root, its configuration does not allow such directories, or the path or inode is missing.
func checkRootTree(spec sandbox.Spec, root, allowed bool) error {
	switch {
	case spec.RootTree == nil:
		return nil
	case !root:
		return holdfast.Errorf(holdfast.KindInvalid, op, "box %s cannot be started in a directory that belongs to root: the server does not run as root", holdfast.Quote(string(spec.Box)))
	case !allowed:
		return holdfast.Errorf(holdfast.KindDenied, op, "the workspace directory %s belongs to root, and allow_root_trees is not set", holdfast.Quote(spec.Workspace)).
			WithHint("holdfast serve --set allow_root_trees=true; docs/workspaces.md says what that means")
	case spec.Workspace == "" || spec.RootTree.Inode == 0:
		return holdfast.Errorf(holdfast.KindInvalid, op, "box %s is to run in a directory that belongs to root, but its path or inode is missing", holdfast.Quote(string(spec.Box)))
	}
	return nil
}

// TryRootTree implements sandbox.RootTrees.
func (d *Driver) TryRootTree(ctx context.Context, dir string, tree sandbox.RootTree) error {
	spec := sandbox.Spec{Box: "w-probe", Dir: dir, Workspace: dir, BoxdUID: d.cfg.ProbeUID, ToolUID: d.cfg.ProbeUID + 1, RootTree: &tree}
	if err := checkSpec(spec, d.root, d.cfg.RootTrees); err != nil {
		return err
	}
	f, err := openRootTree(ctx, d, spec)
	if err == nil {
		err = f.Close()
	}
	if err == nil {
		_, _, _, err = d.tryOut(ctx, true)
	}
	return err
}

// rootTrees tests whether a box can run in a directory of root of the host.
func rootTrees(ctx context.Context, d *Driver) sandbox.Capability {
	c := sandbox.Capability{Name: "root-trees", OK: true, Detail: "in force"}
	if _, _, _, err := d.tryOut(ctx, true); err != nil {
		c.OK, c.Detail, c.Fix = false, err.Error(), holdfast.HintOf(err)
	}
	return c
}

// makeRootTree makes a directory that belongs to root, as the workspace of a test box.
func makeRootTree(dir string) (*sandbox.RootTree, error) {
	var st unix.Stat_t
	err := os.Mkdir(dir, 0o700)
	if err == nil {
		err = unix.Lstat(dir, &st)
	}
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make a directory for a test box: %w", err)
	}
	return &sandbox.RootTree{Inode: st.Ino, GID: st.Gid}, nil
}

// mountRootTree replaces the workspace in mounts by an open mount, if the workspace is a directory of root of the host.
func (l *launch) mountRootTree(ctx context.Context, mounts []wire.Mount) error {
	if l.spec.RootTree == nil {
		return nil
	}
	tree, err := openRootTree(ctx, l.d, l.spec)
	if err != nil {
		return err
	}
	for i := range mounts {
		if mounts[i].Target == boxWorkspace {
			mounts[i].Source, mounts[i].TreeFD = "", l.hand.Give(tree)
		}
	}
	return nil
}

// proven returns an error if the workspace is a directory of root of the host and boxd did not prove that tools
// cannot make set-uid files there.
func proven(spec sandbox.Spec, inForce []string) error {
	if spec.RootTree == nil || slices.Contains(inForce, rootTreeProven) {
		return nil
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "boxd did not prove that tools cannot make set-uid files in the directory %s, which belongs to root", holdfast.Quote(spec.Workspace))
}

// openRootTree returns a mount of the workspace, as package roottree makes it.
func openRootTree(ctx context.Context, d *Driver, spec sandbox.Spec) (*os.File, error) {
	return roottree.Open(ctx, spec.Workspace, *spec.RootTree, func() (*os.File, error) { return usersOf(ctx, d, spec) })
}

// usersOf makes a user namespace that maps root of the host to the user of a box's tools. Only mounts use it.
func usersOf(ctx context.Context, d *Driver, spec sandbox.Spec) (*os.File, error) {
	b, err := spawnHelper(ctx, d, &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER,
		UidMappings: oneID(0, spec.ToolUID), GidMappings: oneID(spec.RootTree.GID, toolGID(spec)),
	})
	if err != nil {
		return nil, err
	}
	defer b.Close()
	helper := b.Named(boxproc.Record{})
	users, err := openNamespace(helper.PID, helper.Start, "user")
	if end := b.Kill(context.WithoutCancel(ctx)); end != nil && err == nil {
		err = errors.Join(end, users.Close())
	}
	return users, err
}
