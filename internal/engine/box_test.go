package engine_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
)

func TestToolTurnEndToEnd(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	got := m.run(id, script(bash("echo hello > f; cat f"), step{"tool": "Read", "input": step{"file_path": "f"}}, say("all done")))
	if got.Status != holdfast.TurnCompleted || got.Result != "all done" {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	want := []holdfast.EventType{
		"session.created", "message.user", "turn.started", "message.assistant", "tool.requested", "tool.allowed", "box.started",
		"tool.started", "tool.finished", "message.assistant", "tool.requested", "tool.allowed", "tool.finished",
		"message.assistant", "turn.completed",
	}
	types := m.types(id)
	// The box comes up at its own time, somewhere before the intent.
	at := slices.Index(types, "box.started")
	if at < 0 || at > slices.Index(types, "tool.started") {
		t.Errorf("box.started is number %d of %v", at+1, types)
	}
	types = slices.DeleteFunc(types, func(x holdfast.EventType) bool { return x == "box.started" })
	want = slices.DeleteFunc(want, func(x holdfast.EventType) bool { return x == "box.started" })
	if d := cmp.Diff(want, types); d != "" {
		t.Error(d)
	}
	for _, f := range datas[holdfast.ToolFinished](m.world, id, "tool.finished") {
		if f.Outcome != holdfast.ExitOK || !strings.Contains(f.Content, "hello") {
			t.Errorf("tool.finished = %+v", f)
		}
	}
	if got := m.file(id, "f"); got != "hello\n" {
		t.Errorf("the file on the host is %q", got)
	}
	m.sound(id)
}

// TestHZ4_BoxKilledInMidTool: the outcome is unknown, said once, shown to the
// model, and the turn goes on in a new box.
//
// WS-R36, WS-R54, WS-R62, WS-P7, WS-N5.
func TestHZ4_BoxKilledInMidTool(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash("echo line >> lines; echo begun > begun; sleep 3600"), bash("cat lines"), say("went on")))
	m.appears(id, "begun")
	if !m.untrusted.KillBox(m.box(id)) {
		t.Fatal("no box to kill")
	}
	got := m.ended(id, turn.ID)
	if got.Status != holdfast.TurnCompleted || got.Result != "went on" {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	started := datas[holdfast.ToolStarted](m.world, id, "tool.started")
	unknown := datas[holdfast.ToolUnknown](m.world, id, "tool.unknown")
	if len(started) != 2 || len(unknown) != 1 || unknown[0].Call != started[0].Call {
		t.Errorf("started %+v, unknown %+v", started, unknown)
	}
	if started[0].Boot == started[1].Boot {
		t.Error("the second call names the dead life of the box")
	}
	lost := datas[holdfast.BoxEnded](m.world, id, "box.lost")
	if len(lost) != 1 || lost[0].Boot != started[0].Boot {
		t.Errorf("box.lost = %+v, the call's box was %s", lost, started[0].Boot)
	}
	if n := m.lines(id, "lines"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	m.sound(id)
}

// TestASH16_BoxKilledBeforeItsTool: a call whose intent is in the log and that never
// left, because its box had died by then, runs once, in the next box.
func TestASH16_BoxKilledBeforeItsTool(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("true"), say("warm")))
	killed := m.when("intent", func() {
		m.untrusted.KillBox(m.box(id))
		until(t, func() bool { return len(datas[holdfast.BoxEnded](m.world, id, "box.lost")) == 1 })
	})
	got := m.run(id, script(bash("echo line >> lines"), say("over")))
	m.reached(killed)
	if got.Status != holdfast.TurnCompleted {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	if n := len(datas[holdfast.ToolUnknown](m.world, id, "tool.unknown")); n != 0 {
		t.Errorf("%d unknown outcomes\n%s", n, m.dump(id))
	}
	if n := m.lines(id, "lines"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	if got := m.run(id, script(bash("echo line >> lines"), say("again"))); got.Status != holdfast.TurnCompleted || m.lines(id, "lines") != 2 {
		t.Errorf("next turn = %+v, %d lines", got, m.lines(id, "lines"))
	}
	m.sound(id)
}

func TestDroppedConnectionIsMadeAgain(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash(gated), say("ok")))
	m.appears(id, "begun")
	for range 3 {
		m.untrusted.DropConnection(m.box(id))
	}
	m.put(id, "go", "")
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	if n := m.lines(id, "lines"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	finished := datas[holdfast.ToolFinished](m.world, id, "tool.finished")
	if len(finished) != 1 || finished[0].Outcome != holdfast.ExitOK || !strings.Contains(finished[0].Content, "done") {
		t.Errorf("tool.finished = %+v", finished)
	}
	for _, typ := range []holdfast.EventType{"tool.unknown", "box.lost"} {
		if slices.Contains(m.types(id), typ) {
			t.Errorf("a broken pipe left %s in the log", typ)
		}
	}
}

