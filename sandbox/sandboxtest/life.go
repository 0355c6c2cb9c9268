package sandboxtest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

func lifeCases() []testCase {
	return []testCase{
		{name: "Probe/TellsTheTruth", run: probeTruth},
		{name: "Probe/LeavesNothing", run: probeLeaves},
		{name: "Ensure/Idempotent", run: ensureTwice},
		{name: "Ensure/ConcurrentStartsOne", run: ensureConcurrent},
		{name: "Ensure/MakesDirectories", run: ensureDirectories},
		{name: "Ensure/RefusesBadBoxID", run: ensureBadID},
		{name: "Ensure/EndsWithContext", run: ensureCanceled},
		{name: "Ensure/ManyBoxes", run: ensureMany},
		{name: "Connect/UnknownIsNotFound", run: connectUnknown},
		{name: "Connect/StoppedIsNotFound", run: connectStopped},
		{name: "Stop/Idempotent", run: stopTwice},
		{name: "Stop/EndsEverything", run: stopEndsAll},
		{name: "Stop/NextLifeKeepsFiles", run: stopKeepsFiles},
		{name: "Stop/ByBoxdEndsTheBox", run: boxdStop},
		{name: "Remove/ForgetsAndKeepsFiles", run: removeForgets},
		{name: "Remove/UnknownIsFine", run: removeUnknown},
		{name: "List/RunningAndStopped", run: listBoth},
		{name: "Killed/NextLifeIsNew", run: killedNewLife},
		{name: "Prewarm/ReadyBootsAreNoBoxes", needs: needPrewarmer, run: prewarm},
	}
}

func probeTruth(f *fixture) {
	p := f.d.Probe(f.ctx)
	if p.Driver != f.d.Name() || p.Driver == "" {
		f.Errorf("the result of Probe names the driver %q, but the name of the driver is %q", p.Driver, f.d.Name())
	}
	if !p.Usable {
		f.Fatalf("not usable: %s (%s)", p.Reason, p.Hint)
	}
	if p.Isolates != f.cfg.Isolates {
		f.Errorf("the result of Probe has Isolates %v, but the test expects %v", p.Isolates, f.cfg.Isolates)
	}
	seen := map[string]bool{}
	for _, c := range p.Capabilities {
		if c.Name == "" || c.Detail == "" {
			f.Errorf("the capability %+v in the result of Probe has no name or no detail", c)
		}
		if c.Required && !c.OK {
			f.Errorf("Probe reports the driver as usable, but it lacks the required capability %s: %s", c.Name, c.Detail)
		}
		if seen[c.Name] {
			f.Errorf("the result of Probe lists the capability %s twice", c.Name)
		}
		seen[c.Name] = true
	}
	// The Probe says that the driver is usable: check that a box starts and runs a command.
	f.sh(f.box("a"), "true")
}

func probeLeaves(f *fixture) {
	f.d.Probe(f.ctx)
	infos, err := f.d.List(f.ctx)
	f.must(err)
	if len(infos) != 0 {
		f.Fatalf("listed after a probe: %+v", infos)
	}
}

func ensureTwice(f *fixture) {
	spec := f.spec("a")
	first, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	boot := f.dial(spec.Box, 1).Boot()
	second, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	if !first.Running || !second.Running || first.PID != second.PID || !first.StartedAt.Equal(second.StartedAt) {
		f.Fatalf("first %+v, second %+v", first, second)
	}
	if first.Box != spec.Box || first.StartedAt.IsZero() {
		f.Fatalf("info %+v", first)
	}
	f.equal("boot", f.dial(spec.Box, 1).Boot(), boot)
	other := spec
	other.Limits.Pids = 99
	if again, err := f.d.Ensure(f.ctx, other); err != nil || first.Spec != spec.Hash() || again.Spec != first.Spec || other.Hash() == first.Spec {
		f.Fatalf("first %+v, again %+v, %v: the box was started with spec %s", first, again, err, spec.Hash())
	}
}

func ensureConcurrent(f *fixture) {
	spec := f.spec("a")
	const n = 8
	var wg sync.WaitGroup
	infos, errs := make([]sandbox.Info, n), make([]error, n)
	for i := range n {
		wg.Go(func() { infos[i], errs[i] = f.d.Ensure(f.ctx, spec) })
	}
	wg.Wait()
	for i := range n {
		f.must(errs[i])
		if infos[i].PID != infos[0].PID || !infos[i].StartedAt.Equal(infos[0].StartedAt) {
			f.Fatalf("two boxes: %+v and %+v", infos[0], infos[i])
		}
	}
	f.sh(f.dial(spec.Box, 1), "true")
}

