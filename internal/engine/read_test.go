package engine_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/pool"
	"github.com/holdfast-run/holdfast/sandbox"
)

const nobody = holdfast.SessionID("01890a5d-ac96-774b-bcce-b302099a8057")

func seqs(evs []holdfast.Event) (out []int64) {
	for _, ev := range evs {
		out = append(out, ev.Seq)
	}
	return out
}

func TestEventsArePaged(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	id := w.create(holdfast.CreateSession{})
	for i := range 300 {
		w.record(id, holdfast.EventNotice, holdfast.Notice{Code: "n", Text: fmt.Sprint(i)})
	}
	var all []holdfast.Event
	for {
		after := int64(len(all))
		page, err := w.Events(t.Context(), id, holdfast.EventFilter{After: after, Limit: 7})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		all = append(all, page...)
	}
	if d := cmp.Diff(w.log(id), all); d != "" {
		t.Error(d)
	}
	if page, err := w.Events(t.Context(), id, holdfast.EventFilter{}); err != nil || len(page) != 100 {
		t.Errorf("a page without a limit has %d events, %v", len(page), err)
	}
	if page, err := w.Events(t.Context(), id, holdfast.EventFilter{After: 301}); err != nil || page == nil || len(page) != 0 {
		t.Errorf("after the end: %v, %v", page, err)
	}
}

func TestEventsAreFiltered(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	for range 5 {
		w.ended(id, w.send(id, "hello").ID)
	}
	completed := holdfast.EventFilter{Types: []holdfast.EventType{holdfast.EventTurnCompleted}, Limit: 2}
	var got []int64
	for {
		page, err := w.Events(t.Context(), id, completed)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, ev := range page {
			if ev.Type != holdfast.EventTurnCompleted {
				t.Errorf("%+v passed the filter", ev)
			}
		}
		got = append(got, seqs(page)...)
		completed.After = got[len(got)-1]
	}
	if d := cmp.Diff([]int64{5, 9, 13, 17, 21}, got); d != "" {
		t.Errorf("%s\n%s", d, w.dump(id))
	}
	two, err := w.Events(t.Context(), id, holdfast.EventFilter{Types: []holdfast.EventType{holdfast.EventTurnStarted, holdfast.EventSessionCreated}})
	if err != nil || !slices.Equal(seqs(two), []int64{1, 3, 7, 11, 15, 19}) {
		t.Errorf("%v, %v", seqs(two), err)
	}
}

func TestBadCursors(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	id := w.create(holdfast.CreateSession{})
	for name, f := range map[string]holdfast.EventFilter{
		"negative":       {After: -1},
		"beyond the end": {After: 2},
		"limit 0 below":  {Limit: -1},
		"limit over":     {Limit: 1001},
	} {
		if _, err := w.Events(t.Context(), id, f); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, after := range []int64{-1, 2} {
		if _, err := w.Follow(t.Context(), id, after); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("follow after %d: %v", after, err)
		}
	}
	_, err := w.Events(t.Context(), nobody, holdfast.EventFilter{})
	w.wantKind(err, holdfast.KindNotFound)
	_, err = w.Follow(t.Context(), nobody, 0)
	w.wantKind(err, holdfast.KindNotFound)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := w.Events(gone, id, holdfast.EventFilter{}); err == nil {
		t.Error("events for a caller who is gone")
	}
}

