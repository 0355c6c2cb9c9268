package escape

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Attempts to leave something in a directory of root of the host that gives other users root's rights, or to get from it
// to root's other files. The control makes the same attempt on the host as root, in a directory of root.

// RootTrees is the name of the group of attempts in a directory of root.
const RootTrees = "a directory of root"

// rootBox is the box in a directory of root. It is started at the first attempt.
type rootBox struct {
	once sync.Once
	spec sandbox.Spec
	box  *sandbox.Box
}

func rootAttempts() []attempt {
	const bits = "leave a setuid program of root's"
	out := []attempt{
		{id: "root-uid", does: "find an id of root's among one's own", sh: "awk '$2 == 0 {found = 1} END {exit !found}' /proc/self/uid_map /proc/self/gid_map", want: "exit 1"},
		{id: "root-foreign", does: "read a file in it that belongs to another user", args: []string{"read", "foreign"}, free: []string{"read", "{host}"}, want: "EACCES"},
		{id: "root-foreign-write", does: "write such a file, which its mode forbids others", args: []string{"open", "foreign-shown"}, free: []string{"open", "{host}"}, want: "EACCES"},
		{id: "root-foreign-own", does: "take such a file for oneself (chown)", sh: "chown 1000 foreign-shown", free: []string{"touch mine && chown 1000 mine && rm mine"}, want: "exit 1 .*(not permitted|too large).*"},
		{id: "root-elsewhere", does: "read another file of root's by its path", args: []string{"climb", "{host}"}, want: "ENOENT", sees: "ok escape-canary-host.*"},
		{id: "root-symlink", does: "read it through a symlink in the directory", args: []string{"symlink", "{host}", "way"}, want: "ENOENT", sees: "ok escape-canary-host.*"},
		{id: "root-symlink-shadow", does: "read /etc/shadow through a symlink", args: []string{"symlink", "/etc/shadow", "way"}, want: "ENOENT", sees: "ok [a-z].*"},
		{id: "root-link", does: "give a file of root's a second name in the directory", args: []string{"link", "{host}", "way"}, want: "ENOENT", sees: "ok escape-canary-host.*"},
		{id: "root-link-program", does: "give a program of the host a second name there", args: []string{"link", "/usr/bin/env", "way"}, free: []string{"link", "{host}", "way"}, want: "EXDEV"},
		{id: "root-program", does: "open a program of the host for writing", args: []string{"open", "/usr/bin/env"}, free: []string{"open", "{host}"}, want: "EROFS|EACCES"},
		{id: "root-proc", does: "open the directory above it, through boxd's root", args: []string{"ls", "/proc/1/root/"}, free: []string{"ls", "/"}, want: "EACCES"},
		{id: "root-handle", does: "open a file by handle, past every path", args: []string{"handle", "/workspace/probe"}, free: []string{"handle", "{host}"}, want: "EPERM", sees: "ok escape-canary-host"},
		{id: "root-device", does: "leave a device node", args: []string{"mknod", "node"}, want: "EPERM"},
		{id: "root-chown", does: "give a file to uid 0", args: []string{"chown", "0", "-1"}, want: "EPERM|EINVAL|EOVERFLOW"},
		{id: "root-chown-user", does: "give a file to another user", args: []string{"chown", "1001", "-1"}, want: "EPERM|EINVAL|EOVERFLOW"},
		{id: "root-chown-group", does: "give a file to another group", args: []string{"chown", "-1", "1001"}, want: "EPERM|EINVAL|EOVERFLOW"},
		{id: "root-openat2", does: bits + " (openat2)", args: []string{"openat2"}, want: "ENOSYS"},
		{id: "root-io-uring", does: bits + " (io_uring, which makes calls that no filter sees)", args: []string{"io-uring"}, want: "EPERM"},
		{id: "root-install", does: bits + " (install, cp, tar)", sh: "cp /usr/bin/true p; install -m 4755 p q; chmod u+s p; cp -p /usr/bin/su s; tar -cf t --mode=4755 p && tar -xpf t; find . -perm /6000 | grep .", free: []string{"cp /usr/bin/true p; install -m 4755 p q; find q -perm /6000 | grep .; rm -f p q"}, want: "exit 1 .*", sees: "exit 0 q"},
		{id: "root-setcap", does: "write a file capability (setxattr)", args: []string{"setcap", "capable"}, want: "EPERM"},
	}
	for _, m := range []struct{ verb, does, want string }{
		{"suid-fchmod", bits + " (fchmod)", ""},
		{"sgid-fchmod", bits + " (fchmod, setgid)", ""},
		{"suid-fchmodat", bits + " (fchmodat)", ""},
		{"sgid-fchmodat", bits + " (fchmodat, setgid)", ""},
		{"suid-fchmodat2", bits + " (fchmodat2)", ""},
		{"suid-chmod", bits + " (chmod)", ""},
		{"suid-open", bits + " (openat)", ""},
		{"suid-tmpfile", bits + " (openat without a name)", ""},
		{"suid-old-open", bits + " (open)", ""},
		{"suid-creat", bits + " (creat)", ""},
		{"suid-mknod", bits + " (mknodat)", ""},
		{"suid-old-mknod", bits + " (mknod)", ""},
		{"sgid-mkdir", "leave a setgid directory (mkdirat)", ""},
		{"sgid-old-mkdir", "leave a setgid directory (mkdir)", ""},
		{"suid-int80", bits + " (chmod by the numbers of 32-bit programs)", "ENOSYS"},
		{"suid-map", "write into a setuid program through a mapping, which leaves the bit", ""},
		{"setcap-fd", "write a file capability (fsetxattr)", ""},
		{"setcap-link", "write a file capability (lsetxattr)", ""},
		{"setcap-at", "write a file capability (setxattrat)", "EPERM|ENOSYS"},
		{"setcap-own", "write a file capability for a user namespace of one's own", ""},
	} {
		a := attempt{id: "root-" + m.verb, does: m.does, args: []string{m.verb}, want: m.want}
		if a.want == "" {
			a.want = "EPERM"
		}
		a.lacks, a.why = "ENOSYS", "this machine has no such call"
		out = append(out, a)
	}
	for i := range out {
		a := out[i]
		a.control = asRoot
		out[i] = attempt{id: a.id, does: a.does, do: func(r *rig) Row { return r.inRootTree(a) }}
	}
	return append(out, attempt{id: "root-present", does: "get a box in a directory with a setuid program of root's, to write into it through a mapping", do: presentSUID})
}

