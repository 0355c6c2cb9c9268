package sandboxtest

import (
	"context"
	"io"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// sharedCases test that the sessions of a shared box have the same workspace, and homes and
// temporary directories that no sibling gets into.
func sharedCases() []testCase {
	return []testCase{
		{name: "Shared/OneWorkspaceManyHomes", needs: needSharer, run: sharedHomes},
		{name: "Shared/FileOperationsSeeTheSessionsFiles", needs: needSharer, run: sharedFiles},
		{name: "Shared/SiblingsCannotGetIn", needs: needSharer, run: sharedSiblings},
		{name: "Shared/Terminals", needs: needSharer, run: sharedTerminals},
		{name: "Shared/SocketsOfTheSession", needs: needSharer, run: sharedSockets},
		{name: "Shared/LayersSeeTheSessionsFiles", needs: needSharer, run: sharedLayers},
		{name: "Shared/KillReachesOneCall", needs: needSharer, run: sharedKill},
		{name: "Shared/LeaveEndsOneSession", needs: needSharer, run: sharedLeave},
		{name: "Shared/AdoptionKeepsPlaces", needs: needSharer, run: sharedAdopt},
		{name: "Shared/NextLifeJoinsAgain", needs: needSharer, run: sharedNextLife},
		{name: "Shared/JoinIsFenced", needs: needSharer, run: sharedFence},
		{name: "Shared/RefusedElsewhere", run: sharedRefused},
	}
}

func needSharer(cfg Config, d sandbox.Driver) string {
	if _, ok := d.(sandbox.Sharer); !ok {
		return "the driver is no Sharer"
	}
	if !cfg.FixedPaths || !cfg.RealPrograms {
		return "the driver has no fixed paths or no real programs"
	}
	return ""
}

// sharedBox is a shared box with its sessions.
type sharedBox struct {
	*fixture
	spec sandbox.Spec
	box  *sandbox.Box
}

func (f *fixture) shared(name string) *sharedBox {
	f.Helper()
	spec := f.spec(name)
	spec.Shared = true
	_, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	return &sharedBox{f, spec, f.dial(spec.Box, 1)}
}

// home returns the host's path of a session's home, which is not below the directory of the box.
func (s *sharedBox) home(session holdfast.SessionID) string {
	return filepath.Join(filepath.Dir(s.spec.Dir), "home-"+string(session))
}

func (s *sharedBox) join(d sandbox.Driver, session holdfast.SessionID, token uint64) error {
	return d.(sandbox.Sharer).Join(s.ctx, s.spec.Box, sandbox.Member{Session: session, Home: s.home(session), Token: token})
}

// member makes a new session join the box, and returns its Box and its id.
func (s *sharedBox) member() (*sandbox.Box, holdfast.SessionID) {
	s.Helper()
	session := s.session()
	s.must(s.join(s.d, session, 1))
	return s.box.Of(session), session
}

func sharedHomes(f *fixture) {
	s := f.shared("a")
	one, first := s.member()
	two, _ := s.member()
	f.sh(one, `echo one > ~/mine; echo one > /tmp/mine; echo one > /dev/shm/mine; echo one > /workspace/both`)
	f.equal("what the other sees", f.sh(two, `cat /workspace/both; ls -A ~ /tmp /dev/shm; echo two > ~/mine; echo $HOME $TMPDIR; pwd`),
		"one\n/dev/shm:\n\n/home/agent:\n\n/tmp:\n/home/agent /tmp\n/workspace\n")
	f.equal("what it has itself", f.sh(one, `cat ~/mine /tmp/mine /dev/shm/mine`), "one\none\none\n")
	f.must(s.join(f.d, first, 1)) // a second join of the same session changes nothing
	f.equal("after a second join", f.sh(one, `cat ~/mine /tmp/mine; cd ~ && pwd && /bin/pwd`), "one\none\n/home/agent\n/home/agent\n")
	f.sh(one, `printf '#!/bin/sh\necho program of one\n' > ~/p; chmod +x ~/p`)
	f.equal("a program in its home", f.exec(one, wire.ExecRequest{Argv: []string{"p"}, Cwd: "/home/agent", Env: []string{"PATH=/home/agent"}}).out, "program of one\n")
	f.sh(one, `mkdir ~/d /tmp/d; echo in home > ~/d/f; echo in tmp > /tmp/d/f`)
	for dir, want := range map[string]string{"/home/agent/d": "in home\n", "/tmp/d": "in tmp\n"} {
		f.equal("a file in its directory", f.exec(one, wire.ExecRequest{Argv: []string{"cat", "f"}, Cwd: dir}).out, want)
		if o := f.exec(two, wire.ExecRequest{Argv: []string{"true"}, Cwd: dir}); !strings.Contains(o.Message, "no working directory") {
			f.Fatalf("the other session works there: %+v", o)
		}
	}
	if o := f.exec(two, wire.ExecRequest{Argv: []string{"p"}, Env: []string{"PATH=/home/agent"}}); o.Code != 127 {
		f.Fatalf("the other session runs it: %+v", o)
	}
	// A process that belongs to no session, but to the server itself, has no home.
	f.equal("the server's own", f.sh(s.box, `cat both; ls -A ~`), "one\n")
	_, err := s.box.Of(f.session()).Exec(f.ctx, f.call(), wire.ExecRequest{Shell: "true"}, sandbox.ExecOptions{})
	f.kind(err, holdfast.KindUnavailable)
}

func sharedFiles(f *fixture) {
	s := f.shared("a")
	one, _ := s.member()
	two, _ := s.member()
	f.write(one, "/home/agent/deep/er/f", "of one")
	f.write(two, "/home/agent/deep/er/f", "of two")
	f.write(one, "/tmp/t", "tmp of one")
	f.equal("read", f.read(one, "/home/agent/deep/er/f"), "of one")
	f.equal("read", f.read(two, "~/deep/er/f"), "of two")
	f.equal("read by another", f.read(two, "/tmp/t"), "")
	_, err := two.Edit(f.ctx, f.call(), wire.EditRequest{Path: "/home/agent/deep/er/f", Old: "two", New: "2"})
	f.must(err)
	f.equal("after an edit", f.sh(one, "cat ~/deep/er/f")+f.sh(two, "cat ~/deep/er/f"), "of oneof 2")
	for i, b := range []*sandbox.Box{one, two} {
		l, err := b.List(f.ctx, wire.ListRequest{Path: "/tmp"})
		f.must(err)
		f.equal("entries of /tmp", strconv.Itoa(len(l.Entries)), strconv.Itoa(1-i))
	}
	for _, p := range []string{"/home/agent/deep", "/tmp/t"} {
		if _, err := s.box.Stat(f.ctx, wire.PathRequest{Path: p}); !holdfast.IsKind(err, holdfast.KindNotFound) {
			f.Fatalf("the server itself finds %s: %v", p, err)
		}
	}
	_, err = two.Of(f.session()).Stat(f.ctx, wire.PathRequest{Path: "/workspace"})
	f.kind(err, holdfast.KindUnavailable)
}

// sharedSiblings tests the ways by which a process could reach another session's home.
func sharedSiblings(f *fixture) {
	s := f.shared("a")
	victim, _ := s.member()
	attacker, _ := s.member()
	f.sh(victim, `echo canary-home > ~/secret; echo canary-tmp > /tmp/secret; mkdir ~/d; echo canary-cwd > ~/d/secret; chmod -R a+rwX ~`)
	g := f.begin(victim, f.call(), wire.ExecRequest{
		Shell: `cd ~/d; exec 7<>~/secret; echo $$ > /workspace/pid; while :; do sleep 600; done`,
		Env:   []string{"SECRET=canary-environment"},
	})
	f.await("the start of the victim", g.started)
	pid := ""
	f.eventually("the victim's pid", func() bool { pid = strings.TrimSpace(f.read(s.box, "pid")); return pid != "" })
	for what, script := range map[string]string{
		"root":         `cat /proc/P/root/home/agent/secret /proc/P/root/tmp/secret; echo x > /proc/P/root/home/agent/new; ls /proc/P/root/home/agent`,
		"cwd":          `cat /proc/P/cwd/secret; cd /proc/P/cwd && cat secret`,
		"descriptors":  `ls -l /proc/P/fd; cat /proc/P/fd/7 /proc/P/task/*/fd/7; ln /proc/P/fd/7 /workspace/taken; ln -L /proc/P/fd/7 /workspace/taken; cat /workspace/taken`,
		"environment":  `tr '\0' '\n' < /proc/P/environ`,
		"memory":       `cat /proc/P/maps; dd if=/proc/P/mem bs=1 count=1; ls /proc/P/map_files`,
		"mounts":       `cat /proc/P/mountinfo; cat /proc/P/ns/mnt; readlink /proc/P/ns/mnt`,
		"every root":   `for r in /proc/[0-9]*/root /proc/[0-9]*/task/*/root; do case $r in /proc/$$/*|/proc/self/*) ;; *) cat $r/home/agent/secret $r/tmp/secret;; esac; done`,
		"by name":      `find / -xdev -name secret -newer /proc/1 2>/dev/null; find / -name secret -path '*agent*' -not -path '/proc/*' 2>/dev/null; cat /home/*/secret /home/.*/secret /home/agent/../*/secret /run/*/*/secret /tmp/secret`,
		"boxd":         `cat /proc/1/root/home/agent/secret; ls /proc/1/cwd /proc/1/fd; for t in /proc/1/task/*; do ls $t/root/home/agent $t/cwd $t/fd; done`,
		"namespaces":   `nsenter -t P -m cat /home/agent/secret; unshare -Um cat /home/agent/secret; unshare -m true; mount --bind /proc/P/root/home/agent /workspace`,
		"hard link":    `ln /proc/P/root/home/agent/secret /workspace/taken; ln /proc/P/cwd/secret /workspace/taken; cat /workspace/taken`,
		"trace":        `command -v strace && strace -p P -o /workspace/trace true; command -v gdb && timeout 5 gdb -p P -batch -ex 'info proc'`,
		"model socket": `ls -A /proc/P/root/run/holdfast`,
	} {
		o := f.exec(attacker, wire.ExecRequest{Shell: strings.ReplaceAll(script, "P", pid) + "; true", TimeoutMS: 20_000, Merge: true})
		if strings.Contains(o.out, "canary-") || strings.Contains(o.out, "mnt:[") {
			f.Errorf("the attempt %q reached another session's files or namespaces: it printed %q", what, o.out)
		}
	}
	f.equal("the victim's home", f.sh(victim, `cat ~/secret; ls ~`), "canary-home\nd\nsecret\n")
	// The control: the victim itself reads three of these paths, so the files are there and can be read.
	f.equal("the control", f.sh(victim, strings.ReplaceAll(`cat /proc/P/root/home/agent/secret /proc/P/cwd/secret /proc/P/fd/7`, "P", pid)), "canary-home\ncanary-cwd\ncanary-home\n")

	if !f.inForce(s.box, "signal-scope") {
		return // the box lists this protection as missing: all sessions have one user, so signals reach the others
	}
	f.sh(attacker, strings.ReplaceAll(`! kill -0 P && ! kill -9 P`, "P", pid))
	f.sh(attacker, `kill -9 -1; true`)
	f.sh(victim, "kill -0 "+pid)
}

func (f *fixture) inForce(b *sandbox.Box, name string) bool {
	for _, n := range b.Welcome().InForce {
		if n == name {
			return true
		}
	}
	return false
}

func sharedTerminals(f *fixture) {
	if why := needTerminals(f.cfg, f.d); why != "" {
		f.Skip(why)
	}
	s := f.shared("a")
	one, _ := s.member()
	two, _ := s.member()
	f.write(one, "/home/agent/mine", "of one\n")
	held, hold := io.Pipe()
	defer hold.Close()
	ctx, hangup := context.WithCancel(f.ctx)
	defer hangup()
	up, down := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(down)
		_, _ = one.Exec(ctx, f.call(), wire.ExecRequest{Argv: []string{"sleep", "600"}, PTY: &wire.Size{Rows: 24, Cols: 80}, KillOnDetach: true},
			sandbox.ExecOptions{Stdin: held, Started: func(wire.Started) { close(up) }})
	}()
	f.await("a terminal", up)
	f.equal("terminals", f.sh(one, `ls /dev/pts`), "0\nptmx\n")
	f.equal("terminals that the other sees", f.sh(two, `ls /dev/pts`), "ptmx\n")
	hangup()
	f.await("the end of the terminal", down)
	in, typed := io.Pipe()
	defer typed.Close()
	o := outcome{}
	var out safeBuffer
	var err error
	o.ExecResult, err = one.Exec(f.ctx, f.call(), wire.ExecRequest{
		Shell: `tty; cat ~/mine; cd ~ && /bin/pwd`, PTY: &wire.Size{Rows: 24, Cols: 80}, KillOnDetach: true,
	}, sandbox.ExecOptions{Stdout: &out, Stdin: in})
	f.must(err)
	if got := out.String(); !strings.Contains(got, "/dev/pts/") || !strings.Contains(got, "of one") || !strings.Contains(got, "/home/agent\r\n") {
		f.Fatalf("the terminal showed %q", got)
	}
}

