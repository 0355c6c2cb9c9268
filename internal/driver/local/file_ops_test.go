//go:build linux

package local_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestHZ9_FileThreadsAreConfined: an ordinary user's boxd owns the mounts of the box,
// as tools do. Only the Landlock domain of their threads keeps file operations to the
// places that tools may write.
func TestHZ9_FileThreadsAreConfined(t *testing.T) {
	dir := home(t)
	d := open(t, dir)
	b := box(t, d, spec(dir, "confined"))
	_, err := b.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "/run/holdfast/planted"}, []byte("x"))
	wantKind(t, err, holdfast.KindDenied, false)
	if out := sh(t, b, "ls /run/holdfast"); out != "" {
		t.Errorf("in /run/holdfast: %s", out)
	}
}

// TestHZ18_NoDirectoryOfTheHostIsHeld: no directory that boxd holds open, and so none
// that the threads of file operations hold, leads to a directory of the host: each lies
// in a mount of the box, or is the top of a detached mount (HZ-18).
func TestHZ18_NoDirectoryOfTheHostIsHeld(t *testing.T) {
	heldDirectories(t)
}

// TestHZ18_NoDirectoryOfTheHostIsHeldOnV2 is the same with the leaves of cgroup v2.
func TestHZ18_NoDirectoryOfTheHostIsHeldOnV2(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("nothing was delegated")
	}
	heldDirectories(t, bestEffort, cgroupRoot(unified(t)))
}

