package sandboxtest

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func ledgerCases() []testCase {
	return []testCase{
		{name: "Ledger/HZ4_ExecActsOnce", run: onceExec},
		{name: "Ledger/HZ4_ExecActsOnceAcrossConnections", run: onceAcross},
		{name: "Ledger/HZ4_WriteActsOnce", run: onceWrite},
		{name: "Ledger/HZ4_EditActsOnce", run: onceEdit},
		{name: "Ledger/HZ4_RemoveActsOnce", run: onceRemove},
		{name: "Ledger/HZ4_MkdirActsOnce", run: onceMkdir},
		{name: "Ledger/HZ4_RenameActsOnce", run: onceRename},
		{name: "Ledger/HZ4_FailureIsHeldToo", run: onceFailure},
		{name: "Ledger/HZ4_OtherArgumentsConflict", run: otherArguments},
		{name: "Ledger/HZ4_OtherOperationConflicts", run: otherOperation},
		{name: "Ledger/HZ4_ReleaseForgets", run: releaseForgets},
		{name: "Ledger/HZ4_RunningIsNotReleased", run: releaseRunning},
		{name: "Ledger/HZ4_NoIDNoAct", run: zeroCall},
		{name: "Ledger/HZ4_CallsAreListed", run: callsListed},
	}
}

func onceExec(f *fixture) {
	b := f.box("a")
	call := f.call()
	req := wire.ExecRequest{Shell: "echo x >> ran; echo out; exit 3"}
	first := f.execAs(b, call, req)
	second := f.execAs(b, call, req)
	f.equal("times it ran", f.read(b, "ran"), "x\n")
	if first.Code != 3 || second.Code != 3 || first.out != second.out || second.DurationMS != first.DurationMS {
		f.Fatalf("first %+v, second %+v", first, second)
	}
}

func onceAcross(f *fixture) {
	spec := f.up("a")
	call := f.call()
	req := wire.ExecRequest{Shell: "echo x >> ran; echo out"}
	for token := uint64(1); token <= 3; token++ {
		o := f.execAs(f.dial(spec.Box, token), call, req)
		f.equal("output", o.out, "out\n")
	}
	f.equal("times it ran", f.read(f.dial(spec.Box, 3), "ran"), "x\n")
}

func onceWrite(f *fixture) {
	b := f.box("a")
	call, req := f.call(), wire.WriteRequest{Path: "file"}
	first, err := b.Write(f.ctx, call, req, []byte("one"))
	f.must(err)
	f.sh(b, "echo changed > file")
	second, err := b.Write(f.ctx, call, req, []byte("one"))
	f.must(err)
	if !first.Created || second != first {
		f.Fatalf("first %+v, second %+v", first, second)
	}
	f.equal("file", f.read(b, "file"), "changed\n")
}

func onceEdit(f *fixture) {
	b := f.box("a")
	f.write(b, "file", "aaa")
	call, req := f.call(), wire.EditRequest{Path: "file", Old: "aaa", New: "aaaa"}
	first, err := b.Edit(f.ctx, call, req)
	f.must(err)
	second, err := b.Edit(f.ctx, call, req)
	f.must(err)
	if first.Replaced != 1 || second != first {
		f.Fatalf("first %+v, second %+v", first, second)
	}
	f.equal("file", f.read(b, "file"), "aaaa")
}

func onceRemove(f *fixture) {
	b := f.box("a")
	f.write(b, "file", "x")
	call, req := f.call(), wire.RemoveRequest{Path: "file"}
	f.must(b.Remove(f.ctx, call, req))
	f.write(b, "file", "new")
	f.must(b.Remove(f.ctx, call, req))
	f.equal("file", f.read(b, "file"), "new")
}

func onceMkdir(f *fixture) {
	b := f.box("a")
	call, req := f.call(), wire.MkdirRequest{Path: "some/dir"}
	f.must(b.Mkdir(f.ctx, call, req))
	f.sh(b, "rm -r some")
	f.must(b.Mkdir(f.ctx, call, req))
	_, err := b.Stat(f.ctx, wire.PathRequest{Path: "some"})
	f.kind(err, holdfast.KindNotFound)
}

func onceRename(f *fixture) {
	b := f.box("a")
	f.write(b, "from", "1")
	call, req := f.call(), wire.RenameRequest{From: "from", To: "to"}
	f.must(b.Rename(f.ctx, call, req))
	f.write(b, "from", "2")
	f.must(b.Rename(f.ctx, call, req))
	f.equal("to", f.read(b, "to"), "1")
	f.equal("from", f.read(b, "from"), "2")
}

