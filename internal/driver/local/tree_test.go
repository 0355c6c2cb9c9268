//go:build linux

package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// wood is a tree on the host whose files the box's tools own: only the mount keeps them from writing.
type wood struct {
	t   *testing.T
	d   *local.Driver
	dir string
	s   sandbox.Spec
	b   *sandbox.Box
}

func treeBox(t *testing.T) *wood {
	t.Helper()
	dir := home(t)
	w := &wood{t: t, d: open(t, dir), dir: dir, s: spec(dir, "tree")}
	w.s.Tree = filepath.Join(dir, "tree")
	for name, text := range map[string]string{"one": "of the tree", "deep/er/two": "deeper"} {
		w.file(name, text)
	}
	if err := os.Symlink(dir, filepath.Join(w.s.Tree, "out")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../secret", filepath.Join(w.s.Tree, "up")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "secret"), []byte("of the host"), 0o666); err != nil {
		t.Fatal(err)
	}
	w.own()
	return w
}

func (w *wood) file(name, text string) {
	w.t.Helper()
	at := filepath.Join(w.s.Tree, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// own gives the tree to the box's tools.
func (w *wood) own() {
	w.t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	err := filepath.WalkDir(w.s.Tree, func(p string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(p, int(w.s.ToolUID), int(w.s.ToolUID))
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// listing is the tree as the host has it: names, modes, times and contents.
func (w *wood) listing() string {
	w.t.Helper()
	var out strings.Builder
	err := filepath.WalkDir(w.s.Tree, func(p string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&out, "%s %v %d %v\n", strings.TrimPrefix(p, w.s.Tree), info.Mode(), info.Size(), info.ModTime())
		if e.Type().IsRegular() {
			b, err := os.ReadFile(p)
			fmt.Fprintf(&out, "%s %v\n", b, err)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return out.String()
}

// TestAnyTreeIsReadOnly: a box reads its tree and changes nothing in it, by no call, although its tools own the files;
// and it gets at nothing else of the host through it.
//
// WS-R28, WS-R79.
func TestAnyTreeIsReadOnly(t *testing.T) {
	t.Parallel()
	w := treeBox(t)
	before := w.listing()
	w.b = box(t, w.d, w.s)
	install(t, w.b)
	if got := sh(t, w.b, "cat /tree/one /tree/deep/er/two"); got != "of the treedeeper" {
		t.Errorf("the box reads %q", got)
	}
	for does, try := range map[string]struct{ script, want string }{
		"write":            {"p open /tree/one", "EROFS|EACCES"},
		"append":           {"echo x >> /tree/one", "Read-only|denied"},
		"truncate":         {"truncate -s 0 /tree/one", "Read-only|denied"},
		"create":           {"p create /tree/new", "EROFS|EACCES"},
		"a directory":      {"mkdir /tree/new", "Read-only|denied"},
		"remove":           {"rm -f /tree/one", "Read-only|denied"},
		"rename":           {"mv -T /tree/one /tree/three", "Read-only|denied"},
		"rename out":       {"mv /tree/one /workspace/", "Read-only|denied"},
		"rename in":        {"echo x > f; mv f /tree/one", "Read-only|denied"},
		"link":             {"p link /tree/one /tree/three", "EROFS|EACCES|EXDEV"},
		"link in":          {"echo x > f; p link f /tree/three", "EROFS|EACCES|EXDEV"},
		"link out":         {"p link /tree/one /workspace/three; echo x > /workspace/three", "EXDEV|EPERM"},
		"symlink":          {"ln -s one /tree/three", "Read-only|denied"},
		"mode":             {"chmod 777 /tree/one", "Read-only|denied"},
		"owner":            {"chown 1000 /tree/one", "Read-only|denied"},
		"times":            {"touch /tree/one", "Read-only|denied"},
		"attribute":        {"p setcap /tree/one", "EROFS|EPERM|EACCES"},
		"fifo":             {"mkfifo /tree/pipe", "Read-only|denied"},
		"shared mapping":   {"p map /tree/one", "EACCES"},
		"remount":          {"mount -o remount,rw,bind /tree", "ermission|only root|superuser"},
		"remount inside":   {"unshare -Urm sh -c 'mount -o remount,rw,bind /tree && echo x > /tree/one'", "ermitted|denied|No space"},
		"bind inside":      {"unshare -Urm sh -c 'mount --bind /tree /workspace && echo x > /workspace/one'", "ermitted|denied|No space"},
		"unmount":          {"umount /tree", "ermi|only root|superuser|not mounted|failed"},
		"own root":         {"echo x > /proc/self/root/tree/one", "Read-only|denied"},
		"another's root":   {"sleep 60 & echo x > /proc/$!/root/tree/one; kill $!", "Read-only|denied"},
		"boxd's root":      {"echo x > /proc/1/root/tree/one", "ermission|denied"},
		"a descriptor":     {"exec 5< /tree/one; echo x > /proc/self/fd/5", "Read-only|denied"},
		"a directory's fd": {"exec 5< /tree; echo x > /proc/self/fd/5/one", "Read-only|denied"},
		"over a symlink":   {"ln -s /tree/one l; echo x > l", "Read-only|denied"},
		"up":               {"cat /tree/up", "No such file"},
		"dot dot":          {"cat /tree/../secret", "No such file"},
		"out":              {"cat /tree/out/secret", "No such file|denied"},
	} {
		t.Run(does, func(t *testing.T) {
			out := probing(t, w.b, try.script)
			if !regexp.MustCompile(try.want).MatchString(out) {
				t.Errorf("%s: %s; want %s", try.script, out, try.want)
			}
		})
	}
	for op, f := range map[string]func(string) error{
		"write": func(p string) error {
			_, err := w.b.Write(t.Context(), newCall(t), wire.WriteRequest{Path: p}, []byte("x"))
			return err
		},
		"remove": func(p string) error { return w.b.Remove(t.Context(), newCall(t), wire.RemoveRequest{Path: p}) },
	} {
		if err := f("/tree/one"); !holdfast.IsKind(err, holdfast.KindDenied) || holdfast.HintOf(err) == "" {
			t.Errorf("the file operation %s: %v (hint: %s)", op, err, holdfast.HintOf(err))
		}
	}
	if after := w.listing(); after != before {
		t.Errorf("the tree was\n%s\nand is\n%s", before, after)
	}
	mount := strings.Fields(sh(t, w.b, "grep ' /tree ' /proc/self/mountinfo"))
	if len(mount) < 6 || !strings.HasPrefix(mount[5], "ro,") || !strings.Contains(mount[5], "nosuid") || !strings.Contains(mount[5], "nodev") {
		t.Errorf("the mount is %q", mount)
	}
}

// probing runs a script in which p is the program of the escape suite.
func probing(t *testing.T, b *sandbox.Box, script string) string {
	t.Helper()
	_, out := try(t, b, wire.ExecRequest{Shell: "p() { ./probe \"$@\"; }; " + script})
	return out
}

// TestTreeIsOneFileSystem: what is mounted in the tree on the host is not in the box: not what was mounted before its
// start, nor what is mounted later, where the host passes mounts on.
//
// WS-R28.
func TestTreeIsOneFileSystem(t *testing.T) {
	t.Parallel()
	w := treeBox(t)
	w.file("early/empty", "")
	w.file("late/empty", "")
	mount := func(source, target string, flags uintptr) {
		t.Helper()
		if err := unix.Mount(source, target, "", flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = unix.Unmount(w.s.Tree, unix.MNT_DETACH) })
	mount(w.s.Tree, w.s.Tree, unix.MS_BIND)
	mount("", w.s.Tree, unix.MS_SHARED)
	mount(w.dir, filepath.Join(w.s.Tree, "early"), unix.MS_BIND)
	w.b = box(t, w.d, w.s)
	if got := sh(t, w.b, "ls /tree/early /tree/late"); strings.Join(strings.Fields(got), " ") != "/tree/early: empty /tree/late: empty" {
		t.Errorf("the box lists\n%s", got)
	}
	mount(w.dir, filepath.Join(w.s.Tree, "late"), unix.MS_BIND)
	if _, err := os.Stat(filepath.Join(w.s.Tree, "late", "secret")); err != nil {
		t.Fatal(err)
	}
	if got := sh(t, w.b, "ls /tree/early /tree/late; grep -c ' /tree' /proc/self/mountinfo"); strings.Join(strings.Fields(got), " ") != "/tree/early: empty /tree/late: empty 1" {
		t.Errorf("after a later mount the box lists\n%s", got)
	}
}

// TestAnyTreeKeepsItsPipes: a box cannot write to a pipe of its tree, for which a read-only mount alone does not do.
//
// WS-R28.
func TestAnyTreeKeepsItsPipes(t *testing.T) {
	t.Parallel()
	w := treeBox(t)
	if err := unix.Mkfifo(filepath.Join(w.s.Tree, "pipe"), 0o666); err != nil {
		t.Fatal(err)
	}
	w.own()
	info := up(t, w.d, w.s)
	if strings.Contains(strings.Join(info.Missing, " "), "landlock") {
		t.Skip("no Landlock here")
	}
	w.b = dial(t, w.d, w.s.Box)
	if out := probing(t, w.b, "exec 5<> /tree/pipe && echo opened"); strings.Contains(out, "opened") {
		t.Error("the box opened the pipe for writing")
	}
}
