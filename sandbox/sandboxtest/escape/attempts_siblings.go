package escape

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Attempts of one session of a shared box on another, on the threads of boxd that make the places of sessions, and on
// the host. In most controls the same program runs as a process of the attacked session, in the others outside of the
// box.

// Siblings is the name of the group of attempts in a shared box.
const Siblings = "sessions of a shared box"

// pair is a shared box with the attacker's session and the one that it attacks. The box is started
// at the first attempt.
type pair struct {
	once             sync.Once
	attacker, victim *sandbox.Box
	// pid is the id of the victim's process, at the address of the secret in the memory of that process.
	pid, at string
}

// sibling is one attempt of the attacker's session on the victim's session in a shared box.
type sibling struct {
	id, does string
	args     []string
	sh       string
	op       func(*rig, *sandbox.Box) string
	want     string
	// sees is what the control must print; empty means "ok" followed by anything.
	sees string
	// free, if set, are the arguments of the control. The field control then says where the control runs, instead of in
	// the attacked session: no tool may do this even to its own session.
	free    []string
	control where
	// scope is true if the attempt is refused only on a kernel whose Landlock limits signals.
	scope bool
}

func siblingAttempts() []attempt {
	var out []attempt
	for _, s := range siblingTries() {
		out = append(out, attempt{id: s.id, does: s.does, do: func(r *rig) Row { return r.sibling(s) }})
	}
	return out
}

