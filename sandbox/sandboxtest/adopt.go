package sandboxtest

import (
	"errors"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func adoptCases() []testCase {
	return []testCase{
		{name: "Adopt/SecondInstanceFindsTheBox", run: adoptFinds},
		{name: "Adopt/EnsureFindsTheBox", run: adoptEnsure},
		{name: "Adopt/RunningCallGoesOn", run: adoptRunning},
		{name: "Adopt/SecondInstanceStopsTheBox", run: adoptStops},
		{name: "Adopt/OutcomesSurviveAStop", run: outcomesSurviveStop},
		{name: "Orphan/StopsItself", run: orphanStops},
	}
}

func helloCases() []testCase {
	return []testCase{
		{name: "Hello/HZ3_StaleTokenIsConflict", run: staleToken},
		{name: "Hello/HZ3_OlderConnectionActsNoMore", run: olderConnection},
		{name: "Hello/HZ3_TokenSurvivesBoxd", run: tokenSurvives},
		{name: "Hello/SameTokenReplaces", run: sameToken},
		{name: "Hello/WelcomeListsHeldCalls", run: welcomeCalls},
	}
}

func adoptFinds(f *fixture) {
	spec := f.up("a")
	boot := f.dial(spec.Box, 1).Boot()
	again := f.cfg.Again(f.T, f.d)
	info, ok := f.info(again, spec.Box)
	if !ok || !info.Running {
		f.Fatalf("the next server sees %+v, %v", info, ok)
	}
	b, err := f.hello(again, spec.Box, 2)
	f.must(err)
	f.equal("boot", b.Boot(), boot)
	f.sh(b, "true")
}

func adoptEnsure(f *fixture) {
	spec := f.up("a")
	boot := f.dial(spec.Box, 1).Boot()
	again := f.cfg.Again(f.T, f.d)
	_, err := again.Ensure(f.ctx, spec)
	f.must(err)
	b, err := f.hello(again, spec.Box, 2)
	f.must(err)
	f.equal("boot", b.Boot(), boot)
}

func adoptRunning(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	call := f.call()
	script := "echo begun; while [ ! -f go ]; do sleep 0.02; done; echo x >> ran; echo done"
	g := f.begin(b, call, wire.ExecRequest{Shell: script})
	f.await("the start", g.started)
	again := f.cfg.Again(f.T, f.d)
	next, err := f.hello(again, spec.Box, 2)
	f.must(err)
	f.await("the end of the older exec", g.done)
	if g.err == nil {
		f.Fatal("the exec of the older connection ended well")
	}
	f.equal("status", string(f.status(next, call)), string(wire.CallRunning))
	f.write(next, "go", "")
	o := f.execAs(next, call, wire.ExecRequest{Shell: script})
	f.equal("all of the output", o.out, "begun\ndone\n")
	f.equal("times it ran", f.read(next, "ran"), "x\n")
}

func adoptStops(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	f.begin(b, f.call(), wire.ExecRequest{Shell: beat})
	path := filepath.Join(workspaceOf(spec), "beat")
	f.eventually("a heartbeat", func() bool { return size(path) > 0 })
	again := f.cfg.Again(f.T, f.d)
	f.must(again.Stop(f.ctx, spec.Box))
	f.await("the end of the pipe", b.Done())
	still(f, path)
	_, err := f.d.Connect(f.ctx, spec.Box)
	f.kind(err, holdfast.KindNotFound)
}

// outcomesSurviveStop tests that a requested stop saves the outcomes that were not released.
func outcomesSurviveStop(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	call := f.call()
	req := wire.ExecRequest{Shell: "echo out; echo x >> ran"}
	f.execAs(b, call, req)
	_, err := b.Stop(f.ctx, wire.StopRequest{GraceMS: 100})
	f.must(err)
	f.must(f.d.Stop(f.ctx, spec.Box))
	b = f.box("a")
	f.equal("status", string(f.status(b, call)), string(wire.CallFinished))
	o := f.execAs(b, call, req)
	f.equal("output", o.out, "out\n")
	f.equal("times it ran", f.read(b, "ran"), "x\n")
	b.Release(call.ID)
	f.eventually("the release", func() bool { return f.status(b, call) == "" })
}

func orphanStops(f *fixture) {
	spec := f.spec("a")
	spec.OrphanAfter = 50 * time.Millisecond
	_, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	f.eventually("the end of the orphan", func() bool { return !f.running(spec.Box) })
	spec.OrphanAfter = 0
	_, err = f.d.Ensure(f.ctx, spec)
	f.must(err)
	f.sh(f.dial(spec.Box, 1), "true")
}

func staleToken(f *fixture) {
	spec := f.up("a")
	f.dial(spec.Box, 7)
	_, err := f.hello(f.d, spec.Box, 6)
	f.kind(err, holdfast.KindConflict)
	f.dial(spec.Box, 8)
}

// olderConnection tests fencing: a server with a newer token takes over the box, and then the
// server with the older token must be refused.
func olderConnection(f *fixture) {
	spec := f.up("a")
	older := f.dial(spec.Box, 1)
	newer := f.dial(spec.Box, 2)
	_, err := older.Exec(f.ctx, f.call(), wire.ExecRequest{Shell: "echo x >> ran"}, execNothing)
	if err == nil {
		f.Fatal("the exec of a fenced server was accepted")
	}
	if k := holdfast.KindOf(err); k != holdfast.KindConflict && k != holdfast.KindUnavailable {
		f.Fatalf("kind %q: %v", k, err)
	}
	if _, err := older.Write(f.ctx, f.call(), wire.WriteRequest{Path: "ran"}, []byte("x")); err == nil {
		f.Fatal("the write of a fenced server was accepted")
	}
	f.await("the end of the older pipe", older.Done())
	f.equal("its effect", f.read(newer, "ran"), "")
	f.sh(newer, "true")
}

func tokenSurvives(f *fixture) {
	spec := f.up("a")
	f.dial(spec.Box, 9)
	f.kill(spec.Box)
	f.eventually("the end of the box", func() bool { return !f.running(spec.Box) })
	f.up("a")
	_, err := f.hello(f.d, spec.Box, 8)
	f.kind(err, holdfast.KindConflict)
	f.dial(spec.Box, 9)
}

func sameToken(f *fixture) {
	spec := f.up("a")
	first := f.dial(spec.Box, 3)
	second := f.dial(spec.Box, 3)
	f.await("the end of the first pipe", first.Done())
	_, err := first.Stats(f.ctx)
	if !holdfast.IsKind(err, holdfast.KindUnavailable) && !holdfast.IsKind(err, holdfast.KindConflict) {
		f.Fatalf("stats over a replaced pipe: %v", err)
	}
	f.sh(second, "true")
}

func welcomeCalls(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	done, running := f.call(), f.call()
	f.execAs(b, done, wire.ExecRequest{Shell: "true"})
	g := f.begin(b, running, wire.ExecRequest{Shell: "sleep 600"})
	f.await("the start", g.started)
	got := map[holdfast.CallID]wire.CallStatus{}
	for _, c := range f.dial(spec.Box, 1).Welcome().Calls {
		got[c.Call] = c.Status
	}
	if got[done.ID] != wire.CallFinished || got[running.ID] != wire.CallRunning || len(got) != 2 {
		f.Fatal(errors.New("the welcome message does not list exactly the two calls that boxd holds"), got)
	}
}