// sharedSockets tests that each session has its own socket file at an address.
func sharedSockets(f *fixture) {
	s := f.shared("a")
	one, _ := s.member()
	two, _ := s.member()
	req := wire.ListenRequest{Name: "model", Network: "unix", Address: "/run/holdfast/model.sock"}
	f.listen(one, req)
	f.listen(one, req)
	f.equal("the other's", f.sh(two, `ls /run/holdfast`), "")
	f.listen(two, req)
	for _, b := range []*sandbox.Box{one, two} {
		f.sh(b, `[ -S /run/holdfast/model.sock ]`)
	}
	f.equal("the box's", f.sh(s.box, `ls /run/holdfast`), "")
}

// sharedLayers tests that in a shared box the path rules of a call mean the files of the session
// that makes the call: /home/agent is that session's own home.
func sharedLayers(f *fixture) {
	s := f.shared("a")
	one, _ := s.member()
	f.sh(one, `mkdir ~/w ~/x`)
	var out safeBuffer
	ctx := sandbox.Layered(f.ctx, func() ([]sandbox.Layer, error) { return []sandbox.Layer{{Write: []string{"/home/agent/w"}}}, nil })
	_, err := one.Exec(ctx, f.call(), wire.ExecRequest{Shell: `echo a > ~/w/f; echo b > ~/x/f; ls ~/w ~/x`, Merge: true}, sandbox.ExecOptions{Stdout: &out})
	if holdfast.IsKind(err, holdfast.KindUnavailable) {
		f.Skip(err.Error())
	}
	f.must(err)
	if got := out.String(); !strings.Contains(got, "/home/agent/w:\nf\n") || !strings.Contains(got, "ermission denied") {
		f.Fatal(got)
	}
}

