package engine_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
)

// TestHZ4_HookInTheBoxRunsOnce: a server that dies between a hook and its verdict
// fetches what the hook said; one whose verdict is recorded does not ask again.
func TestHZ4_HookInTheBoxRunsOnce(t *testing.T) {
	for _, point := range []string{"hooked", "intent", "finished-uncommitted"} {
		t.Run(point, func(t *testing.T) {
			cfg := boxed(hook.PreToolUse, `cat > /dev/null; echo line >> hooked; echo '{"additionalContext": "seen", "updatedInput": {"command": "echo mine >> lines"}}'`)
			cfg[hook.PostToolUse] = []hook.Group{{Hooks: []hook.Entry{{Type: "command", Command: "cat > /dev/null; echo line >> after"}}}}
			m := newMachine(t, func(m *machine) { m.agents = hooked{cfg: cfg} })
			id := m.create(holdfast.CreateSession{})
			hold, entered := make(chan struct{}), make(chan struct{})
			m.when(point, func() { close(entered); <-hold })
			turn := m.send(id, script(bash("echo theirs >> lines"), say("ok")))
			m.reached(entered)
			stopped := make(chan struct{})
			go func() { defer close(stopped); m.stop(false) }()
			until(t, func() bool { return m.live[holdfast.Untrusted].Live(m.box(id)) == nil })
			close(hold)
			<-stopped
			m.when("", nil)
			m.start()
			if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
				t.Fatalf("turn = %+v\n%s", got, m.dump(id))
			}
			if n := m.lines(id, "hooked"); n != 1 {
				t.Errorf("the hook ran %d times\n%s", n, m.dump(id))
			}
			if n := m.lines(id, "after"); n != 1 {
				t.Errorf("the hook after the tool ran %d times\n%s", n, m.dump(id))
			}
			if got := m.file(id, "lines"); got != "mine\n" {
				t.Errorf("lines are %q", got)
			}
			if n := len(datas[holdfast.HookRan](m.world, id, holdfast.EventHookRan)); n != 2 {
				t.Errorf("%d runs are recorded\n%s", n, m.dump(id))
			}
			m.sound(id)
		})
	}
}

// TestHookInTheBoxIsLetGoOf: what a hook left in the box is released with its
// record, and a box that dies under a hook is a failure of the hook.
func TestHookInTheBoxIsLetGoOf(t *testing.T) {
	m := newMachine(t, func(m *machine) {
		m.agents = hooked{cfg: boxed(hook.PreToolUse, "cat > /dev/null; [ -f slow ] && { echo > begun; sleep 1000; }; true")}
	})
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("true"), say("a")))
	until(t, func() bool {
		calls, err := m.live[holdfast.Untrusted].Live(m.box(id)).Calls(t.Context())
		return err == nil && len(calls) == 0
	})
	m.put(id, "slow", "")
	turn := m.send(id, script(bash("echo line >> lines"), say("b")))
	m.appears(id, "begun")
	m.untrusted.KillBox(m.box(id))
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	ran := datas[holdfast.HookRan](m.world, id, holdfast.EventHookRan)
	if last := ran[len(ran)-1]; last.Outcome != hook.OutcomeFailed || !strings.Contains(last.Reason, "sandbox ended") {
		t.Errorf("ran %+v", ran)
	}
	if n := m.lines(id, "lines"); n != 1 {
		t.Errorf("a hook that does not fail closed kept the tool from running: %d", n)
	}
}

// TestSDKH20_LongPromptIntoTheBox: a flood is cut off, and so is a hook that hangs.
func TestSDKH20_LongPromptIntoTheBox(t *testing.T) {
	big := strings.Repeat("x", 10<<20)
	cfg := hook.Config{hook.Setup: {{Hooks: []hook.Entry{
		{Type: "command", Command: "yes"},
		{Type: "command", Command: "sleep 1000 & echo $! > pid; wait", Timeout: 300},
	}}}}
	cfg[hook.UserPromptSubmit] = []hook.Group{{Hooks: []hook.Entry{{Type: "command", Command: "wc -c > size"}}}}
	m := newMachine(t, func(m *machine) { m.agents = hooked{cfg: cfg} })
	id := m.create(holdfast.CreateSession{})
	var ran []holdfast.HookRan
	until(t, func() bool {
		ran = datas[holdfast.HookRan](m.world, id, holdfast.EventHookRan)
		return len(ran) == 2
	})
	if ran[0].Outcome != hook.OutcomeFailed || !strings.Contains(ran[0].Reason, "bytes") {
		t.Errorf("a flood: %+v", ran[0])
	}
	if ran[1].Outcome != hook.OutcomeTimeout {
		t.Errorf("a hook that hangs: %+v", ran[1])
	}
	if len(big) > holdfast.MaxText {
		big = big[:holdfast.MaxText]
	}
	m.run(id, big)
	if got := strings.TrimSpace(m.file(id, "size")); len(got) < 6 {
		t.Errorf("the hook read %q bytes of a prompt of %d", got, len(big))
	}
}
