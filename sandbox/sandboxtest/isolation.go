package sandboxtest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// secretEnv is a variable of the server's environment in inheritEnv. secretValue is a text that no box may see.
const (
	secretEnv   = "HOLDFAST_SANDBOXTEST_TOKEN"
	secretValue = "sandboxtest-secret-value"
)

func isolationCases() []testCase {
	return []testCase{
		// These cases apply also to drivers that do not isolate: a process in a box must inherit neither environment variables
		// nor open files of the server.
		{name: "Inherit/OnlyTheAllowTableOfTheEnvironment", run: inheritEnv},
		{name: "Inherit/HZ9_NoDescriptorLeaks", needs: needReal, run: inheritFDs},
		// A driver that cannot mount a directory read-only must refuse a spec that asks for it.
		{name: "Tree/ReadOnlyOrRefused", run: treeReadOnly},
		// The following cases apply only to drivers that isolate.
		{name: "Isolation/OtherBoxesFiles", needs: needIsolation, run: isolateOther},
		{name: "Isolation/HostFiles", needs: needIsolation, run: isolateHost},
		{name: "Isolation/StateIsInvisible", needs: needIsolation, run: isolateState},
		{name: "Isolation/OnlyWorkspaceHomeTmpAreWritable", needs: needRealIsolation, run: isolateWrite},
		{name: "Isolation/NoNetwork", needs: needRealIsolation, run: isolateNetwork},
		{name: "Isolation/HostProcessesAreInvisible", needs: needRealIsolation, run: isolateProcesses},
		{name: "Isolation/ToolsAreNotRoot", needs: needIsolation, run: isolateUID},
		{name: "Isolation/BoxdCannotBeKilled", needs: needRealIsolation, run: isolateBoxd},
		{name: "Isolation/SymlinksLeadNowhere", needs: needRealIsolation, run: isolateSymlink},
	}
}

// inheritEnv tests that processes in a box, however started, have only the variables that sandbox.Inherits allows,
// those of the box and of their request, and those that a shell sets itself.
func inheritEnv(f *fixture) {
	for _, name := range []string{secretEnv, "HOLDFAST_HOME", "AWS_SECRET_ACCESS_KEY", "GOOGLE_APPLICATION_CREDENTIALS", "ANTHROPIC_API_KEY", "GITHUB_TOKEN", "SOME_NAME", "LD_PRELOADED"} {
		f.Setenv(name, secretValue)
	}
	spec := f.spec("a")
	// Make the driver again, as in a server that has these variables in its environment.
	f.d = f.cfg.Again(f.T, f.d)
	_, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	b := f.dial(spec.Box, 1).Of(f.session())
	b.SetEnv([]string{"GIVEN=given", "TZ=UTC"})
	forms := map[string]wire.ExecRequest{"shell": {Shell: "env"}, "call": {Shell: "env", Env: []string{"CALLED=called"}}}
	if f.cfg.RealPrograms {
		forms["argv"] = wire.ExecRequest{Argv: []string{"env"}}
	}
	if f.cfg.Terminals {
		forms["terminal"] = wire.ExecRequest{Argv: []string{"env"}, PTY: &wire.Size{Rows: 24, Cols: 80}}
	}
	for form, req := range forms {
		o := f.exec(b, req)
		if strings.Contains(o.out+o.err, secretValue) {
			f.Errorf("a process started by %s sees a secret of the server's environment:\n%s", form, o.out)
		}
		seen := map[string]bool{}
		for line := range strings.Lines(o.out) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), "=")
			seen[name] = true
			if !f.mayHave(name) {
				f.Errorf("a process started by %s has the variable %s, which it must not have", form, strings.TrimSpace(line))
			}
		}
		for _, name := range []string{"PATH", "HOME", "TMPDIR", "GIVEN", "TZ"} {
			if !seen[name] {
				f.Errorf("a process started by %s lacks the variable %s; its environment is\n%s", form, name, o.out)
			}
		}
	}
	if f.cfg.RealPrograms && f.cfg.Isolates {
		out := f.exec(b, wire.ExecRequest{Shell: "cat /proc/*/environ"}).out
		if strings.Contains(out, secretValue) {
			f.Fatal("the server's environment is in /proc")
		}
	}
}