func TestTurnsAreListed(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	for i := range 5 {
		w.ended(id, w.send(id, fmt.Sprintf("message %d", i)).ID)
	}
	running := w.send(id, "wait")
	queued := w.send(id, "waits")
	numbers := func(turns []holdfast.Turn) (out []int64) {
		for _, turn := range turns {
			out = append(out, turn.Number)
		}
		return out
	}
	all, err := w.Turns(t.Context(), id, 0, 0)
	if err != nil || !slices.Equal(numbers(all), []int64{1, 2, 3, 4, 5, 6, 7}) {
		t.Fatalf("%v, %v", numbers(all), err)
	}
	if all[0].Text != "message 0" || all[0].Result != "re: message 0" || all[0].Usage == nil || all[0].EndedAt == nil {
		t.Errorf("first = %+v", all[0])
	}
	if r := all[5]; r.ID != running.ID || r.Status != holdfast.TurnRunning || r.StartedAt == nil || r.EndedAt != nil || r.Usage != nil {
		t.Errorf("running = %+v", r)
	}
	if q := all[6]; q.ID != queued.ID || q.Text != "waits" || q.QueuePosition != 1 || q.StartedAt != nil {
		t.Errorf("queued = %+v", q)
	}
	some, err := w.Turns(t.Context(), id, 2, 3)
	if err != nil || !slices.Equal(numbers(some), []int64{3, 4, 5}) {
		t.Errorf("%v, %v", numbers(some), err)
	}
	for _, c := range []struct{ after, limit int }{{-1, 0}, {0, -1}, {0, 501}} {
		if _, err := w.Turns(t.Context(), id, int64(c.after), c.limit); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("turns after %d, limit %d: %v", c.after, c.limit, err)
		}
	}
	_, err = w.Turns(t.Context(), nobody, 0, 0)
	w.wantKind(err, holdfast.KindNotFound)
	_, err = w.Turn(t.Context(), id, "01890a5d-ac96-774b-bcce-b302099a8057")
	w.wantKind(err, holdfast.KindNotFound)
	_, err = w.Turn(t.Context(), nobody, running.ID)
	w.wantKind(err, holdfast.KindNotFound)
	other := w.create(holdfast.CreateSession{})
	_, err = w.Turn(t.Context(), other, running.ID)
	w.wantKind(err, holdfast.KindNotFound)
	close(p.release)
	w.ended(id, queued.ID)
}