// presentSUID tries to start a box in a directory of root that already contains a setuid program.
func presentSUID(r *rig) Row {
	r.Helper()
	spec := r.cfg.RootTree(r.T, r.driver, "of-root-setuid")
	program := r.file(filepath.Join(spec.Workspace, "program"), "")
	if err := os.Chmod(program, 0o755|os.ModeSetuid); err != nil {
		r.Fatal(err)
	}
	_, err := r.driver.Ensure(r.Context(), spec)
	row := Row{Saw: string(holdfast.KindOf(err)), Verdict: Held, Control: r.without(attempt{args: []string{"suid-map"}, control: asRoot})}
	if !holdfast.IsKind(err, holdfast.KindDenied) {
		row.Verdict = Escaped
		r.Errorf("a box in a directory with a set-uid program of root was not refused with denied: %v", err)
	}
	return row
}

// inRootTree makes an attempt in the box in a directory of root, and looks at the directory from the host.
func (r *rig) inRootTree(a attempt) Row {
	r.Helper()
	b := r.roots
	b.once.Do(func() {
		top := *r
		top.T = r.top
		b.start(&top)
	})
	if b.box == nil {
		r.Fatal("the box in a directory of root did not start")
	}
	in := *r
	in.box = b.box
	row := in.try(a)
	if err := dangerous(b.spec); err != nil {
		row.Verdict = Escaped
		r.Error(err)
	}
	return row
}

func (b *rootBox) start(r *rig) {
	r.Helper()
	spec := r.cfg.RootTree(r.T, r.driver, "of-root")
	for name, mode := range map[string]fs.FileMode{"foreign": 0o600, "foreign-shown": 0o644} {
		path := r.file(filepath.Join(spec.Workspace, name), canary+"foreign")
		if err := errors.Join(os.Chmod(path, mode), os.Chown(path, 1001, 1001)); err != nil {
			r.Fatal(err)
		}
	}
	b.spec, _, b.box = r.up("of-root", func(s *sandbox.Spec) { *s = spec })
	r.install(b.box)
}