func siblingTries() []sibling {
	const home, secret = "ok escape-canary-sibling.*", "/home/agent/sibling-secret"
	const none = "failed: none: .*"
	return []sibling{
		{id: "sibling-root", does: "read another session's home below /proc/PID/root", args: []string{"read", "/proc/{sibling}/root" + secret}, want: "EACCES", sees: home},
		{id: "sibling-root-tmp", does: "list its /tmp there", args: []string{"ls", "/proc/{sibling}/root/tmp"}, want: "EACCES", sees: "ok .*sibling-secret.*"},
		{id: "sibling-root-write", does: "make a file in its home there", args: []string{"create", "/proc/{sibling}/root/home/agent/new"}, want: "EACCES"},
		{id: "sibling-threads", does: "read its home below the root of each thread of each process", sh: "cat /proc/[0-9]*/task/*/root" + secret, want: "exit 1 .*", sees: "exit [01] .*escape-canary-sibling.*"},
		{id: "sibling-cwd", does: "read a file through the working directory of its process", args: []string{"read", "/proc/{sibling}/cwd/sibling-secret"}, want: "EACCES", sees: home},
		{id: "sibling-fd", does: "read an open file of its process", args: []string{"scan", "fd", canary + "sibling"}, want: none},
		{id: "sibling-environ", does: "find its secret in the environment of a process", args: []string{"scan", "environ", canary + "sibling"}, want: none},
		{id: "sibling-mem", does: "find its secret in the memory of a process", args: []string{"scan", "mem", canary + "sibling"}, want: none},
		{id: "sibling-maps", does: "see which files its process has mapped", args: []string{"read", "/proc/{sibling}/maps"}, want: "EACCES"},
		{id: "sibling-namespace", does: "open its mount namespace", args: []string{"read", "/proc/{sibling}/ns/mnt"}, want: "EACCES", sees: "EINVAL"},
		{id: "sibling-nsenter", does: "enter its mount namespace", sh: "nsenter -t {sibling} -m cat " + secret, want: "exit 1 .*(Permission denied|Operation not permitted).*", sees: "exit 1 .*Operation not permitted.*"},
		{id: "sibling-search", does: "search everything for a file of its home", args: []string{"find", "sibling-secret", "/"}, want: "failed: none"},
		{id: "sibling-link", does: "give the file a second name in the workspace", args: []string{"link", "/proc/{sibling}/root" + secret, "taken"}, want: "EACCES|EPERM", sees: "EXDEV"},
		{id: "sibling-link-fd", does: "the same with an open file of its process", sh: "for f in /proc/{sibling}/fd/*; do ln -L $f /workspace/taken && cat /workspace/taken && exit; done; exit 9", want: "exit 9 .*", sees: "exit 9 .*(cross-device|different device|Operation not permitted).*"},
		{id: "sibling-bind", does: "bind its home elsewhere in namespaces of one's own", sh: "unshare -Urm sh -c 'mount --bind /proc/{sibling}/root/home/agent /workspace && cat /workspace/sibling-secret'", want: "exit 1 .*Operation not permitted.*", sees: "exit 1 .*Operation not permitted.*"},
		{id: "sibling-fileops", does: "read it with the file operations, by its path", op: wallRead(secret), want: "not_found", sees: home},
		{id: "sibling-fileops-root", does: "the same below /proc/PID/root", op: func(r *rig, b *sandbox.Box) string {
			return wallRead(r.fill("/proc/{sibling}/root"+secret))(r, b)
		}, want: "not_found|denied|invalid", sees: "not_found|denied|invalid"},
		{id: "sibling-fileops-link", does: "the same through a link that a tool planted", op: func(r *rig, b *sandbox.Box) string {
			if saw := r.exec(b, wire.ExecRequest{Shell: r.fill("ln -sfn /proc/{sibling}/cwd/sibling-secret ~/planted")}); saw != "exit 0" {
				r.Fatal(saw)
			}
			return wallRead("/home/agent/planted")(r, b)
		}, want: "not_found|denied|invalid", sees: "not_found|denied|invalid"},
		{id: "sibling-server", does: "a request of the server itself that names the path", op: func(r *rig, _ *sandbox.Box) string {
			return wallRead(secret)(r, r.siblings.victim.Of(""))
		}, want: "not_found", sees: "not_found"},
		{id: "sibling-ptrace", does: "trace its process", args: []string{"ptrace", "{sibling}"}, free: []string{"ptrace", "{victim}"}, want: "EPERM"},
		{id: "sibling-vm-read", does: "read its memory (process_vm_readv)", args: []string{"vmread", "{sibling}", "{sibling-at}"}, free: []string{"vmread", "{victim}", "{at}"}, want: "EPERM", sees: "ok escape-canary-host"},
		{id: "sibling-vm-write", does: "write its memory (process_vm_writev)", args: []string{"vmwrite", "{sibling}", "{sibling-at}"}, free: []string{"vmwrite", "{victim}", "{at}"}, want: "EPERM"},
		{id: "sibling-pidfd-get", does: "take a descriptor from it (pidfd_getfd)", args: []string{"pidfd-get", "{sibling}"}, free: []string{"pidfd-get", "{victim}"}, want: "EPERM"},
		{id: "sibling-signal", does: "signal its process", args: []string{"kill", "{sibling}", "0"}, want: "EPERM", scope: true},
		{id: "sibling-kill", does: "SIGKILL to every thread of it in three ways", args: []string{"killall", "{sibling}", "9"}, free: []string{"killall", "{victim}", "15"}, want: "EPERM", scope: true},
		{id: "sibling-everybody", does: "SIGKILL to everybody (kill -9 -1); the other session's process stands", sh: "exec kill -9 -1", free: []string{"kill", "{victim}", "9"}, want: "exit .*", scope: true},
		{id: "sibling-model", does: "the socket on which the other session asks its model", args: []string{"dial", "unix", "/run/holdfast/model.sock"}, want: "ENOENT", sees: "ok escape-canary-network"},
		{id: "sibling-abstract", does: "an abstract socket of its process", args: []string{"dial", "unix", "@sibling"}, want: "EPERM", sees: "ok escape-canary-network", scope: true},
		{id: "sibling-terminal", does: "open its terminal", args: []string{"open", "/dev/pts/0"}, want: "ENOENT|EACCES", sees: "ok.*"},
		{id: "keeper-root", does: "the roots, directories and files of each thread of boxd, among them those that see the other's home", sh: "for t in /proc/1/task/*; do ls $t/root/ $t/root/home/agent $t/cwd/ $t/fd && echo $t; cat $t/environ $t/ns/mnt $t/mem && echo $t; done 2>/dev/null | grep -q . || exit 9", free: []string{"ls", "/proc/{victim}/root/"}, want: "exit 9"},
		{id: "keeper-ptrace", does: "trace each thread of boxd, and read its memory", sh: "for t in /proc/1/task/*; do p=${t##*/}; for v in 'ptrace '$p 'mem '$p 'pidfd-get '$p; do case $(/workspace/probe $v) in ok*) exit 0;; esac; done; done; exit 9", free: []string{"ptrace", "{victim}"}, want: "exit 9"},
		{id: "keeper-signal", does: "SIGTERM to every thread of boxd in three ways", args: []string{"killall", "1", "15"}, free: []string{"killall", "{victim}", "15"}, want: "EPERM", scope: true},
		{id: "keeper-capabilities", does: "take the capabilities of the threads that make places", args: []string{"capset"}, free: []string{"capset"}, control: inNamespaces, want: "EPERM"},
		{id: "keeper-mount", does: "mount a tmpfs, as they do", args: []string{"mount"}, free: []string{"mount"}, control: inNamespaces, want: "EPERM"},
		{id: "keeper-setns", does: "enter a namespace (setns), as they do", args: []string{"setns"}, free: []string{"setns"}, control: inNamespaces, want: "EPERM"},
		{id: "keeper-unshare", does: "a mount namespace (unshare), as they do", args: []string{"unshare", "131072"}, free: []string{"unshare", "131072"}, control: inNamespaces, want: "EPERM"},
		{id: "keeper-open-tree", does: "clone a tree of mounts (open_tree)", args: []string{"open-tree"}, free: []string{"open-tree"}, control: inNamespaces, want: "EPERM"},
		{id: "keeper-umount", does: "take the mount of the home away", args: []string{"umount", "/home/agent"}, free: []string{"within", "{root}", "umount", "/home"}, control: inNamespaces, want: "EPERM"},
		{id: "shared-host", does: "read a file of the host from the namespace of a session", args: []string{"climb", "{host}"}, free: []string{"climb", "{host}"}, want: "ENOENT", sees: "ok escape-canary-host.*"},
		{id: "shared-home-up", does: "go up from the home, which is a mount of its own", sh: "cd ~ && cd ../../../.. && cat .{other} .{host} ./home/agent/../../home-*/sibling-secret", free: []string{"read", "{host}"}, want: "exit 1 .*No such file.*", sees: "ok escape-canary-host.*"},
		{id: "shared-home-dir", does: "the same with the directory's own descriptor", sh: "exec 5<~; cat /proc/self/fd/5/../../../home-victim/sibling-secret; ls /proc/self/fd/5/../..", want: "exit 0 .*No such file.* bin .*workspace.*", sees: "exit 0 .*No such file.* bin .*workspace.*"},
	}
}