// TestRestartInMidTool stops the server while a tool runs; the next one fetches
// the outcome of the call that ran on, or waits for it.
func TestRestartInMidTool(t *testing.T) {
	for name, opens := range map[string]string{"ended while nobody was there": "before", "still running": "after"} {
		t.Run(name, func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.create(holdfast.CreateSession{})
			turn := m.send(id, script(bash(gated), say("ok")))
			m.appears(id, "begun")
			m.stop(false)
			if opens == "before" {
				m.put(id, "go", "")
				m.appears(id, "lines")
			}
			m.start()
			if opens == "after" {
				m.put(id, "go", "")
			}
			if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "ok" {
				t.Fatalf("turn = %+v\n%s", got, m.dump(id))
			}
			if n := m.lines(id, "lines"); n != 1 {
				t.Errorf("the command ran %d times", n)
			}
			finished := datas[holdfast.ToolFinished](m.world, id, "tool.finished")
			if len(finished) != 1 || finished[0].Outcome != holdfast.ExitOK || !strings.Contains(finished[0].Content, "done") {
				t.Errorf("tool.finished = %+v", finished)
			}
			m.sound(id)
			if slices.Contains(m.types(id), "tool.unknown") {
				t.Errorf("a tool that ran on became unknown\n%s", m.dump(id))
			}
		})
	}
}

// TestRestartAtEachPoint stops the server when the turn has just passed a kill
// point: the command runs once whatever that point is.
func TestRestartAtEachPoint(t *testing.T) {
	for _, point := range []string{"intent", "spawned", "running", "finished-uncommitted", "committed-unreleased"} {
		t.Run(point, func(t *testing.T) {
			m := newMachine(t, nil)
			id := m.create(holdfast.CreateSession{})
			m.run(id, script(bash("true"), say("warm")))
			hold := make(chan struct{})
			entered := make(chan struct{})
			m.when(point, func() { close(entered); <-hold })
			turn := m.send(id, script(bash("echo line >> lines; echo out; sleep 0.02"), say("ok")))
			m.reached(entered)
			// The turn stands still at the point while the server is being stopped,
			// and is let go of only after the pipes are closed.
			stopped := make(chan struct{})
			go func() { defer close(stopped); m.stop(false) }()
			until(t, func() bool { return m.live[holdfast.Untrusted].Live(m.box(id)) == nil })
			close(hold)
			<-stopped
			m.when("", nil)
			m.start()
			if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "ok" {
				t.Fatalf("turn = %+v\n%s", got, m.dump(id))
			}
			if n := m.lines(id, "lines"); n != 1 {
				t.Errorf("the command ran %d times\n%s", n, m.dump(id))
			}
			if slices.Contains(m.types(id), "tool.unknown") {
				t.Errorf("the box lived, and yet an outcome is unknown\n%s", m.dump(id))
			}
			m.sound(id)
		})
	}
}

