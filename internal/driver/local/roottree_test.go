//go:build linux

package local_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func withRootTrees(c *local.Config) { c.RootTrees = true }

// rootTree makes a directory of root, whose group is not root's, and the spec of a box that has it.
func rootTree(t *testing.T, dir, name string) sandbox.Spec {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root has trees of root's")
	}
	s := spec(dir, name)
	s.Workspace, s.HostUser = filepath.Join(dir, "tree-"+name), true
	if err := errors.Join(os.Mkdir(s.Workspace, 0o755), os.Chown(s.Workspace, 0, 4343)); err != nil {
		t.Fatal(err)
	}
	s.RootTree = &sandbox.RootTree{Inode: statAt(t, s.Workspace).Ino, GID: 4343}
	return s
}

func statAt(t *testing.T, path string) (st unix.Stat_t) {
	t.Helper()
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st
}

func put(t *testing.T, path string, mode os.FileMode, uid, gid int) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Chown(path, uid, gid), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

// TestHZ8_TreeOfRoot: in a box, files of a tree of root's are the tools', who have no id of root's; what the box makes, by
// tools, file operations, archives and walls, is root's on the disk, without bits and capabilities.
func TestHZ8_TreeOfRoot(t *testing.T) {
	dir := home(t)
	s := rootTree(t, dir, "mine")
	s.Walls.ReadOnly = []string{"/workspace/kept", "/workspace/absent/deep"}
	for name, owner := range map[string][2]int{"kept": {0, 4343}, "edited": {0, 4343}, "elsewhere": {0, 0}, "foreign": {1000, 1000}} {
		put(t, filepath.Join(s.Workspace, name), 0o644, owner[0], owner[1])
	}
	was := statAt(t, filepath.Join(s.Workspace, "kept"))
	d := open(t, dir, withRootTrees)
	b := box(t, d, s)
	if got := b.Welcome().InForce; !slices.Contains(got, "no-special-modes") {
		t.Errorf("in force: %q", got)
	}
	for script, want := range map[string]string{
		"stat -c %u:%g kept edited elsewhere foreign . | tr '\\n' ' '": "1000:1000 1000:1000 1000:65534 65534:65534 1000:1000",
		"awk '{print $1, $2}' /proc/self/uid_map | tr '\\n' ' '":       fmt.Sprintf("0 %d 1000 %d", s.BoxdUID, s.ToolUID),
		"grep -c ' /workspace rw,nosuid,nodev' /proc/self/mountinfo":   "1",
	} {
		if got := sh(t, b, script); got != want {
			t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
	sh(t, b, "echo y > edited; echo z > new; mkdir -p sub/deep; ln -s /etc/shadow link; ln new second; umask 0; touch open")
	for script, want := range map[string]string{
		"echo y > foreign": "Permission denied", "echo y > kept": "Read-only", "touch absent/deep": "Read-only",
		"chown 0 new": "not permitted|too large|Invalid", "chown 1001 new": "not permitted|too large|Invalid",
		"chmod u+s new": "not permitted", "chmod 2755 sub": "not permitted", "install -m 4755 new program": "not permitted",
	} {
		res, out := try(t, b, wire.ExecRequest{Shell: script})
		if res.Class == holdfast.ExitOK || !slices.ContainsFunc(strings.Split(want, "|"), func(w string) bool { return strings.Contains(out, w) }) {
			t.Errorf("%s: %+v %s, want %s", script, res, out, want)
		}
	}
	if _, err := b.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "written", Mode: 0o6755}, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Unpack(t.Context(), wire.UnpackRequest{Path: "unpacked"}, archive(t)); err != nil {
		t.Fatal(err)
	}
	if err := d.Stop(t.Context(), s.Box); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err := filepath.WalkDir(s.Workspace, func(path string, _ os.DirEntry, err error) error {
		st := statAt(t, path)
		owner := [2]uint32{0, 4343}
		switch filepath.Base(path) {
		case "foreign":
			owner = [2]uint32{1000, 1000}
		case "elsewhere":
			owner = [2]uint32{0, 0}
		case "absent", "deep":
			if strings.Contains(path, "absent") {
				t.Errorf("a placeholder stayed: %s", path)
			}
		}
		if owner != [2]uint32{st.Uid, st.Gid} || st.Mode&0o6000 != 0 {
			t.Errorf("%s belongs to %d:%d and has the mode %o", path, st.Uid, st.Gid, st.Mode)
		}
		seen++
		return err
	})
	if err != nil || seen < 14 {
		t.Errorf("%d files, %v", seen, err)
	}
	now := statAt(t, filepath.Join(s.Workspace, "kept"))
	if now.Atim = was.Atim; now != was {
		t.Errorf("a file that nobody changed: %+v, was %+v", now, was)
	}
}

// archive is a tar archive with a set-uid file and a set-gid directory.
func archive(t *testing.T) *bytes.Buffer {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err := errors.Join(
		w.WriteHeader(&tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o2755}),
		w.WriteHeader(&tar.Header{Name: "d/program", Typeflag: tar.TypeReg, Mode: 0o6755, Uid: 0, Gid: 0}),
		w.Close(),
	)
	if err != nil {
		t.Fatal(err)
	}
	return &out
}