func ensureDirectories(f *fixture) {
	spec := f.up("a")
	dirs := []string{"workspace", "home", "state"}
	if spec.Workspace != "" {
		dirs = dirs[1:]
	}
	for _, name := range dirs {
		info, err := os.Stat(filepath.Join(spec.Dir, name))
		if err != nil || !info.IsDir() {
			f.Errorf("Ensure did not make the directory %s of the box: %v", name, err)
		}
	}
	// Tools can make files in their workspace, home and temporary directory.
	b := f.dial(spec.Box, 1)
	f.sh(b, "echo hi > made && cat made && echo hi > $HOME/made && cat $HOME/made && echo hi > $TMPDIR/made && cat $TMPDIR/made")
}

func ensureBadID(f *fixture) {
	for _, id := range []holdfast.BoxID{"", "x", "w-../../etc", "s-nope", "w-UPPER"} {
		spec := f.cfg.Spec(f.T, f.d, "a")
		spec.Box = id
		_, err := f.d.Ensure(f.ctx, spec)
		f.kind(err, holdfast.KindInvalid)
	}
}

func ensureCanceled(f *fixture) {
	spec := f.spec("a")
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	if _, err := f.d.Ensure(ctx, spec); err == nil {
		f.Fatal("started with an ended context")
	}
	if f.running(spec.Box) {
		f.Fatal("a failed ensure left a running box")
	}
	f.sh(f.box("a"), "true")
}

func ensureMany(f *fixture) {
	names := []string{"a", "b", "c", "d"}
	boots := map[string]bool{}
	for _, n := range names {
		b := f.box(n)
		f.write(b, "who", n)
		boots[b.Boot()] = true
		defer func() { f.equal("file of its own", f.sh(b, "cat who"), n) }()
	}
	if len(boots) != len(names) {
		f.Fatalf("%d boots for %d boxes", len(boots), len(names))
	}
}

func connectUnknown(f *fixture) {
	_, err := f.d.Connect(f.ctx, f.cfg.Spec(f.T, f.d, "a").Box)
	f.kind(err, holdfast.KindNotFound)
}

func connectStopped(f *fixture) {
	spec := f.up("a")
	f.must(f.d.Stop(f.ctx, spec.Box))
	_, err := f.d.Connect(f.ctx, spec.Box)
	f.kind(err, holdfast.KindNotFound)
}

func stopTwice(f *fixture) {
	spec := f.spec("a")
	f.must(f.d.Stop(f.ctx, spec.Box))
	_, err := f.d.Ensure(f.ctx, spec)
	f.must(err)
	f.must(f.d.Stop(f.ctx, spec.Box))
	f.must(f.d.Stop(f.ctx, spec.Box))
	if f.running(spec.Box) {
		f.Fatal("it runs after a stop")
	}
}

// beat is a script that makes the file beat grow as long as its process lives.
const beat = "while true; do echo x >> beat; sleep 0.02; done"

func stopEndsAll(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	f.begin(b, f.call(), wire.ExecRequest{Shell: beat})
	f.sh(b, "setsid sh -c '"+beat+"' > /dev/null 2>&1 &")
	path := filepath.Join(workspaceOf(spec), "beat")
	f.eventually("a heartbeat", func() bool { return size(path) > 4 })
	f.must(f.d.Stop(f.ctx, spec.Box))
	f.await("the end of the pipe", b.Done())
	still(f, path)
}

