package check

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// judge is a root directory in which every program is a stub that records its
// name, and a real bash to run programs in.
type judge struct{ root, log string }

// stubs are the names that commands of the generator may start; every directory
// of programs has them.
var stubs = []string{
	"rm", "ls", "cat", "git", "env", "xargs", "timeout", "nice", "nohup", "find", "sh", "dash", "python3", "tee", "touch",
	"cp", "mv", "sudo", "setsid", "stdbuf", "busybox", "awk", "sed", "grep", "head", "sleep", "true", "false", "time", "date", "whoami",
}

var judges struct {
	sync.Once
	j   *judge
	err error
}

// theJudge builds the root once for all tests of the process.
func theJudge(t testing.TB) *judge {
	judges.Do(func() { judges.j, judges.err = newJudge() })
	if judges.err != nil {
		t.Fatal(judges.err)
	}
	return judges.j
}

func newJudge() (*judge, error) {
	root, err := os.MkdirTemp("", "hfjudge")
	if err != nil {
		return nil, err
	}
	j := &judge{root: root, log: filepath.Join(root, "log")}
	for _, dir := range []string{"bin", "usr/bin", "usr/local/bin", "sbin", "dev", "project", "tmp"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return nil, err
		}
	}
	build := exec.Command("go", "build", "-o", filepath.Join(root, "stub"), "./testdata/stub")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("stub: %w: %s", err, out)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		return nil, err
	}
	if err := j.program(bash, "bin/bash"); err != nil {
		return nil, err
	}
	for _, dir := range []string{"bin", "usr/bin", "usr/local/bin"} {
		for _, name := range stubs {
			if err := os.Link(filepath.Join(root, "stub"), filepath.Join(root, dir, name)); err != nil {
				return nil, err
			}
		}
	}
	for name, mode := range map[string]os.FileMode{root: 0o755, j.log: 0o666, filepath.Join(root, "dev/null"): 0o666} {
		if name != root {
			if err := os.WriteFile(name, nil, mode); err != nil {
				return nil, err
			}
		}
		if err := os.Chmod(name, mode); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// program copies a program and the libraries it says it needs.
func (j *judge) program(file, to string) error {
	files := map[string]string{file: to}
	out, err := exec.Command("ldd", file).Output()
	if err != nil {
		return fmt.Errorf("ldd: %w", err)
	}
	for _, f := range strings.Fields(string(out)) {
		if strings.HasPrefix(f, "/") {
			files[f] = strings.TrimPrefix(f, "/")
		}
	}
	for from, name := range files {
		b, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		name = filepath.Join(j.root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(name, b, 0o755); err != nil {
			return err
		}
	}
	return nil
}

// failing is what the judge needs of a test, of either kind.
type failing interface {
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// run gives the names of what a program starts. What bash refuses starts nothing.
// What it may use up is bounded.
func (j *judge) run(t failing, program string) []string {
	if err := os.Truncate(j.log, 0); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/bin/bash", "--norc", "--noprofile", "-c", `ulimit -u 1024 -f 1024 -v 1048576; exec /bin/bash --norc --noprofile -c "$0"`, program)
	cmd.Dir = "/project"
	cmd.Env = []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/agent"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: j.root, Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	} else {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 1000, HostID: os.Getgid(), Size: 1}}
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("the judge cannot start bash: %v", err)
	}
	_ = cmd.Wait() // how it ended does not matter
	b, err := os.ReadFile(j.log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// TestAllowedProgramsRunNothingDenied: what the checker lets pass under a denylist
// does not start the denied word when bash runs it (SDK-L9).
func TestAllowedProgramsRunNothingDenied(t *testing.T) {
	j := theJudge(t)
	c, err := New(Settings{DeniedCommands: []string{"rm"}}, Options{Cwd: "/project", Home: "/home/agent"})
	if err != nil {
		t.Fatal(err)
	}
	ran, started := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		p := program(t, 3)
		if !c.Command(p).Allowed {
			return
		}
		ran++
		for _, name := range j.run(t, p) {
			started++
			if name == "rm" {
				t.Fatalf("allowed, and it started rm: %q", p)
			}
		}
	})
	t.Logf("%d programs ran and started %d others", ran, started)
	if ran == 0 || started == 0 {
		t.Errorf("%d programs ran and started %d others: the judge judged nothing", ran, started)
	}
}

// FuzzJudge is TestAllowedProgramsRunNothingDenied for programs that nobody wrote.
func FuzzJudge(f *testing.F) {
	for _, v := range vectors(f) {
		if v.Kind == "command" {
			f.Add(v.Input)
		}
	}
	for _, s := range append(append([]string{}, fragments...), atoms...) {
		f.Add(s)
	}
	c, err := New(Settings{DeniedCommands: []string{"rm"}}, Options{Cwd: "/project", Home: "/home/agent"})
	if err != nil {
		f.Fatal(err)
	}
	j := theJudge(f)
	f.Fuzz(func(t *testing.T, program string) {
		// The kernel takes no longer arguments, and none with NUL bytes.
		if len(program) > 64<<10 || strings.ContainsRune(program, 0) || !c.Command(program).Allowed {
			return
		}
		if slices.Contains(j.run(t, program), "rm") {
			t.Errorf("allowed, and it started rm: %q", program)
		}
	})
}

// TestMain removes the judge's root.
func TestMain(m *testing.M) {
	code := m.Run()
	if judges.j != nil {
		_ = os.RemoveAll(judges.j.root)
	}
	os.Exit(code)
}