// TestHZ8_TreeOfRootShared: sessions of a shared box have a tree of root's together, and homes of their own.
func TestHZ8_TreeOfRootShared(t *testing.T) {
	dir := home(t)
	s := rootTree(t, dir, "shared")
	s.Shared = true
	w := &shared{t: t, d: open(t, dir, withRootTrees), dir: dir, s: s}
	w.b = box(t, w.d, s)
	a, b := w.member(), w.member()
	sh(t, a, "echo a > a; echo home > ~/home")
	if got := sh(t, b, "cat a; ls ~; grep -c ' /workspace rw,nosuid,nodev' /proc/self/mountinfo"); got != "a\n1" {
		t.Errorf("the other session saw %q", got)
	}
	if st := statAt(t, filepath.Join(s.Workspace, "a")); st.Uid != 0 || st.Gid != 4343 {
		t.Errorf("the file belongs to %d:%d", st.Uid, st.Gid)
	}
}

// TestHZ8_TreeOfRootRefused: a tree of root's gets no box where the setting does not allow it, if it is another one than
// was lent, if it holds programs that an agent could make root's own, and where the kernel cannot map it.
func TestHZ8_TreeOfRootRefused(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(t *testing.T, s *sandbox.Spec)
		kind    holdfast.Kind
		says    string
		opts    []option
	}{
		"not allowed": {func(*testing.T, *sandbox.Spec) {}, holdfast.KindDenied, "allow_root_trees", []option{}},
		"not lent":    {func(_ *testing.T, s *sandbox.Spec) { s.RootTree = nil }, holdfast.KindInvalid, "belongs to uid 0", nil},
		"no inode":    {func(_ *testing.T, s *sandbox.Spec) { s.RootTree.Inode = 0 }, holdfast.KindInvalid, "inode is missing", nil},
		"as root":     {func(_ *testing.T, s *sandbox.Spec) { s.ToolUID = 0 }, holdfast.KindInvalid, "uid 0 of the host", nil},
		"replaced":    {func(_ *testing.T, s *sandbox.Spec) { s.RootTree.Inode++ }, holdfast.KindConflict, "another directory", nil},
		"of a user":   {func(t *testing.T, s *sandbox.Spec) { chown(t, s.Workspace, 1000, 4343) }, holdfast.KindInvalid, "belongs to uid 1000", nil},
		"of a group":  {func(t *testing.T, s *sandbox.Spec) { chown(t, s.Workspace, 0, 4344) }, holdfast.KindConflict, "another directory", nil},
		"a symlink": {func(t *testing.T, s *sandbox.Spec) {
			if err := errors.Join(os.Rename(s.Workspace, s.Workspace+"-away"), os.Symlink(s.Workspace+"-away", s.Workspace)); err != nil {
				t.Fatal(err)
			}
		}, holdfast.KindUnavailable, "", nil},
		"set-uid": {func(t *testing.T, s *sandbox.Spec) {
			put(t, filepath.Join(s.Workspace, "program"), 0o755|os.ModeSetuid, 0, 0)
		}, holdfast.KindDenied, "program", nil},
		"set-gid": {func(t *testing.T, s *sandbox.Spec) {
			put(t, filepath.Join(s.Workspace, "program"), 0o644|os.ModeSetgid, 0, 4343)
		}, holdfast.KindDenied, "program", nil},
		"capabilities": {func(t *testing.T, s *sandbox.Spec) {
			path := filepath.Join(s.Workspace, "program")
			put(t, path, 0o644, 0, 0)
			if err := unix.Setxattr(path, "security.capability", []byte("\x01\x00\x00\x02\x80\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0); err != nil {
				t.Fatal(err)
			}
		}, holdfast.KindDenied, "program", nil},
		"a mount": {func(t *testing.T, s *sandbox.Spec) {
			mountAt(t, "tmpfs", filepath.Join(s.Workspace, "mounted"))
		}, holdfast.KindUnavailable, "mounted", nil},
		"a file system without owners of its own": {func(t *testing.T, s *sandbox.Spec) {
			mountAt(t, "ramfs", s.Workspace)
			chown(t, s.Workspace, 0, 4343)
			s.RootTree.Inode = statAt(t, s.Workspace).Ino
		}, holdfast.KindUnavailable, "idmapped", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir := home(t)
			s := rootTree(t, dir, "no")
			if c.opts == nil {
				c.opts = []option{withRootTrees}
			}
			d := open(t, dir, c.opts...)
			c.prepare(t, &s)
			var before []string
			walk := func() (out []string) {
				_ = filepath.WalkDir(s.Workspace, func(path string, _ os.DirEntry, _ error) error {
					out = append(out, path)
					return nil
				})
				return out
			}
			before = walk()
			_, err := d.Ensure(t.Context(), s)
			wantKind(t, err, c.kind, c.kind != holdfast.KindInvalid && c.says != "")
			if !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
			if list, err := d.List(t.Context()); err != nil || len(list) != 0 {
				t.Errorf("a refused box is listed: %+v, %v", list, err)
			}
			if now := walk(); !slices.Equal(now, before) {
				t.Errorf("the tree has %q, had %q", now, before)
			}
			if s.RootTree == nil || s.ToolUID == 0 || name == "of a user" || name == "a symlink" {
				return
			}
			if err := d.TryRootTree(t.Context(), s.Workspace, *s.RootTree); !holdfast.IsKind(err, c.kind) {
				t.Errorf("the trial of the tree: %v, want %s", err, c.kind)
			}
		})
	}
}

