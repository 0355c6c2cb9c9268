package sandboxtest

import (
	"context"
	"io"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// aliveCases test the count of processes that comes with the answers of calls, by which the server
// knows that nothing can have changed the files of a box.
func aliveCases() []testCase {
	return []testCase{
		{name: "Alive/NoneAfterEachChange", run: aliveNone},
		{name: "Alive/WhatACallLeft", run: aliveLeft},
		{name: "Alive/RunningIsNotKnown", run: aliveRunning},
		{name: "Alive/AbandonedCallCounts", run: aliveAbandoned},
		{name: "Alive/Parallel", run: aliveParallel},
		{name: "Alive/RestEndsWithAChange", run: restChange},
		{name: "Alive/RestIsOfOneConnection", run: restConnection},
	}
}

// alive fails the case unless the box's count of processes is known and equal to n.
func (f *fixture) alive(b *sandbox.Box, what string, n int) {
	f.Helper()
	if got, known := b.Alive(); !known || got != n {
		f.Fatalf("after %s %d processes live (known %v), want %d", what, got, known, n)
	}
}

// aliveNone tests that every operation that changes something reports the count, also if it is
// refused, and that no other operation makes the count unknown.
func aliveNone(f *fixture) {
	b := f.box("a")
	if _, known := b.Alive(); known {
		f.Fatal("the count is known before boxd has counted")
	}
	_, err := b.Stats(f.ctx)
	f.must(err)
	f.alive(b, "stats", 0)
	f.sh(b, "true")
	f.alive(b, "an exec", 0)
	f.exec(b, wire.ExecRequest{Argv: []string{"/no/such/program"}})
	f.alive(b, "an exec without a program", 0)
	f.write(b, "file", "one")
	f.alive(b, "a write", 0)
	_, err = b.Edit(f.ctx, f.call(), wire.EditRequest{Path: "file", Old: "one", New: "two"})
	f.must(err)
	f.alive(b, "an edit", 0)
	f.must(b.Mkdir(f.ctx, f.call(), wire.MkdirRequest{Path: "dir"}))
	f.alive(b, "a mkdir", 0)
	f.must(b.Rename(f.ctx, f.call(), wire.RenameRequest{From: "file", To: "dir/file"}))
	f.alive(b, "a rename", 0)
	f.must(b.Remove(f.ctx, f.call(), wire.RemoveRequest{Path: "dir", Recursive: true}))
	f.alive(b, "a remove", 0)
	f.kind(b.Remove(f.ctx, f.call(), wire.RemoveRequest{Path: "dir"}), holdfast.KindNotFound)
	f.alive(b, "a remove that failed", 0)
	f.kind(b.Mkdir(f.ctx, sandbox.Call{ID: "not an id"}, wire.MkdirRequest{Path: "dir"}), holdfast.KindInvalid)
	f.alive(b, "a refused call", 0)
	_, err = b.Glob(f.ctx, wire.GlobRequest{Pattern: "*"})
	f.must(err)
	_, err = b.Read(f.ctx, wire.ReadRequest{Path: "file"}, io.Discard)
	f.kind(err, holdfast.KindNotFound)
	f.alive(b, "operations that change nothing", 0)
}

func aliveLeft(f *fixture) {
	b := f.box("a")
	call := f.call()
	f.execAs(b, call, wire.ExecRequest{Shell: "sleep 600 & sleep 600 &"})
	f.alive(b, "a call that left two processes", 2)
	f.write(b, "file", "one")
	f.alive(b, "a write beside them", 2)
	if _, ok := b.Rest(f.ctx); ok {
		f.Fatal("a box with processes is at rest")
	}
	f.must(b.Kill(f.ctx, wire.KillRequest{Call: call.ID}))
	f.write(b, "file", "two")
	f.alive(b, "their end", 0)
	f.execAs(b, call, wire.ExecRequest{Shell: "sleep 600 & sleep 600 &"})
	f.alive(b, "the stored outcome", 0)
	f.exec(b, wire.ExecRequest{Shell: "sleep 0.05 &"})
	f.eventually("the rest after the end of a process of its own accord", func() bool {
		_, ok := b.Rest(f.ctx)
		return ok
	})
}

// aliveRunning tests that the count is not known while a call runs, whoever else calls meanwhile,
// and that a new connection counts the call.
func aliveRunning(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	call := f.call()
	g := f.begin(b, call, wire.ExecRequest{Shell: "sleep 600"})
	f.await("the start", g.started)
	f.write(b.Of(f.session()), "file", "one")
	if n, known := b.Alive(); known {
		f.Fatalf("%d processes are known beside a running call", n)
	}
	if _, ok := b.Rest(f.ctx); ok {
		f.Fatal("a box with a running call is at rest")
	}
	again := f.dial(spec.Box, 2)
	f.write(again, "file", "two")
	f.alive(again, "a write beside a call of another connection", 1)
	f.must(again.Kill(f.ctx, wire.KillRequest{Call: call.ID}))
	if _, ok := again.Rest(f.ctx); !ok {
		f.Fatal("no rest after the end of the call")
	}
}

// aliveAbandoned tests that a running call is still part of the count after its caller has gone.
func aliveAbandoned(f *fixture) {
	b := f.box("a")
	call := f.call()
	ctx, cancel := context.WithCancel(f.ctx)
	defer cancel()
	_, err := b.Exec(ctx, call, wire.ExecRequest{Shell: "sleep 600"}, sandbox.ExecOptions{Started: func(wire.Started) { cancel() }})
	if err == nil {
		f.Fatal("the call ended")
	}
	f.eventually("the count of the call", func() bool {
		f.write(b, "file", "one")
		n, known := b.Alive()
		if known && n == 0 {
			f.Fatal("a running call is not counted")
		}
		return known && n == 1
	})
	f.must(b.Kill(f.ctx, wire.KillRequest{Call: call.ID}))
	f.write(b, "file", "two")
	f.alive(b, "the end of the call", 0)
}

// aliveParallel tests that the count is known at the end of calls of several sessions at once.
func aliveParallel(f *fixture) {
	b := f.box("a")
	for range 10 {
		var wg sync.WaitGroup
		for range 4 {
			own := b.Of(f.session())
			wg.Go(func() { f.exec(own, wire.ExecRequest{Shell: "true"}) })
			wg.Go(func() { f.write(own, "file", "one") })
		}
		wg.Wait()
		f.alive(b, "parallel calls", 0)
	}
}

func restChange(f *fixture) {
	b := f.box("a")
	f.write(b, "file", "one")
	first, ok := b.Rest(f.ctx)
	if !ok || !first.Of(b) || !first.Of(b.Of(f.session())) {
		f.Fatalf("rest %v, %v", first, ok)
	}
	_ = f.read(b, "file")
	if again, ok := b.Of(f.session()).Rest(f.ctx); !ok || again != first {
		f.Fatalf("a read ended the rest: %v, %v", again, ok)
	}
	f.write(b.Of(f.session()), "file", "two")
	if again, ok := b.Rest(f.ctx); !ok || again == first {
		f.Fatalf("a write did not end the rest: %v, %v", again, ok)
	}
}

func restConnection(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	first, ok := b.Rest(f.ctx)
	again := f.dial(spec.Box, 2)
	second, ok2 := again.Rest(f.ctx)
	if !ok || !ok2 || first == second || second.Of(b) || !second.Of(again) {
		f.Fatalf("rests %v %v, %v %v", first, ok, second, ok2)
	}
	if (sandbox.Rest{}).Of(b) {
		f.Fatal("a box that does not run rests in a connection")
	}
}