// TestServerAndBoxDieTogether: nothing holds the outcome any more.
func TestServerAndBoxDieTogether(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash(gated), say("ok")))
	m.appears(id, "begun")
	m.stop(false)
	m.untrusted.KillBox(m.box(id))
	m.start()
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	if n := len(datas[holdfast.ToolUnknown](m.world, id, "tool.unknown")); n != 1 {
		t.Errorf("%d unknown outcomes\n%s", n, m.dump(id))
	}
	if n := m.lines(id, "lines"); n != 0 {
		t.Errorf("%d lines", n)
	}
	m.sound(id)
}

// TestStartThatStopsBoxes: with on_start stop nothing is adopted.
//
// WS-R61.
func TestStartThatStopsBoxes(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("true"), say("ok")))
	m.stop(false)
	m.stopBoxes = true
	m.start()
	if ended := datas[holdfast.BoxEnded](m.world, id, "box.stopped"); len(ended) != 1 {
		t.Errorf("box.stopped = %+v", ended)
	}
	list, err := m.Containers(t.Context())
	if err != nil || slices.ContainsFunc(list, func(c holdfast.Container) bool { return c.State != holdfast.BoxStopped }) {
		t.Errorf("containers = %+v, %v", list, err)
	}
}

func TestDriverUnavailableSetsTheSessionToError(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.untrusted.FailEnsure(100, holdfast.Errorf(holdfast.KindUnavailable, "mem", "user namespaces are switched off").WithHint("switch them on"))
	turn := m.send(id, script(bash("echo line >> lines"), say("ok")))
	queued := m.send(id, "waits")
	got := m.ended(id, turn.ID)
	if got.Status != holdfast.TurnFailed || !strings.Contains(got.Error, "switched off") {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	s, err := m.Session(t.Context(), id)
	if err != nil || s.Status != holdfast.StatusError || !strings.Contains(s.Error, "switched off") {
		t.Errorf("session = %+v, %v", s, err)
	}
	f := datas[holdfast.Failure](m.world, id, "session.error")
	if len(f) != 1 || f[0].Kind != holdfast.KindUnavailable || f[0].Hint != "switch them on" {
		t.Errorf("session.error = %+v", f)
	}
	if slices.Contains(m.types(id), "tool.started") {
		t.Error("an intent was recorded for a box that never was")
	}
	m.untrusted.FailEnsure(0, nil)
	// The next message resumes; what waited before it still comes first.
	next := m.send(id, script(bash("echo line >> lines"), say("up again")))
	if got := m.ended(id, next.ID); got.Status != holdfast.TurnCompleted || m.lines(id, "lines") != 1 {
		t.Errorf("next = %+v, %d lines\n%s", got, m.lines(id, "lines"), m.dump(id))
	}
	if got := m.ended(id, queued.ID); got.Status != holdfast.TurnCompleted || got.EndedAt.After(*m.ended(id, next.ID).StartedAt) {
		t.Errorf("the waiting turn %+v did not come before the next", got)
	}
	if s, _ := m.Session(t.Context(), id); s.Status != holdfast.StatusActive || s.Error != "" {
		t.Errorf("session = %+v", s)
	}
	m.sound(id)
}

// TestUntrustedNeverRunsElsewhere: without its driver a session gets an error,
// not another driver's box.
//
// WS-R70.
func TestUntrustedNeverRunsElsewhere(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.without = holdfast.Untrusted })
	id := m.create(holdfast.CreateSession{})
	got := m.run(id, script(bash("echo line >> lines"), say("ok")))
	if got.Status != holdfast.TurnFailed || !strings.Contains(got.Error, "no driver of this server runs untrusted sessions") {
		t.Errorf("turn = %+v", got)
	}
	_, err := m.Exec(t.Context(), id, holdfast.ExecRequest{Command: "true"}, nil, nil)
	m.wantKind(err, holdfast.KindUnavailable)
	if list, err := m.Containers(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("containers = %+v, %v", list, err)
	}
}