// pair returns the shared box of the attacker and the victim; the first call starts it.
func (r *rig) pair() *pair {
	r.Helper()
	p := r.siblings
	p.once.Do(func() {
		top := *r
		top.T = r.top
		p.start(&top)
	})
	if p.attacker == nil {
		r.Fatal("the shared box did not start")
	}
	r.names["sibling"], r.names["sibling-at"] = p.pid, p.at
	return p
}

func (p *pair) start(r *rig) {
	r.Helper()
	spec, _, b := r.up("shared", func(s *sandbox.Spec) { s.Shared = true })
	join := func(name string) *sandbox.Box {
		session := holdfast.SessionID(r.call().ID)
		m := sandbox.Member{Session: session, Home: filepath.Join(filepath.Dir(spec.Dir), "home-"+name), Token: b.Welcome().Token}
		if err := r.driver.(sandbox.Sharer).Join(r.Context(), spec.Box, m); err != nil {
			r.Fatal(err)
		}
		return b.Of(session)
	}
	victim, attacker := join("victim"), join("attacker")
	r.install(victim)
	for _, path := range []string{"/home/agent/sibling-secret", "/tmp/sibling-secret"} {
		call := r.call()
		if _, err := victim.Write(r.Context(), call, wire.WriteRequest{Path: path, Mode: 0o666}, []byte(canary+"sibling")); err != nil {
			r.Fatal(err)
		}
	}
	if saw := r.exec(victim, wire.ExecRequest{Shell: "chmod 777 ~"}); saw != "exit 0" {
		r.Fatal(saw)
	}
	if _, err := victim.Listen(r.Context(), wire.ListenRequest{Name: "model", Network: "unix", Address: "/run/holdfast/model.sock"}); err != nil {
		r.Fatal(err)
	}
	out := r.background(victim, wire.ExecRequest{
		Argv: []string{"/workspace/probe", "victim", "/home/agent/sibling-secret"}, Env: []string{"ESCAPE_SECRET=" + canary + "sibling"},
	})
	if _, err := fmt.Sscanf(out, "ready %s %s", &p.pid, &p.at); err != nil {
		r.Fatal(out, err)
	}
	if _, err := strconv.Atoi(p.pid); err != nil {
		r.Fatal(out)
	}
	r.background(victim, wire.ExecRequest{Shell: "/workspace/probe answer @sibling", PTY: &wire.Size{Rows: 24, Cols: 80}})
	p.victim, p.attacker = victim, attacker
}