// mayHave reports whether a process may have a variable: sandbox.Inherits allows it, or the box or
// a shell sets it.
func (f *fixture) mayHave(name string) bool {
	switch name {
	case "HOME", "TMPDIR", "LOGNAME", "SHELL", "GIVEN", "CALLED", "PWD", "OLDPWD", "SHLVL", "_":
		return true
	case sandbox.Mark:
		return !f.cfg.Isolates
	}
	return sandbox.Inherits(name)
}

func inheritFDs(f *fixture) {
	b := f.box("a")
	out := f.sh(b, `for fd in /proc/self/fd/*; do echo "$fd $(readlink $fd)"; done`)
	for _, line := range strings.Split(out, "\n") {
		if strings.Contains(line, "socket:") || strings.Contains(line, "anon_inode") || strings.Contains(line, "memfd") {
			f.Errorf("a process in the box has an open file of the server: %s", line)
		}
	}
}

// denied runs a script that must fail and whose output must not contain the secret.
func denied(f *fixture, script, secret string) {
	f.Helper()
	o := f.exec(f.box("a"), wire.ExecRequest{Shell: script, TimeoutMS: 20_000})
	if o.Class == holdfast.ExitOK || secret != "" && strings.Contains(o.out+o.err, secret) {
		f.Errorf("the script %q succeeded or printed the secret: exit class %s, output %q", script, o.Class, o.out)
	}
}

func isolateOther(f *fixture) {
	other := f.up("b")
	f.write(f.dial(other.Box, 1), "secret", secretValue)
	path := filepath.Join(workspaceOf(other), "secret")
	denied(f, "cat "+path, secretValue)
	denied(f, "ls "+other.Dir, "workspace")
	_, err := f.box("a").Stat(f.ctx, wire.PathRequest{Path: path})
	if err == nil {
		f.Error("the file operations see the other box's file")
	}
}

func isolateHost(f *fixture) {
	dir := f.TempDir()
	f.must(os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "secret")
	f.must(os.WriteFile(path, []byte(secretValue), 0o644))
	denied(f, "cat "+path, secretValue)
	denied(f, "echo x > "+path, "")
	denied(f, "cat /etc/shadow", "root:")
	for _, p := range []string{path, "../../../../../.." + path} {
		var buf strings.Builder
		if _, err := f.box("a").Read(f.ctx, wire.ReadRequest{Path: p}, &buf); err == nil {
			f.Errorf("a file operation of the box read the host's file %s", p)
		}
	}
	got, err := os.ReadFile(path)
	f.must(err)
	f.equal("the host's file", string(got), secretValue)
}

func isolateState(f *fixture) {
	spec := f.up("a")
	f.dial(spec.Box, 1)
	denied(f, "ls "+filepath.Join(spec.Dir, "state"), "token")
	if f.cfg.RealPrograms {
		o := f.exec(f.box("a"), wire.ExecRequest{Shell: "find / -xdev -name token -path '*state*' 2>/dev/null; true"})
		f.equal("token files", o.out, "")
	}
}

func isolateWrite(f *fixture) {
	for _, path := range []string{"/x", "/usr/x", "/etc/x", "/bin/x", "/home/x", "/dev/x", "/run/x", "/proc/x", "/var/x", "/root/x"} {
		denied(f, "echo x > "+path, "")
	}
	f.sh(f.box("a"), "echo x > /workspace/x && echo x > /home/agent/x && echo x > /tmp/x")
}

func isolateNetwork(f *fixture) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	f.must(err)
	defer l.Close()
	port := l.Addr().(*net.TCPAddr).Port
	denied(f, fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d", port), "")
	denied(f, "exec 3<>/dev/tcp/1.1.1.1/53", "")
	name := fmt.Sprintf("@holdfast-sandboxtest-%d", os.Getpid())
	al, err := net.Listen("unix", name)
	f.must(err)
	defer al.Close()
	out := f.sh(f.box("a"), "cat /proc/net/unix /proc/net/dev 2>/dev/null; true")
	if strings.Contains(out, name) {
		f.Error("the host's abstract sockets are visible")
	}
	for _, line := range strings.Split(out, "\n") {
		dev, _, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok && !strings.Contains(dev, " ") && dev != "lo" && !isHex(dev) {
			f.Errorf("the box has a network device besides loopback: %q", dev)
		}
	}
}