func chown(t *testing.T, path string, uid, gid int) {
	t.Helper()
	if err := os.Chown(path, uid, gid); err != nil {
		t.Fatal(err)
	}
}

func mountAt(t *testing.T, fstype, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fstype, dir, fstype, 0, ""); err != nil {
		t.Skipf("SKIPPED LOUDLY: no %s here: %v", fstype, err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
}

// TestHZ8_TreesOfRootAreTriedOut: the probe starts a box in a directory of root's if the configuration allows such boxes, and
// so does the trial of a tree, which changes nothing in it.
func TestHZ8_TreesOfRootAreTriedOut(t *testing.T) {
	dir := home(t)
	s := rootTree(t, dir, "tried")
	for _, allowed := range []bool{false, true} {
		d := open(t, dir, func(c *local.Config) { c.RootTrees = allowed })
		i := slices.IndexFunc(d.Probe(t.Context()).Capabilities, func(c sandbox.Capability) bool { return c.Name == "root-trees" && c.OK })
		if allowed != (i >= 0) {
			t.Errorf("allowed %v, tried out: %v", allowed, i >= 0)
		}
		if err := d.TryRootTree(t.Context(), s.Workspace, *s.RootTree); allowed != (err == nil) {
			t.Errorf("allowed %v: %v", allowed, err)
		}
	}
	if list, err := os.ReadDir(s.Workspace); err != nil || len(list) > 0 {
		t.Errorf("the tree has %v, %v", list, err)
	}
}
