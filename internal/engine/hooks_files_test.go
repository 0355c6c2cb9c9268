package engine_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// filesOf are the files that an ear was told of, with the tool and how they differ.
func (e *ear) filesOf() (out []string) {
	for _, in := range e.of(hook.FileChanged) {
		out = append(out, strings.Join(strings.Fields(in.ToolName+" "+in.Trigger+" "+in.FilePath), " "))
	}
	return out
}

// TestSDKH0_FileChangedForBash: fileChanged fires for each file that a command made,
// changed or removed, also when the command failed, after the hooks for its outcome;
// what a command only reads fires nothing.
func TestSDKH0_FileChangedForBash(t *testing.T) {
	e := &ear{}
	m := listening(t, e, nil, hook.PostToolUse, hook.PostToolUseFailure, hook.FileChanged)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(
		write("old", "x"), bash("cat old; true"), bash("mkdir -p d; echo y > d/new; echo z >> old"), bash("rm old; exit 3"), say("done")))
	want := []string{"Write old", "Bash created /workspace/d/new", "Bash changed /workspace/old", "Bash removed /workspace/old"}
	if got := e.filesOf(); !slices.Equal(got, want) {
		t.Errorf("told %q\nwant %q\n%s", got, want, m.dump(id))
	}
	var order []string
	for _, in := range e.all() {
		order = append(order, string(in.Event))
	}
	if want := "postToolUse fileChanged postToolUse postToolUse fileChanged fileChanged postToolUseFailure fileChanged"; strings.Join(order, " ") != want {
		t.Errorf("order %q", order)
	}
	for _, in := range e.of(hook.FileChanged) {
		if in.Session != id || in.ToolUseID == "" || in.Cwd != "/workspace" {
			t.Errorf("told %+v", in)
		}
	}
	if n := datas[holdfast.Notice](m.world, id, holdfast.EventNotice); len(n) != 0 {
		t.Errorf("notices %+v", n)
	}
}

// TestFileChangedOnlyWhereAHookWaits: a hook for other tools costs Bash nothing, and
// hears nothing of it.
func TestFileChangedOnlyWhereAHookWaits(t *testing.T) {
	e := &ear{}
	m := listening(t, e, func(m *machine) {
		set := m.set
		m.set = func(c *engine.Config) {
			set(c)
			r := new(hook.Registry)
			if _, err := r.Register(hook.Definition{Event: hook.FileChanged, Matcher: "Write", Func: e.hear}); err != nil {
				t.Fatal(err)
			}
			c.Hooks.Registry = r
		}
	})
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("echo x > f"), write("g", "y"), say("done")))
	if got := e.filesOf(); !slices.Equal(got, []string{"Write g"}) {
		t.Errorf("told %q", got)
	}
}

// TestFileChangedIsBounded: of more files than hooks are told one by one, and of a
// workspace that is too large to list, a notice says so.
func TestFileChangedIsBounded(t *testing.T) {
	e := &ear{}
	m := listening(t, e, nil, hook.FileChanged)
	id := m.create(holdfast.CreateSession{})
	most := wire.MaxChanges
	m.run(id, script(bash(fmt.Sprintf("for i in $(seq %d); do echo x > f$i; done", most+5)), say("done")))
	if got := e.filesOf(); len(got) != most {
		t.Errorf("%d files were told", len(got))
	}
	n := datas[holdfast.Notice](m.world, id, holdfast.EventNotice)
	if len(n) != 1 || n[0].Code != holdfast.NoticeFilesUntold || !strings.Contains(n[0].Text, "not told of 5 changed files") {
		t.Errorf("notices %+v", n)
	}
}

// TestFileChangedAcrossARestart: a server that comes back to a command that ran on, or
// that had ended without being recorded, tells each file that it changed, once.
func TestFileChangedAcrossARestart(t *testing.T) {
	for _, point := range []string{"running", "finished-uncommitted"} {
		t.Run(point, func(t *testing.T) {
			e := &ear{}
			m := listening(t, e, nil, hook.FileChanged)
			id := m.create(holdfast.CreateSession{})
			entered, hold, stopped := make(chan struct{}), make(chan struct{}), make(chan struct{})
			m.when(point, func() { close(entered); <-hold })
			turn := m.send(id, script(bash("echo out; echo x > made; until [ -f go ]; do sleep 0.01; done"), say("done")))
			m.appears(id, "made")
			if point != "running" {
				m.put(id, "go", "")
			}
			m.reached(entered)
			go func() { defer close(stopped); m.stop(false) }()
			until(t, func() bool { return m.live[holdfast.Untrusted].Live(m.box(id)) == nil })
			close(hold)
			<-stopped
			m.when("", nil)
			m.put(id, "go", "")
			m.start()
			if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
				t.Fatalf("turn = %+v\n%s", got, m.dump(id))
			}
			if got := e.filesOf(); !slices.Contains(got, "Bash created /workspace/made") || len(slices.Compact(slices.Sorted(slices.Values(got)))) != len(got) {
				t.Errorf("told %q\n%s", got, m.dump(id))
			}
		})
	}
}