// still fails the case if the file at path is still growing.
func still(f *fixture, path string) {
	f.Helper()
	before := size(path)
	polls := 0
	f.eventually("some time", func() bool { polls++; return polls > 40 })
	if after := size(path); after != before {
		f.Fatalf("somebody lives: the heartbeat grew from %d to %d", before, after)
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

func workspaceOf(spec sandbox.Spec) string {
	if spec.Workspace != "" {
		return spec.Workspace
	}
	return filepath.Join(spec.Dir, "workspace")
}

func stopKeepsFiles(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	f.sh(b, "echo kept > file && echo kept > $HOME/file && echo gone > $TMPDIR/file")
	boot := b.Boot()
	f.must(f.d.Stop(f.ctx, spec.Box))
	b = f.box("a")
	if b.Boot() == boot {
		f.Fatal("a new life has the boot of the former one")
	}
	f.equal("workspace and home", f.sh(b, "cat file $HOME/file"), "kept\nkept\n")
	if f.cfg.FixedPaths {
		f.equal("tmp", f.sh(b, "if [ -e $TMPDIR/file ]; then echo there; else echo gone; fi"), "gone\n")
	}
}

func boxdStop(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	g := f.begin(b, f.call(), wire.ExecRequest{Shell: "sleep 600"})
	f.await("the start", g.started)
	a, err := b.Stop(f.ctx, wire.StopRequest{GraceMS: 1000, Reason: "test"})
	f.must(err)
	if len(a.Processes) == 0 {
		f.Error("the stop names no process that ended with the box")
	}
	f.await("the end of the pipe", b.Done())
	f.eventually("the end of the box", func() bool { return !f.running(spec.Box) })
	_, err = f.d.Connect(f.ctx, spec.Box)
	f.kind(err, holdfast.KindNotFound)
	f.must(f.d.Stop(f.ctx, spec.Box))
}

func removeForgets(f *fixture) {
	spec := f.up("a")
	f.sh(f.dial(spec.Box, 1), "echo kept > file")
	f.must(f.d.Remove(f.ctx, spec.Box))
	f.must(f.d.Remove(f.ctx, spec.Box))
	if info, ok := f.info(f.d, spec.Box); ok {
		f.Fatalf("listed after its removal: %+v", info)
	}
	_, err := f.d.Connect(f.ctx, spec.Box)
	f.kind(err, holdfast.KindNotFound)
	if size(filepath.Join(workspaceOf(spec), "file")) != 5 {
		f.Fatal("the removal took the caller's files")
	}
}

func removeUnknown(f *fixture) {
	f.must(f.d.Remove(f.ctx, f.cfg.Spec(f.T, f.d, "a").Box))
}

func listBoth(f *fixture) {
	a, b := f.up("a"), f.up("b")
	f.must(f.d.Stop(f.ctx, b.Box))
	ia, ok := f.info(f.d, a.Box)
	if !ok || !ia.Running || ia.Frozen || ia.StartedAt.IsZero() || ia.Spec != a.Hash() {
		f.Fatalf("running box: %+v, %v", ia, ok)
	}
	ib, ok := f.info(f.d, b.Box)
	if !ok || ib.Running || ib.PID != 0 {
		f.Fatalf("stopped box: %+v, %v", ib, ok)
	}
}

func killedNewLife(f *fixture) {
	spec := f.up("a")
	b := f.dial(spec.Box, 1)
	call := f.call()
	f.execAs(b, call, wire.ExecRequest{Shell: "echo x >> ran"})
	boot := b.Boot()
	f.kill(spec.Box)
	f.await("the end of the pipe", b.Done())
	f.eventually("not_found", func() bool {
		_, err := f.d.Connect(f.ctx, spec.Box)
		return holdfast.IsKind(err, holdfast.KindNotFound)
	})
	// The listener is closed before the process has ended: wait for the process.
	f.eventually("a killed box is not listed as running", func() bool { return !f.running(spec.Box) })
	_, err := b.Stats(f.ctx)
	f.kind(err, holdfast.KindUnavailable)
	b = f.box("a")
	if b.Boot() == boot {
		f.Fatal("a new life has the boot of the former one")
	}
	f.equal("outcome of the former life", string(f.status(b, call)), "")
	f.equal("files", f.sh(b, "cat ran"), "x\n")
}

func needPrewarmer(_ Config, d sandbox.Driver) string {
	if _, ok := d.(sandbox.Prewarmer); !ok {
		return "the driver is no Prewarmer"
	}
	return ""
}

// prewarm tests that ready boots are not listed as boxes, become the boxes that they are reserved
// for, and can be ended, whether reserved or not.
func prewarm(f *fixture) {
	w := f.d.(sandbox.Prewarmer)
	f.must(w.Prewarm(f.ctx, 2))
	f.must(w.Prewarm(f.ctx, 2))
	infos, err := f.d.List(f.ctx)
	f.must(err)
	if len(infos) != 0 {
		f.Fatalf("listed: %+v", infos)
	}
	boots := map[string]bool{}
	for _, name := range []string{"a", "b", "c"} {
		spec := f.spec(name)
		kept, ok := w.Reserve(spec)
		if !ok && name != "c" {
			f.Fatalf("no boot for box %s", name)
		}
		again, twice := w.Reserve(spec)
		f.equal("reserved again "+name, fmt.Sprint(twice), fmt.Sprint(ok))
		f.equal("ids", fmt.Sprint(again.BoxdUID, again.ToolUID), fmt.Sprint(kept.BoxdUID, kept.ToolUID))
		if name == "a" {
			infos, err := f.d.List(f.ctx)
			f.must(err)
			f.equal("boxes while one is reserved", fmt.Sprint(len(infos)), "0")
		}
		_, err := f.d.Ensure(f.ctx, kept)
		f.must(err)
		b := f.dial(spec.Box, 1)
		f.write(b, "who", name)
		f.equal("file of its own", f.sh(b, "cat who"), name)
		boots[b.Boot()] = true
	}
	if len(boots) != 3 {
		f.Fatalf("boots %v", boots)
	}
	f.must(w.Prewarm(f.ctx, 1))
	unused, _ := w.Reserve(f.spec("unused"))
	f.must(f.d.Remove(f.ctx, unused.Box))
	f.must(w.Prewarm(f.ctx, 1))
	f.must(w.Prewarm(f.ctx, 0))
	f.sh(f.box("d"), "true")
}