// isHex reports whether s is hexadecimal, like the address at the beginning of lines in
// /proc/net/unix.
func isHex(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" && len(s) >= 8 }

func isolateProcesses(f *fixture) {
	denied(f, fmt.Sprintf("kill -0 %d", os.Getpid()), "")
	out := f.sh(f.box("a"), "cat /proc/[0-9]*/comm")
	if n := strings.Count(out, "\n"); n > 20 {
		f.Fatalf("%d processes are visible:\n%s", n, out)
	}
}

func isolateUID(f *fixture) {
	f.equal("uid", f.sh(f.box("a"), "id -u"), "1000\n")
}

func isolateBoxd(f *fixture) {
	b := f.box("a")
	for _, sig := range []string{"KILL", "TERM", "SEGV", "STOP", "QUIT"} {
		f.exec(b, wire.ExecRequest{Shell: "kill -" + sig + " 1"})
	}
	f.exec(b, wire.ExecRequest{Shell: "kill -TERM -1; true"})
	f.sh(b, "true")
	select {
	case <-b.Done():
		f.Fatal("boxd is gone")
	default:
	}
}

func isolateSymlink(f *fixture) {
	dir := f.TempDir()
	f.must(os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "secret")
	f.must(os.WriteFile(path, []byte(secretValue), 0o644))
	b := f.box("a")
	f.sh(b, "ln -s "+path+" link && ln -s "+dir+" dirlink")
	for _, p := range []string{"link", "dirlink/secret"} {
		var buf strings.Builder
		if _, err := b.Read(f.ctx, wire.ReadRequest{Path: p}, &buf); err == nil {
			f.Errorf("a file operation followed the symlink %s out of the box", p)
		}
	}
	denied(f, "cat link", secretValue)
}

// treeReadOnly tests that a box can read the files of Spec.Tree and change none, or that the driver refuses the spec.
func treeReadOnly(f *fixture) {
	spec := f.spec("a")
	spec.Tree = f.TempDir()
	file := filepath.Join(spec.Tree, "notes", "one")
	f.must(os.Mkdir(filepath.Dir(file), 0o755))
	f.must(os.WriteFile(file, []byte("one"), 0o666))
	f.must(os.Chmod(file, 0o666))
	info, err := f.d.Ensure(f.ctx, spec)
	if err != nil {
		if !holdfast.IsKind(err, holdfast.KindUnavailable) || holdfast.HintOf(err) == "" {
			f.Errorf("a driver that cannot give a box a read-only directory must return unavailable with a hint, not %v (hint: %s)", err, holdfast.HintOf(err))
		}
		return
	}
	list, err := f.d.List(f.ctx)
	f.must(err)
	if info.Tree != spec.Tree || len(list) != 1 || list[0].Tree != spec.Tree {
		f.Errorf("Ensure reports the tree %q and List reports %+v, but the box was started with the tree %q", info.Tree, list, spec.Tree)
	}
	b := f.dial(spec.Box, 1).Of(f.session())
	if o := f.exec(b, wire.ExecRequest{Shell: "cat " + sandbox.TreeDir + "/notes/one"}); o.out != "one" {
		f.Errorf("reading a file of the tree in the box printed %q, stderr %s", o.out, o.err)
	}
	for _, script := range []string{"echo two > $T/notes/one", "echo two > $T/notes/two", "mkdir $T/dir", "rm $T/notes/one", "mv $T/notes $T/other"} {
		script = strings.ReplaceAll(script, "$T", sandbox.TreeDir)
		if o := f.exec(b, wire.ExecRequest{Shell: script}); o.Class == holdfast.ExitOK {
			f.Errorf("the script %s in the box changed the read-only tree", script)
		}
	}
	for _, name := range []string{"one", "two"} {
		_, err := b.Write(f.ctx, f.call(), wire.WriteRequest{Path: sandbox.TreeDir + "/notes/" + name}, []byte("two"))
		if !holdfast.IsKind(err, holdfast.KindDenied) || holdfast.HintOf(err) == "" {
			f.Errorf("writing the file %s of the read-only tree was not refused with denied and a hint: %v (hint: %s)", name, err, holdfast.HintOf(err))
		}
	}
	if got, err := os.ReadFile(file); err != nil || string(got) != "one" {
		f.Errorf("the box changed a file of the read-only tree: content %q, error %v", got, err)
	}
	if names, err := os.ReadDir(filepath.Dir(file)); err != nil || len(names) != 1 {
		f.Errorf("the box changed a directory of the read-only tree: entries %v, error %v", names, err)
	}
}