// TestASH28_FullIsNoSessionError: with all places taken by running boxes a message is
// refused and nothing of it is recorded, not even its key; nothing is wrong with its
// session. The box that is evicted for it later goes on with its files in its turn.
func TestASH28_FullIsNoSessionError(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.pool = func(c *pool.Config) { c.MaxBoxes = 1 } })
	a, b := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{})
	first := m.send(a, script(bash(gated), say("ok")))
	m.appears(a, "begun")
	before := m.types(b)
	full := func(err error) {
		t.Helper()
		m.wantKind(err, holdfast.KindUnavailable)
		if !errors.Is(err, holdfast.ErrFull) || holdfast.HintOf(err) == "" {
			t.Errorf("error %v has hint %q", err, holdfast.HintOf(err))
		}
	}
	msg := holdfast.SendMessage{Text: script(bash("echo line >> lines"), say("ok")), Key: "k"}
	_, err := m.Send(t.Context(), b, msg)
	full(err)
	if _, err := m.Pause(t.Context(), b, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	before = append(before, "session.paused")
	_, err = m.Send(t.Context(), b, msg)
	full(err)
	if got := m.types(b); !slices.Equal(got, before) {
		t.Errorf("recorded: %v, not %v", got, before)
	}
	if turns, err := m.Turns(t.Context(), b, 0, 10); err != nil || len(turns) != 0 {
		t.Errorf("turns = %+v, %v", turns, err)
	}
	// A session whose box has its place still accepts messages.
	if got := m.send(a, "and now?"); got.Status != holdfast.TurnQueued {
		t.Errorf("turn = %+v", got)
	}
	_, err = m.Exec(t.Context(), b, holdfast.ExecRequest{Command: "true"}, nil, nil)
	full(err)
	if s, _ := m.Session(t.Context(), b); s.Status == holdfast.StatusError {
		t.Errorf("the session is %s: %s", s.Status, s.Error)
	}
	m.put(a, "go", "")
	m.ended(a, first.ID)
	// Idle now: evicted for the next.
	var sent holdfast.Turn
	until(t, func() bool {
		got, err := m.Send(t.Context(), b, msg)
		sent = got.Turn
		return err == nil
	})
	if again := m.sendAs(b, msg); again.ID != sent.ID {
		t.Errorf("the key gave turn %s, then %s", sent.ID, again.ID)
	}
	if got := m.ended(b, sent.ID); got.Status != holdfast.TurnCompleted || m.lines(b, "lines") != 1 {
		t.Errorf("turn = %+v, %d lines", got, m.lines(b, "lines"))
	}
	if !slices.Contains(m.types(a), "box.stopped") {
		t.Errorf("no box.stopped in %v", m.types(a))
	}
	if got := m.run(a, "and then?"); got.Status != holdfast.TurnCompleted || !strings.HasPrefix(got.Result, "You have sent 3 messages.") {
		t.Errorf("the evicted session: %+v", got)
	}
	if got := m.exec(a, "test -e begun && echo kept"); string(got.Stdout) != "kept\n" {
		t.Errorf("its files: %+v", got)
	}
}

// TestASH28_AnEndedTurnHasNoPlace: a client that reads the end of a turn can at once start a turn of another session, even
// if only one box may run.
func TestASH28_AnEndedTurnHasNoPlace(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.pool = func(c *pool.Config) { c.MaxBoxes = 1 } })
	a, b := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{})
	sent := make(chan error, 1)
	m.whenCommitted(holdfast.EventTurnCompleted, func() {
		_, err := m.Send(t.Context(), b, holdfast.SendMessage{Text: script(bash("true"), say("ok"))})
		sent <- err
	})
	m.run(a, script(bash("true"), say("ok")))
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return slices.Contains(m.types(b), "turn.completed") })
}

