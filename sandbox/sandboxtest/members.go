package sandboxtest

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// memberCases test that sessions which share a box have separate calls, listeners and
// environments.
func memberCases() []testCase {
	return []testCase{
		{name: "Members/HZ22_CallsAreApart", run: callsApart},
		{name: "Members/HZ22_OutcomesStayApart", run: outcomesApart},
		{name: "Members/HZ22_EachAdoptsItsOwn", run: eachAdopts},
		{name: "Members/HZ22_EnvironmentsAreApart", run: environmentsApart},
		{name: "Members/HZ22_ListenersAreApart", run: listenersApart},
	}
}

func (f *fixture) session() holdfast.SessionID { return holdfast.SessionID(f.call().ID) }

// callsApart tests that a session cannot list, kill, attach to or release another session's call.
func callsApart(f *fixture) {
	b := f.box("a")
	one, two := b.Of(f.session()), b.Of(f.session())
	done, running := f.call(), f.call()
	req := wire.ExecRequest{Shell: "echo x >> ran; echo out"}
	f.execAs(one, done, req)
	g := f.begin(one, running, wire.ExecRequest{Shell: "sleep 600"})
	f.await("the start", g.started)

	if held, err := two.Calls(f.ctx); err != nil || len(held) != 0 {
		f.Fatalf("the other session sees %+v, %v", held, err)
	}
	_, err := two.Exec(f.ctx, done, req, execNothing)
	f.kind(err, holdfast.KindConflict)
	_, err = two.Exec(f.ctx, running, wire.ExecRequest{}, sandbox.ExecOptions{AttachOnly: true})
	f.kind(err, holdfast.KindConflict)
	f.kind(two.Kill(f.ctx, wire.KillRequest{Call: running.ID}), holdfast.KindNotFound)
	two.Release(done.ID)
	f.sh(two, "true") // this request carries the release to boxd
	f.equal("the finished call", string(f.status(one, done)), string(wire.CallFinished))
	f.equal("the running call", string(f.status(one, running)), string(wire.CallRunning))
	f.equal("output", f.execAs(one, done, req).out, "out\n")
	f.equal("times it ran", f.read(b, "ran"), "x\n")

	one.Release(done.ID)
	f.eventually("the release", func() bool { return f.status(one, done) == "" })
	f.must(one.Kill(f.ctx, wire.KillRequest{Call: running.ID}))
	f.await("the end", g.done)
}

// outcomesApart tests that outcomes which boxd saved at its end belong to the session of the call.
func outcomesApart(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	mine, other := f.session(), f.session()
	call, req := f.call(), wire.ExecRequest{Shell: "echo x >> ran; echo out"}
	f.execAs(b.Of(mine), call, req)
	_, err := b.Stop(f.ctx, wire.StopRequest{GraceMS: 100})
	f.must(err)
	f.must(f.d.Stop(f.ctx, spec.Box))
	b = f.box("a")
	_, err = b.Of(other).Exec(f.ctx, call, req, execNothing)
	f.kind(err, holdfast.KindConflict)
	b.Of(other).Release(call.ID)
	f.sh(b.Of(other), "true")
	f.equal("output", f.execAs(b.Of(mine), call, req).out, "out\n")
	f.equal("times it ran", f.read(b, "ran"), "x\n")
}

// eachAdopts tests that after a reconnect each session adopts its own calls, once.
func eachAdopts(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	sessions := []holdfast.SessionID{f.session(), f.session(), f.session()}
	calls := map[holdfast.SessionID]holdfast.CallID{}
	for _, s := range sessions[:2] {
		call := f.call()
		f.execAs(b.Of(s), call, wire.ExecRequest{Shell: "true"})
		calls[s] = call.ID
	}
	b = f.dial(spec.Box, 1)
	refused := errors.New("refused")
	if err := b.Of(sessions[0]).Adopt(func([]wire.CallState) error { return refused }); !errors.Is(err, refused) {
		f.Fatal(err)
	}
	for range 2 {
		for _, s := range sessions {
			f.must(b.Of(s).Adopt(func(held []wire.CallState) error {
				if len(held) != 1 || held[0].Call != calls[s] || held[0].Session != s {
					f.Errorf("Adopt gave session %s the calls %+v instead of only its own call %s", s, held, calls[s])
				}
				delete(calls, s)
				return nil
			}))
		}
	}
	if len(calls) != 0 {
		f.Errorf("Adopt gave these calls to no session: %v", calls)
	}
}

// environmentsApart tests that a session's environment applies to its own processes only,
// overrides the box's, and can change from one process to the next.
func environmentsApart(f *fixture) {
	b := f.box("a")
	one, two := b.Of(f.session()), b.Of(f.session())
	one.SetEnv([]string{"FROM_SESSION=session", "BOTH=session", "TMPDIR=/session"})
	show := `echo "$FROM_SESSION $BOTH $OWN"; [ "$TMPDIR" = /session ] && echo won; [ -n "$HOME" ] && [ -n "$PATH" ] && echo set`
	o := f.exec(one, wire.ExecRequest{Shell: show, Env: []string{"OWN=x y=z", "BOTH=exec"}})
	f.equal("what an exec names wins", o.out, "session exec x y=z\nwon\nset\n")
	f.equal("the next call", f.sh(one, show), "session session \nwon\nset\n")
	f.equal("the other session", f.sh(two, show), "  \nset\n")
	one.SetEnv([]string{"BOTH=now"})
	f.equal("after a change", f.sh(one, show), " now \nset\n")
}

// listenersApart tests that a connection is reported with the session whose listener accepted it,
// and that a session cannot listen on another session's address.
func listenersApart(f *fixture) {
	spec := f.up("a")
	ws := workspaceOf(spec)
	got := make(chan holdfast.SessionID, 2)
	b := f.dialHandler(spec.Box, 1, func(s holdfast.SessionID, name string, conn net.Conn) {
		defer conn.Close()
		_, _ = bufio.NewReader(conn).ReadString('\n')
		got <- s
		_, _ = fmt.Fprintln(conn, name)
	})
	sessions := []holdfast.SessionID{f.session(), f.session()}
	var ports []int
	var reqs []wire.ListenRequest
	for _, s := range sessions {
		req, port := f.egress()
		f.listen(b.Of(s), req)
		f.listen(b.Of(s), req)
		reqs, ports = append(reqs, req), append(ports, port)
	}
	_, err := b.Of(f.session()).Listen(f.ctx, reqs[0])
	f.kind(err, holdfast.KindConflict)
	free := wire.ListenRequest{Name: "free", Network: "tcp", Address: "127.0.0.1:0"}
	first, second := f.listen(b.Of(sessions[0]), free), f.listen(b.Of(sessions[1]), free)
	if f.equal("the address of a repeated request", f.listen(b.Of(sessions[0]), free), first); first == second || strings.HasSuffix(first, ":0") {
		f.Errorf("the listeners of two sessions have the addresses %s and %s, which must differ and have a port", first, second)
	}
	f.must(os.WriteFile(ws+"/go", nil, 0o666))
	for i := range slices.Backward(sessions) {
		f.client(b.Of(sessions[0]), ws, ports[i])
		f.equal("the answer", f.heard(ws), "egress\n")
		f.equal("whose connection it is", string(<-got), string(sessions[i]))
		f.must(os.Remove(ws + "/heard"))
	}
}