// onceFailure tests that a failed call, too, is not run again: its stored outcome is returned.
func onceFailure(f *fixture) {
	b := f.box("a")
	call, req := f.call(), wire.RemoveRequest{Path: "file"}
	f.kind(b.Remove(f.ctx, call, req), holdfast.KindNotFound)
	f.write(b, "file", "x")
	f.kind(b.Remove(f.ctx, call, req), holdfast.KindNotFound)
	f.equal("file", f.read(b, "file"), "x")
}

func otherArguments(f *fixture) {
	b := f.box("a")
	call := f.call()
	f.execAs(b, call, wire.ExecRequest{Shell: "echo x >> ran"})
	_, err := b.Exec(f.ctx, call, wire.ExecRequest{Shell: "echo y >> ran"}, execNothing)
	f.kind(err, holdfast.KindConflict)
	write := f.call()
	_, err = b.Write(f.ctx, write, wire.WriteRequest{Path: "file"}, []byte("one"))
	f.must(err)
	_, err = b.Write(f.ctx, write, wire.WriteRequest{Path: "file"}, []byte("two"))
	f.kind(err, holdfast.KindConflict)
	f.equal("ran", f.read(b, "ran"), "x\n")
	f.equal("file", f.read(b, "file"), "one")
}

func otherOperation(f *fixture) {
	b := f.box("a")
	call := f.call()
	f.must(b.Mkdir(f.ctx, call, wire.MkdirRequest{Path: "dir"}))
	f.kind(b.Remove(f.ctx, call, wire.RemoveRequest{Path: "dir", Recursive: true}), holdfast.KindConflict)
	_, err := b.Stat(f.ctx, wire.PathRequest{Path: "dir"})
	f.must(err)
}

func releaseForgets(f *fixture) {
	b := f.box("a")
	call, req := f.call(), wire.ExecRequest{Shell: "echo x >> ran"}
	f.execAs(b, call, req)
	b.Release(call.ID, f.call().ID)
	f.eventually("the release", func() bool { return f.status(b, call) == "" })
	_, err := b.Exec(f.ctx, call, req, sandbox.ExecOptions{AttachOnly: true})
	f.kind(err, holdfast.KindNotFound)
}

func releaseRunning(f *fixture) {
	b := f.box("a")
	call := f.call()
	g := f.begin(b, call, wire.ExecRequest{Shell: "while [ ! -f go ]; do sleep 0.02; done"})
	f.await("the start", g.started)
	b.Release(call.ID)
	other := f.call()
	f.execAs(b, other, wire.ExecRequest{Shell: "true"})
	b.Release(other.ID)
	f.eventually("the release of the other", func() bool { return f.status(b, other) == "" })
	f.equal("status", string(f.status(b, call)), string(wire.CallRunning))
	f.write(b, "go", "")
	f.await("the end", g.done)
	f.must(g.err)
}

func zeroCall(f *fixture) {
	b := f.box("a")
	var none sandbox.Call
	_, err := b.Exec(f.ctx, none, wire.ExecRequest{Shell: "echo x >> ran"}, execNothing)
	f.kind(err, holdfast.KindInvalid)
	_, err = b.Write(f.ctx, none, wire.WriteRequest{Path: "ran"}, nil)
	f.kind(err, holdfast.KindInvalid)
	f.kind(b.Mkdir(f.ctx, none, wire.MkdirRequest{Path: "ran"}), holdfast.KindInvalid)
	_, err = b.Stat(f.ctx, wire.PathRequest{Path: "ran"})
	f.kind(err, holdfast.KindNotFound)
}

func callsListed(f *fixture) {
	b := f.box("a")
	exec, write := f.call(), f.call()
	f.execAs(b, exec, wire.ExecRequest{Shell: "true"})
	_, err := b.Write(f.ctx, write, wire.WriteRequest{Path: "file"}, []byte("x"))
	f.must(err)
	calls, err := b.Calls(f.ctx)
	f.must(err)
	got := map[holdfast.CallID]wire.Op{}
	for _, c := range calls {
		if c.Status != wire.CallFinished || c.Hash == "" {
			f.Errorf("the list of calls has a call that is not finished or has no hash: %+v", c)
		}
		got[c.Call] = c.Op
	}
	if len(got) != 2 || got[exec.ID] != wire.OpExec || got[write.ID] != wire.OpWrite {
		f.Fatalf("calls %+v", calls)
	}
}
