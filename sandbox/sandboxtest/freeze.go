package sandboxtest

import (
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func freezeCases() []testCase {
	all := []testCase{
		{name: "Freeze/HZ10_WorkStandsStill", run: freezeStill},
		{name: "Freeze/HZ10_BoxdAnswers", run: freezeBoxd},
		{name: "Freeze/HZ10_NextServerThaws", run: freezeAdopt},
		{name: "Freeze/HZ10_StopOfAFrozenBox", run: freezeStop},
		{name: "Freeze/Idempotent", run: freezeTwice},
		{name: "Freeze/UnknownIsNotFound", run: freezeUnknown},
	}
	for i := range all {
		all[i].needs = needFreezer
	}
	return all
}

// frozen starts a box with a process that writes a heartbeat, closes the gate and freezes the box.
func frozen(f *fixture) (spec sandbox.Spec, b *sandbox.Box, path string) {
	f.Helper()
	spec = f.up("a")
	b = f.dial(spec.Box, 1)
	f.begin(b, f.call(), wire.ExecRequest{Shell: beat})
	path = filepath.Join(workspaceOf(spec), "beat")
	f.eventually("a heartbeat", func() bool { return size(path) > 2 })
	f.must(b.Gate(f.ctx, true))
	f.must(f.freezer().Freeze(f.ctx, spec.Box))
	return spec, b, path
}

func (f *fixture) freezer() sandbox.Freezer { return f.d.(sandbox.Freezer) }

func freezeStill(f *fixture) {
	spec, b, path := frozen(f)
	still(f, path)
	info, _ := f.info(f.d, spec.Box)
	if !info.Frozen || !info.Running {
		f.Fatalf("info %+v", info)
	}
	f.must(f.freezer().Thaw(f.ctx, spec.Box))
	f.must(b.Gate(f.ctx, false))
	before := size(path)
	f.eventually("a heartbeat after the thaw", func() bool { return size(path) > before })
	f.sh(b, "true")
}

// freezeBoxd tests that boxd itself is not frozen: it answers, also on a new connection.
func freezeBoxd(f *fixture) {
	spec, b, _ := frozen(f)
	_, err := b.Stats(f.ctx)
	f.must(err)
	again := f.dial(spec.Box, 1)
	if !again.Welcome().Gated {
		f.Fatal("the welcome does not tell of the closed gate")
	}
	if list, err := again.Processes(f.ctx); err != nil || len(list) == 0 {
		f.Fatalf("processes of a frozen box: %+v, %v", list, err)
	}
	f.must(f.freezer().Thaw(f.ctx, spec.Box))
	f.must(again.Gate(f.ctx, false))
	f.sh(again, "true")
}

// freezeAdopt tests the case that a server dies while the box is frozen: the next server detects
// this, thaws the box, and only then sends its hello.
func freezeAdopt(f *fixture) {
	spec, _, path := frozen(f)
	again := f.cfg.Again(f.T, f.d)
	info, ok := f.info(again, spec.Box)
	if !ok || !info.Running || !info.Frozen {
		f.Fatalf("the next server sees %+v, %v", info, ok)
	}
	f.must(again.(sandbox.Freezer).Thaw(f.ctx, spec.Box))
	b, err := f.hello(again, spec.Box, 2)
	f.must(err)
	if !b.Welcome().Gated {
		f.Fatal("the gate did not stay closed")
	}
	f.must(b.Gate(f.ctx, false))
	before := size(path)
	f.eventually("a heartbeat", func() bool { return size(path) > before })
	f.sh(b, "true")
	info, _ = f.info(again, spec.Box)
	if info.Frozen {
		f.Fatal("still listed as frozen")
	}
}

func freezeStop(f *fixture) {
	spec, b, path := frozen(f)
	f.must(f.d.Stop(f.ctx, spec.Box))
	f.await("the end of the pipe", b.Done())
	if f.running(spec.Box) {
		f.Fatal("it runs")
	}
	still(f, path)
	f.sh(f.box("a"), "true")
}

func freezeTwice(f *fixture) {
	spec, b, path := frozen(f)
	f.must(f.freezer().Freeze(f.ctx, spec.Box))
	still(f, path)
	f.must(f.freezer().Thaw(f.ctx, spec.Box))
	f.must(f.freezer().Thaw(f.ctx, spec.Box))
	f.must(b.Gate(f.ctx, false))
	f.sh(b, "true")
}

func freezeUnknown(f *fixture) {
	id := f.cfg.Spec(f.T, f.d, "a").Box
	f.kind(f.freezer().Freeze(f.ctx, id), holdfast.KindNotFound)
	f.kind(f.freezer().Thaw(f.ctx, id), holdfast.KindNotFound)
}
