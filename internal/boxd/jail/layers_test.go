//go:build linux

package jail

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// TestLayersFollowTheABI: layers that a kernel would enforce only in part are refused.
func TestLayersFollowTheABI(t *testing.T) {
	read, write := []wire.Layer{{Read: []string{"/r"}}}, []wire.Layer{{Read: []string{"/r"}}, {Write: []string{}}}
	for _, c := range []struct {
		abi                          int
		rootRead, rootWrite, userAny bool
	}{
		{0, false, false, false},
		{1, false, false, false},
		{2, true, false, false},
		{3, true, true, false},
		{5, true, true, false},
		{6, true, true, true},
		{9, true, true, true},
	} {
		s := layerSets{abi: c.abi, base: 7}
		if c.abi == 0 {
			s.base = -1
		}
		for _, x := range []struct {
			user   bool
			layers []wire.Layer
			held   bool
		}{{false, read, c.rootRead}, {false, write, c.rootWrite}, {true, read, c.userAny}, {true, write, c.userAny}} {
			err := s.held(x.user, x.layers)
			if (err == nil) != x.held {
				t.Errorf("abi %d, ordinary user %v, %+v: %v", c.abi, x.user, x.layers, err)
			}
			if err != nil && (!holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(holdfast.HintOf(err), "Linux 6.12")) {
				t.Errorf("%v of kind %s, hint %q", err, holdfast.KindOf(err), holdfast.HintOf(err))
			}
		}
	}
}

// TestNoSetWithoutLandlock: if nothing enforces a set, its command is refused; commands
// without layers still run.
func TestNoSetWithoutLandlock(t *testing.T) {
	f := confined(t, wire.Jail{ToolUID: 61_234}, none())
	spec := boxd.StartSpec{Path: "/bin/true", Dir: "/", Layers: []wire.Layer{{Write: []string{"/tmp"}}}}
	if _, _, err := start(t, f, spec); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("%v", err)
	}
	for _, layers := range [][]wire.Layer{nil, {}, {{}}, {{Denied: []string{"/x"}}, {}}} {
		spec.Layers = layers
		if _, code, err := start(t, f, spec); err != nil || code != 0 {
			t.Errorf("%+v: %v %d", layers, err, code)
		}
	}
}

// TestHalfConfinedThreadEnds: a thread that failed to set a layer forks nothing and
// ends; the set gets a new thread at the next command.
func TestHalfConfinedThreadEnds(t *testing.T) {
	abi, err := landlockABI()
	if err != nil {
		t.Skipf("SKIPPED LOUDLY: no Landlock: %v", err)
	}
	null, err := os.Open(os.DevNull) // no rule set
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, spare := range []bool{false, true} {
		f := confined(t, wire.Jail{ToolUID: 61_234}, none())
		f.sets.abi, f.sets.base = abi, int(null.Fd())
		if spare {
			th := newForkThread()
			begun := make(chan error, 1)
			go th.run(func() error { return nil }, begun)
			<-begun
			f.sets.spare = []*forkThread{th}
		}
		before := hardened(t)
		_, _, err = start(t, f, boxd.StartSpec{Path: "/bin/true", Dir: "/", Layers: []wire.Layer{{Write: []string{"/tmp"}}}})
		if !holdfast.IsKind(err, holdfast.KindUnavailable) || len(f.sets.threads) != 0 || len(f.sets.spare) != 0 {
			t.Errorf("spare %v: %v, %d sets", spare, err, len(f.sets.threads))
		}
		for until := time.Now().Add(10 * time.Second); hardened(t) > before; {
			if time.Now().After(until) {
				t.Fatalf("spare %v: %d hardened threads, %d before", spare, hardened(t), before)
			}
		}
	}
}

// hardened counts the threads of this process that have a filter.
func hardened(t *testing.T) int {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/status")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && field(string(b), "Seccomp") == "2" {
			n++
		}
	}
	return n
}

// TestLeavesOfSets: each thread enters the leaves by itself, and a closing gate waits
// for all of them to leave.
func TestLeavesOfSets(t *testing.T) {
	if _, err := landlockABI(); err != nil {
		t.Skipf("SKIPPED LOUDLY: no Landlock: %v", err)
	}
	dir := t.TempDir()
	open := func(name string) int {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return int(f.Fd())
	}
	abi, _ := landlockABI()
	base, err := newRuleset(abi, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := confined(t, wire.Jail{ToolUID: 61_234, WorkTasks: []int{open("work")}, BoxdTasks: []int{open("boxd")}}, &rulesets{tools: base, files: -1, abi: abi})
	run := func(layers ...wire.Layer) {
		t.Helper()
		if _, code, err := start(t, f, boxd.StartSpec{Path: "/bin/true", Dir: "/", Layers: layers}); err != nil || code != 0 {
			t.Fatal(err, code)
		}
	}
	wrote := func(when, work, own string) {
		t.Helper()
		for name, want := range map[string]string{"work": work, "boxd": own} {
			if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
				t.Errorf("%s: %s was written %q, want %q (%v)", when, name, b, want, err)
			}
		}
	}
	one, two := wire.Layer{Write: []string{"/tmp"}}, wire.Layer{Write: []string{"/var"}}
	run()
	run(one)
	run(two)
	run(one)
	wrote("after forks on three threads", "000", "")
	f.Gate(true)
	wrote("with the gate closed", "000", "000")
	f.Gate(false)
	run(two)
	wrote("after one more", "0000", "000")
}