// TestASH28_AcceptedTurnsWaitForAPlace: the places are taken after the message was
// accepted. Its turn waits, visibly, and runs once when there is a place.
func TestASH28_AcceptedTurnsWaitForAPlace(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.pool = func(c *pool.Config) { c.MaxBoxes = 1 } })
	a, b := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{})
	m.run(a, script(bash("true"), say("warm")))
	var hold *pool.Hold
	taken := make(chan error, 1)
	m.whenCommitted("turn.started", func() {
		var err error
		hold, err = m.live[holdfast.Untrusted].Acquire(t.Context(), sandbox.Spec{Box: m.box(a)}, false, nil)
		taken <- err
	})
	turn := m.send(b, script(bash("echo line >> lines"), say("ok")))
	if err := <-taken; err != nil {
		t.Fatal(err)
	}
	until(t, func() bool { return slices.Contains(m.types(b), "box.queued") })
	// Behind one that waits nobody else finds the server less full.
	_, err := m.Send(t.Context(), m.create(holdfast.CreateSession{}), holdfast.SendMessage{Text: "x"})
	if !errors.Is(err, holdfast.ErrFull) {
		t.Errorf("error %v", err)
	}
	hold.Release()
	if got := m.ended(b, turn.ID); got.Status != holdfast.TurnCompleted || m.lines(b, "lines") != 1 {
		t.Errorf("turn = %+v\n%s", got, m.dump(b))
	}
	if got := datas[holdfast.BoxQueued](m.world, b, "box.queued"); len(got) != 1 || got[0].Position != 1 {
		t.Errorf("box.queued = %+v", got)
	}
	m.sound(b)
}

func TestQueuePositionsAreRecorded(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.pool = func(c *pool.Config) { c.MaxTurns = 1 } })
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("true"), say("warm")))
	// Somebody else has the box's only place, and somebody waits for it.
	spec := sandbox.Spec{Box: m.box(id)}
	boxes := m.live[holdfast.Untrusted]
	first, err := boxes.Acquire(t.Context(), spec, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	waiting, second := make(chan struct{}), make(chan *pool.Hold, 1)
	go func() {
		h, err := boxes.Acquire(context.WithoutCancel(t.Context()), spec, true, func(int) { close(waiting) })
		if err != nil {
			t.Error(err)
		}
		second <- h
	}()
	<-waiting
	turn := m.send(id, script(bash("echo line >> lines"), say("ok")))
	positions := func() (out []int) {
		for _, q := range datas[holdfast.BoxQueued](m.world, id, "box.queued") {
			out = append(out, q.Position)
		}
		return out
	}
	until(t, func() bool { return slices.Equal(positions(), []int{2}) })
	first.Release()
	until(t, func() bool { return slices.Equal(positions(), []int{2, 1}) })
	if m.lines(id, "lines") != 0 {
		t.Error("the turn did not wait")
	}
	(<-second).Release()
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || m.lines(id, "lines") != 1 {
		t.Errorf("turn = %+v\n%s", got, m.dump(id))
	}
}

// TestInterruptWhileWaitingForABox: a queued turn can be interrupted too.
func TestInterruptWhileWaitingForABox(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.pool = func(c *pool.Config) { c.MaxTurns = 1 } })
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("true"), say("warm")))
	h, err := m.live[holdfast.Untrusted].Acquire(t.Context(), sandbox.Spec{Box: m.box(id)}, true, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Release()
	turn := m.send(id, script(bash("echo line >> lines"), say("ok")))
	until(t, func() bool { return slices.Contains(m.types(id), "box.queued") })
	if _, err := m.Interrupt(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted || m.lines(id, "lines") != 0 {
		t.Errorf("turn = %+v", got)
	}
	if s, _ := m.Session(t.Context(), id); s.Status != holdfast.StatusActive {
		t.Errorf("session is %s", s.Status)
	}
}