func TestSessionsAreListed(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	var ids []holdfast.SessionID
	for i := range 5 {
		ids = append(ids, w.create(holdfast.CreateSession{Title: fmt.Sprintf("Title %d", i), Tags: []string{fmt.Sprint(i % 2)}}))
	}
	// Several ids begin like the title of this one.
	begun := string(ids[0][:2])
	ids = append(ids, w.create(holdfast.CreateSession{Title: begun, Tags: []string{"begun"}}))
	if _, err := w.Pause(t.Context(), ids[3], holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	list := func(f holdfast.SessionFilter) (out []holdfast.SessionID) {
		t.Helper()
		for {
			page, err := w.List(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range page.Sessions {
				out = append(out, s.ID)
			}
			if f.Cursor = page.Next; f.Cursor == "" {
				return out
			}
		}
	}
	newest := slices.Clone(ids)
	slices.Reverse(newest)
	for name, c := range map[string]struct {
		filter holdfast.SessionFilter
		want   []holdfast.SessionID
	}{
		"all":     {holdfast.SessionFilter{}, newest},
		"pages":   {holdfast.SessionFilter{Limit: 2}, newest},
		"status":  {holdfast.SessionFilter{Status: "paused"}, []holdfast.SessionID{ids[3]}},
		"tag":     {holdfast.SessionFilter{Tag: "1"}, []holdfast.SessionID{ids[3], ids[1]}},
		"text":    {holdfast.SessionFilter{Text: "title 2"}, []holdfast.SessionID{ids[2]}},
		"agent":   {holdfast.SessionFilter{Agent: "default", Limit: 500}, newest},
		"id":      {holdfast.SessionFilter{Name: strings.ToUpper(string(ids[4]))}, []holdfast.SessionID{ids[4]}},
		"ending":  {holdfast.SessionFilter{Name: string(ids[3][28:])}, []holdfast.SessionID{ids[3]}},
		"named":   {holdfast.SessionFilter{Name: "TITLE 2"}, []holdfast.SessionID{ids[2]}},
		"begins":  {holdfast.SessionFilter{Name: "titl"}, newest[1:]},
		"titled":  {holdfast.SessionFilter{Name: begun}, ids[5:]},
		"several": {holdfast.SessionFilter{Name: begun, Tag: "1"}, []holdfast.SessionID{ids[3], ids[1]}},
		"no name": {holdfast.SessionFilter{Name: "itle 2"}, nil},
		"nothing": {holdfast.SessionFilter{Status: "ended"}, nil},
	} {
		if d := cmp.Diff(c.want, list(c.filter)); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
	for name, f := range map[string]holdfast.SessionFilter{
		"status": {Status: "asleep"}, "agent": {Agent: "A b"}, "limit": {Limit: 501}, "below": {Limit: -1}, "cursor": {Cursor: "???"},
		"name and cursor": {Name: "title", Cursor: "cw"}, "name": {Name: "\xff"},
	} {
		if _, err := w.List(t.Context(), f); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestLogThatDoesNotAddUp: what the database should never hold is an internal
// error, not a wrong answer.
func TestLogThatDoesNotAddUp(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	turn := w.send(id, "hello")
	w.ended(id, turn.ID)
	w.store.Close()
	_, err := w.Turn(t.Context(), id, turn.ID)
	if err == nil {
		t.Error("a turn from a closed store")
	}
	_, err = w.Events(t.Context(), id, holdfast.EventFilter{})
	if err == nil {
		t.Error("events from a closed store")
	}
	_, err = w.List(t.Context(), holdfast.SessionFilter{})
	if err == nil {
		t.Error("sessions from a closed store")
	}
	w.dirtyClose = true
}

// TestUpdateOfNothing changes nothing, and says what is there.
func TestUpdateOfNothing(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	id := w.create(holdfast.CreateSession{Title: "a", Tags: []string{"x"}})
	before, err := w.Session(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	title, tags, mode, model, trust := "a", []string{"x"}, "bypassPermissions", "scripted", "untrusted"
	for _, req := range []holdfast.UpdateSession{{}, {Title: &title, Tags: &tags, Mode: &mode, Model: &model, Trust: &trust}} {
		after, err := w.Update(t.Context(), id, req)
		if d := cmp.Diff(before, after); err != nil || d != "" {
			t.Errorf("%v: %s", err, d)
		}
	}
	bad := "nope"
	for name, req := range map[string]holdfast.UpdateSession{
		"trust": {Trust: &bad}, "mode": {Mode: &bad}, "model": {Model: &bad}, "tags": {Tags: &[]string{""}},
	} {
		if _, err := w.Update(t.Context(), id, req); !holdfast.IsKind(err, holdfast.KindInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = w.Update(t.Context(), nobody, holdfast.UpdateSession{Title: &bad})
	w.wantKind(err, holdfast.KindNotFound)
	if n := len(w.log(id)); n != 1 {
		t.Errorf("%d events", n)
	}
}

// TestRuntimeThatIsGone: a server without a session's runtime fails its turns;
// the session can still be paused, resumed and ended.
func TestRuntimeThatIsGone(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	w.stop(false)
	w.rt = renamed{p}
	w.start()
	got := w.ended(id, w.send(id, "hello").ID)
	if got.Status != holdfast.TurnFailed || !strings.Contains(got.Error, `"native"`) {
		t.Errorf("turn = %+v", got)
	}
	if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Error(err)
	}
	if _, err := w.Resume(t.Context(), id, holdfast.ResumeSession{}); err != nil {
		t.Error(err)
	}
	if _, err := w.End(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Error(err)
	}
}

type renamed struct{ *puppet }

func (renamed) Name() string { return "other" }

// TestPauseFreezes where the driver can, and a resumed turn thaws.
func TestPauseFreezes(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(bash("(until [ -f go ]; do sleep 0.01; done; echo x > out) > /dev/null 2>&1 &"), say("ok")))
	if _, err := m.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	until(t, func() bool {
		list, err := m.Containers(t.Context())
		return err == nil && len(list) == 1 && list[0].State == holdfast.BoxFrozen
	})
	m.put(id, "go", "")
	if got := m.exec(id, "echo thawed"); string(got.Stdout) != "thawed\n" {
		t.Errorf("%+v", got)
	}
	m.appears(id, "out")
	if !slices.Contains(m.types(id), "box.frozen") {
		t.Errorf("no box.frozen in %v", m.types(id))
	}
}

// TestBoxesOfEndedSessionsAreSwept at the next start; boxes of others are not.
//
// WS-R67.
func TestBoxesOfEndedSessionsAreSwept(t *testing.T) {
	m := newMachine(t, nil)
	ended, deleted, kept := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{})
	for _, id := range []holdfast.SessionID{ended, deleted, kept} {
		m.exec(id, "true")
	}
	// As if the server had died between the end of the session and that of its box.
	for _, id := range []holdfast.SessionID{ended, deleted} {
		c := journal.NewChange(id)
		c.Status = []holdfast.Status{holdfast.StatusEnded}
		if _, err := m.journal.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.store.Sessions.DeleteSession(t.Context(), deleted); err != nil {
		t.Fatal(err)
	}
	foreign := sandbox.Spec{Box: "w-foreign", Dir: t.TempDir()}
	if _, err := m.untrusted.Ensure(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	m.restart()
	list, err := m.Containers(t.Context())
	if err != nil || len(list) != 1 || list[0].Session != kept {
		t.Errorf("%+v, %v", list, err)
	}
	if !slices.Contains(m.types(ended), "box.stopped") && !slices.Contains(m.types(ended), "box.lost") {
		t.Logf("the sweep is not in the log of the ended session: %v", m.types(ended))
	}
}

// TestEventsOfForeignBoxesAreNobodys: a box that belongs to no session, or to
// one that is gone, writes into no log.
func TestEventsOfForeignBoxesAreNobodys(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	for _, box := range []holdfast.BoxID{"w-foreign", nobody.Box()} {
		m.BoxEvent(pool.Event{Type: holdfast.EventBoxLost, Box: box, Ended: holdfast.BoxEnded{Box: box}})
	}
	m.refuseWhile(everything)
	m.BoxEvent(pool.Event{Type: holdfast.EventBoxLost, Box: m.box(id)})
	m.acceptAll()
	m.BoxEvent(pool.Event{Type: holdfast.EventBoxOOM, Box: m.box(id), Ended: holdfast.BoxEnded{Box: m.box(id), Reason: "hog"}})
	if oom := datas[holdfast.BoxEnded](m.world, id, "box.oom"); len(oom) != 1 || oom[0].Reason != "hog" || len(m.log(id)) != 2 {
		t.Errorf("log:\n%s", m.dump(id))
	}
}

// TestMemoryKillIsNamed: a command killed for memory says so.
func TestMemoryKillIsNamed(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash("echo begun > begun; sleep 3600"), say("went on")))
	m.appears(id, "begun")
	if !m.untrusted.KillForMemory(m.box(id)) {
		t.Fatal("nothing to kill")
	}
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "went on" {
		t.Errorf("turn = %+v", got)
	}
	if f := datas[holdfast.ToolFinished](m.world, id, "tool.finished"); len(f) != 1 || f[0].Outcome != holdfast.ExitOOM {
		t.Errorf("tool.finished = %+v", f)
	}
	until(t, func() bool { return slices.Contains(m.types(id), "box.oom") })
}

// TestBoxThatFailsItsFirstConnection: a box that does not answer is given up and made anew.
func TestBoxThatFailsItsFirstConnection(t *testing.T) {
	m := newMachine(t, nil)
	id := m.create(holdfast.CreateSession{})
	m.untrusted.FailConnect(1, holdfast.Errorf(holdfast.KindUnavailable, "mem", "refused"))
	if got := m.run(id, script(bash("echo line >> lines"), say("ok"))); got.Status != holdfast.TurnCompleted || m.lines(id, "lines") != 1 {
		t.Errorf("turn = %+v", got)
	}
	// Now boxd is there and cannot be reached at all.
	m.untrusted.KillBox(m.box(id))
	m.untrusted.FailConnect(1000, holdfast.Errorf(holdfast.KindUnavailable, "mem", "refused"))
	if got := m.run(id, script(bash("echo line >> lines"), say("ok"))); got.Status != holdfast.TurnFailed || m.lines(id, "lines") != 1 {
		t.Errorf("turn = %+v", got)
	}
	if s, _ := m.Session(t.Context(), id); s.Status != holdfast.StatusError {
		t.Errorf("session is %s", s.Status)
	}
	m.untrusted.FailConnect(0, nil)
	if got := m.run(id, script(bash("echo line >> lines"), say("ok"))); got.Status != holdfast.TurnCompleted || m.lines(id, "lines") != 2 {
		t.Errorf("turn = %+v", got)
	}
}

// TestExecOutputIsCut at what a result may hold, with all of it in the spool.
func TestExecOutputIsCut(t *testing.T) {
	m := newMachine(t, func(m *machine) { m.set = func(c *engine.Config) { c.Boxes.SpoolBytes = 64 << 20 } })
	id := m.create(holdfast.CreateSession{})
	res := m.exec(id, "yes 012345678901234567890123456789012345678901234567890123456789 | head -c 11000000")
	if len(res.Stdout) != 10<<20 || !res.Truncated {
		t.Errorf("%d bytes, truncated %v", len(res.Stdout), res.Truncated)
	}
}