// background starts a process that runs until the end of the test, and returns its first line.
func (r *rig) background(b *sandbox.Box, req wire.ExecRequest) string {
	r.Helper()
	line := &firstLine{got: make(chan string, 1)}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.Exec(ctx, r.call(), req, sandbox.ExecOptions{Stdout: line})
	}()
	r.Cleanup(func() { cancel(); <-done })
	select {
	case text := <-line.got:
		return text
	case <-done:
		r.Fatalf("%v ended early", req)
	}
	return ""
}

// firstLine is a writer that sends the first line written to it on the channel got.
type firstLine struct {
	text string
	got  chan string
}

func (l *firstLine) Write(b []byte) (int, error) {
	if !strings.Contains(l.text, "\n") {
		l.text += string(b)
		if line, _, ok := strings.Cut(l.text, "\n"); ok {
			l.got <- strings.TrimSpace(line)
		}
	}
	return len(b), nil
}

// sibling makes one attempt of one session on the other, and runs its control.
func (r *rig) sibling(s sibling) Row {
	r.Helper()
	p := r.pair()
	run := func(b *sandbox.Box) string {
		switch {
		case s.op != nil:
			return s.op(r, b)
		case s.sh != "":
			return r.exec(b, wire.ExecRequest{Shell: "exec 2>&1; " + r.fill(s.sh), TimeoutMS: 20_000, Merge: true})
		}
		return r.exec(b, wire.ExecRequest{Argv: append([]string{"/workspace/probe"}, r.fillAll(s.args)...), TimeoutMS: 20_000, Merge: true})
	}
	row := Row{Saw: run(p.attacker), Verdict: Held}
	switch unscoped := s.scope && !slices.Contains(p.victim.Welcome().InForce, "signal-scope"); {
	case unscoped:
		row.Verdict = NotEnforced
	case !matches(s.want, row.Saw), strings.Contains(row.Saw, canary):
		row.Verdict = Escaped
		r.Errorf("the attempt on the other session printed %q, not %q", row.Saw, s.want)
	}
	row.Saw = r.brief(strings.ReplaceAll(row.Saw, p.pid, "PID"))
	if saw := r.exec(p.victim, wire.ExecRequest{Argv: []string{"/workspace/probe", "kill", p.pid, "0"}}); saw != "ok" {
		row.Verdict = Escaped
		r.Errorf("the attempt ended the other session's process: %s", saw)
	}
	a := attempt{args: s.args, free: s.free, sees: s.sees, control: s.control}
	if s.free != nil {
		row.Control = r.without(a)
		return row
	}
	saw := run(p.victim)
	sees := s.sees
	if sees == "" {
		sees = "ok.*"
	}
	if !matches(sees, saw) {
		r.Errorf("the control failed, so the attempt proves nothing: it printed %q, not %q", saw, sees)
	}
	row.Control = "as the session itself: " + r.short(strings.ReplaceAll(saw, p.pid, "PID"))
	return row
}