func heldDirectories(t *testing.T, opts ...option) {
	t.Helper()
	dir := home(t)
	d := open(t, dir, opts...)
	s := spec(dir, "held")
	info := up(t, d, s)
	b := dial(t, d, s.Box)
	// While they serve: the descriptors of a process are those of all its threads.
	for range 20 {
		if _, err := b.Read(t.Context(), wire.ReadRequest{Path: "/etc/hostname"}, new(strings.Builder)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Write(t.Context(), newCall(t), wire.WriteRequest{Path: "big"}, make([]byte, 3<<20)); err != nil {
		t.Fatal(err)
	}
	held, err := sharedDescriptors(info.PID)
	if err != nil {
		if os.Geteuid() != 0 {
			t.Skipf("only root sees what boxd holds: %v", err)
		}
		t.Fatal(err)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", info.PID))
	if err != nil {
		t.Fatal(err)
	}
	inBox := map[string]bool{}
	for l := range strings.Lines(string(mounts)) {
		id, _, _ := strings.Cut(l, " ")
		inBox[id] = true
	}
	tops := 0
	for _, fd := range held {
		path := fmt.Sprintf("/proc/%d/fd/%s", info.PID, fd)
		var st, above unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue
		}
		if inBox[mountOf(t, info.PID, fd)] {
			continue
		}
		if err := unix.Stat(path+"/..", &above); err != nil {
			t.Fatal(err)
		}
		if st.Dev != above.Dev || st.Ino != above.Ino {
			to, _ := os.Readlink(path)
			if to == os.Getenv("HOLDFAST_TEST_COUNTERS") {
				continue // only a boxd that measures coverage leaves it there; users have none
			}
			t.Errorf("descriptor %s is %s of the host, and leads on from there", fd, to)
		}
		tops++
	}
	if tops == 0 || len(held) < 5 {
		t.Errorf("%d descriptors, of which %d detached: the state directory must be among them", len(held), tops)
	}
}

// sharedDescriptors returns the names of a process's descriptors. Every thread has to
// have the same ones.
func sharedDescriptors(pid int) ([]string, error) {
	names := func(dir string) ([]string, error) {
		d, err := os.Open(dir)
		if err != nil {
			return nil, err
		}
		defer d.Close()
		return d.Readdirnames(-1)
	}
	tasks, err := names(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, task := range tasks {
		fds, err := names(fmt.Sprintf("/proc/%d/task/%s/fd", pid, task))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, fd := range fds {
			all[fd] = true
		}
	}
	var out []string
	for fd := range all {
		out = append(out, fd)
	}
	return out, nil
}

func mountOf(t *testing.T, pid int, fd string) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/%s", pid, fd))
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if id, ok := strings.CutPrefix(l, "mnt_id:"); ok {
			return strings.TrimSpace(id)
		}
	}
	return ""
}

// TestHZ18_WorkingDirectoryStaysInTheBox: between fork and exec a child still holds
// boxd's descriptors; a working directory, or a program, that is a link to a descriptor
// leads it nowhere.
func TestHZ18_WorkingDirectoryStaysInTheBox(t *testing.T) {
	workingDirectory(t)
}

func workingDirectory(t *testing.T, opts ...option) {
	t.Helper()
	dir := home(t)
	d := open(t, dir, opts...)
	b := box(t, d, spec(dir, "cwd"))
	sh(t, b, "for n in $(seq 0 40); do ln -s /proc/self/fd/$n fd$n; ln -s /proc/1/fd/$n one$n; done; mkdir sub; ln -s sub good; cp /bin/true prog; ln -s prog goodprog")
	var cwds []string
	for n := range 41 {
		for _, name := range []string{"fd", "one"} {
			cwds = append(cwds, fmt.Sprintf("%s%d", name, n), fmt.Sprintf("%s%d/..", name, n), fmt.Sprintf("/proc/self/fd/%d", n))
		}
	}
	cwds = append(cwds, "/proc/self/cwd", "/proc/1/root", "/proc/self/task/self/cwd")
	for _, cwd := range cwds {
		if strings.HasSuffix(cwd, "/..") {
			continue // taken by its text: the workspace
		}
		refused(t, b, wire.ExecRequest{Shell: "pwd -P; ls -a ..", Cwd: cwd})
	}
	for n := range 41 {
		refused(t, b, wire.ExecRequest{Argv: []string{fmt.Sprintf("./fd%d", n)}})
		refused(t, b, wire.ExecRequest{Argv: []string{fmt.Sprintf("/proc/self/fd/%d/x", n)}})
	}
	if res, out := try(t, b, wire.ExecRequest{Shell: "pwd -P; umask", Cwd: "good"}); res.Class != holdfast.ExitOK || strings.TrimSpace(out) != "/workspace/sub\n0022" {
		t.Errorf("%+v %q", res, out)
	}
	if res, out := try(t, b, wire.ExecRequest{Argv: []string{"./goodprog"}}); res.Class != holdfast.ExitOK {
		t.Errorf("%+v %q", res, out)
	}
	// A call's working directory does not pass to another call.
	if out := sh(t, b, "pwd -P"); out != "/workspace" {
		t.Errorf("the next call begins in %s", out)
	}
}

// refused runs a request that must not start.
func refused(t *testing.T, b *sandbox.Box, req wire.ExecRequest) {
	t.Helper()
	res, out := try(t, b, req)
	if res.Class != holdfast.ExitError || res.Code != -1 && res.Code != 126 && res.Code != 127 || res.Message == "" || out != "" {
		t.Errorf("%q in %q ran: %+v %s", req.Argv, req.Cwd, res, out)
	}
}

// TestHZ18_NoOracleForPathsOfTheHost: file operations do not reveal whether a path of
// the host exists: existing and missing ones get the same answer, from every operation,
// along every descriptor of boxd.
func TestHZ18_NoOracleForPathsOfTheHost(t *testing.T) {
	noOracle(t)
}

func noOracle(t *testing.T, opts ...option) {
	t.Helper()
	dir := home(t)
	if err := os.WriteFile(filepath.Join(dir, "token"), []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := open(t, dir, opts...)
	sp := spec(dir, "oracle")
	b := box(t, d, sp)
	link := filepath.Join(sp.Dir, "workspace", "l")
	plant := func(to string) {
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
	}
	for _, base := range []string{"/proc/1/fd/%d", "/proc/thread-self/fd/%d"} {
		for n := range 41 {
			for _, up := range []string{"/..", "/../..", "/../../.."} {
				to := fmt.Sprintf(base, n) + up
				same(t, to, func() (is, not string) {
					plant(to + "/token")
					is = answers(t, b, "l", false)
					plant(to + "/nothing")
					return is, answers(t, b, "l", false)
				})
				plant(to)
				same(t, to+" below a link", func() (is, not string) {
					return answers(t, b, "l/token", true), answers(t, b, "l/nothing", true)
				})
			}
		}
	}
}

// same fails if what exists is answered in another way than what does not. A difference counts when
// it comes three times: boxd opens some files for a moment only.
func same(t *testing.T, to string, ask func() (is, not string)) {
	t.Helper()
	var is, not string
	for range 3 {
		if is, not = ask(); is == not {
			return
		}
	}
	t.Fatalf("%s: what exists is answered\n%s\nwhat does not\n%s", to, is, not)
}

// answers returns the answers of file operations about a path, without the path. below
// adds the operations that work on a link itself.
func answers(t *testing.T, b *sandbox.Box, path string, below bool) string {
	t.Helper()
	ctx := t.Context()
	var out []string
	var last sandbox.Call
	call := func() sandbox.Call {
		last = newCall(t)
		return last
	}
	say := func(op string, err error) {
		b.Release(last.ID)
		if err == nil {
			t.Errorf("%s of %s succeeded", op, path)
			return
		}
		out = append(out, op+": "+strings.ReplaceAll(err.Error(), path, "PATH"))
	}
	_, err := b.Read(ctx, wire.ReadRequest{Path: path}, new(strings.Builder))
	say("read", err)
	_, err = b.List(ctx, wire.ListRequest{Path: path})
	say("list", err)
	_, err = b.Glob(ctx, wire.GlobRequest{Path: path, Pattern: "*"})
	say("glob", err)
	_, err = b.Grep(ctx, wire.GrepRequest{Path: path, Pattern: "x"})
	say("grep", err)
	_, err = b.Write(ctx, call(), wire.WriteRequest{Path: path}, []byte("x"))
	say("write", err)
	_, err = b.Write(ctx, call(), wire.WriteRequest{Path: path + "/p/q", Parents: true}, []byte("x"))
	say("write below", err)
	_, err = b.Edit(ctx, call(), wire.EditRequest{Path: path, Old: "a", New: "b"})
	say("edit", err)
	if below {
		_, err = b.Stat(ctx, wire.PathRequest{Path: path})
		say("stat", err)
		say("mkdir", b.Mkdir(ctx, call(), wire.MkdirRequest{Path: path}))
		say("remove", b.Remove(ctx, call(), wire.RemoveRequest{Path: path, Recursive: true}))
		say("rename", b.Rename(ctx, call(), wire.RenameRequest{From: path, To: "elsewhere"}))
	}
	return strings.Join(out, "\n")
}