func sharedKill(f *fixture) {
	s := f.shared("a")
	one, _ := s.member()
	two, _ := s.member()
	calls := []sandbox.Call{f.call(), f.call(), f.call()}
	var gs []*background
	for i, b := range []*sandbox.Box{one, one, two} {
		g := f.begin(b, calls[i], wire.ExecRequest{Shell: `sleep 600 & sleep 600`})
		f.await("the start", g.started)
		gs = append(gs, g)
	}
	f.must(one.Kill(f.ctx, wire.KillRequest{Call: calls[0].ID}))
	f.await("the end of the killed call", gs[0].done)
	f.equal("the session's other call", string(f.status(one, calls[1])), string(wire.CallRunning))
	f.equal("the sibling's call", string(f.status(two, calls[2])), string(wire.CallRunning))
}

// sharedLeave tests that the end of a session ends everything that it started, and only that.
func sharedLeave(f *fixture) {
	s := f.shared("a")
	one, first := s.member()
	two, _ := s.member()
	var gs []*background
	calls := []sandbox.Call{f.call(), f.call()}
	for i, b := range []*sandbox.Box{one, two} {
		f.sh(b, `(exec >/dev/null 2>&1; setsid sleep 601 & )`)
		g := f.begin(b, calls[i], wire.ExecRequest{Shell: `sleep 602`})
		f.await("the start", g.started)
		gs = append(gs, g)
	}
	f.sh(one, `echo stays > ~/f; echo goes > /tmp/f`)
	left := func() (n int) {
		ps, err := s.box.Processes(f.ctx)
		f.must(err)
		for _, p := range ps {
			if p.Name == "sleep" {
				n++
			}
		}
		return n
	}
	f.eventually("four processes", func() bool { return left() == 4 })
	f.must(one.Leave(f.ctx, wire.LeaveRequest{GraceMS: 10, Reason: "test"}))
	f.eventually("the sibling's processes only", func() bool { return left() == 2 })
	f.await("the end of its call", gs[0].done)
	f.equal("class", string(gs[0].res.Class), string(holdfast.ExitCanceled))
	f.equal("the sibling's call", string(f.status(two, calls[1])), string(wire.CallRunning))
	_, err := one.Exec(f.ctx, f.call(), wire.ExecRequest{Shell: "true"}, sandbox.ExecOptions{})
	f.kind(err, holdfast.KindUnavailable)
	f.must(one.Leave(f.ctx, wire.LeaveRequest{}))
	f.must(s.join(f.d, first, 1))
	f.equal("after the return", f.sh(one, `cat ~/f; ls /tmp`), "stays\n")
}

// sharedAdopt tests that the places of sessions (homes, temporary directories, processes) outlive the server.
func sharedAdopt(f *fixture) {
	s := f.shared("a")
	one, first := s.member()
	g := f.begin(one, f.call(), wire.ExecRequest{Shell: `echo mine > /tmp/f; echo $$ > ~/pid; sleep 600`})
	f.await("the start", g.started)
	again := f.cfg.Again(f.T, f.d)
	b, err := f.hello(again, s.spec.Box, 2)
	f.must(err)
	one = b.Of(first)
	f.eventually("its files", func() bool {
		return f.sh(one, `{ cat /tmp/f; kill -0 $(cat ~/pid) && echo runs; } 2> /dev/null; true`) == "mine\nruns\n"
	})
	f.must(s.join(again, first, 2))
	f.equal("after the join", f.sh(one, `cat /tmp/f`), "mine\n")
	two := f.session()
	f.must(s.join(again, two, 2))
	f.equal("a new session", f.sh(b.Of(two), `ls ~ /tmp`), "/home/agent:\n\n/tmp:\n")
}

// sharedNextLife tests that after boxd has died and was started again, each session finds its own home again.
func sharedNextLife(f *fixture) {
	s := f.shared("a")
	one, first := s.member()
	f.sh(one, `echo stays > ~/f`)
	f.kill(s.spec.Box)
	f.await("the end of the connection", s.box.Done())
	f.eventually("the end of the box", func() bool { return !f.running(s.spec.Box) })
	_, err := f.d.Ensure(f.ctx, s.spec)
	f.must(err)
	b := f.dial(s.spec.Box, 1)
	_, err = b.Of(first).Exec(f.ctx, f.call(), wire.ExecRequest{Shell: "true"}, sandbox.ExecOptions{})
	f.kind(err, holdfast.KindUnavailable)
	f.must(s.join(f.d, first, 1))
	f.equal("its home", f.sh(b.Of(first), `cat ~/f; ls /tmp`), "stays\n")
}

func sharedFence(f *fixture) {
	s := f.shared("a")
	f.kind(s.join(f.d, f.session(), 7), holdfast.KindConflict)
	f.dial(s.spec.Box, 3)
	f.kind(s.join(f.d, f.session(), 1), holdfast.KindConflict)
	f.kind(s.join(f.d, "nonsense", 3), holdfast.KindInvalid)
	f.must(s.join(f.d, f.session(), 3))
	f.must(f.d.Stop(f.ctx, s.spec.Box))
	f.kind(s.join(f.d, f.session(), 3), holdfast.KindNotFound)
}

// sharedRefused tests that a driver that cannot keep sessions apart refuses a shared box, and that
// no session joins a box that is not shared.
func sharedRefused(f *fixture) {
	sharer, ok := f.d.(sandbox.Sharer)
	if !ok {
		spec := f.spec("a")
		spec.Shared = true
		_, err := f.d.Ensure(f.ctx, spec)
		f.kind(err, holdfast.KindUnavailable)
		if holdfast.HintOf(err) == "" {
			f.Fatalf("%v has no hint", err)
		}
		return
	}
	spec := f.up("a")
	f.dial(spec.Box, 1)
	f.kind(sharer.Join(f.ctx, spec.Box, sandbox.Member{Session: f.session(), Home: filepath.Join(spec.Dir, "home"), Token: 1}), holdfast.KindInvalid)
}
