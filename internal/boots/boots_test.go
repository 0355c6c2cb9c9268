package boots_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boots"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// disk is a durable map that counts its writes.
type disk struct {
	facts  map[string]string
	writes int
	full   bool
}

func newDisk() *disk { return &disk{facts: map[string]string{}} }

func (d *disk) Fact(_ context.Context, key string) (string, bool, error) {
	v, ok := d.facts[key]
	return v, ok, nil
}

func (d *disk) SetFact(_ context.Context, key, value string) error {
	if d.full {
		return errors.New("no space")
	}
	d.writes++
	d.facts[key] = value
	return nil
}

// machine is a data directory over several boots of the machine.
type machine struct {
	*disk
	t   *testing.T
	now time.Time
}

func (m *machine) boot(id string) *boots.Record {
	m.t.Helper()
	r, err := boots.Open(m.t.Context(), boots.Config{
		Facts: m.disk, Boot: id, Clock: func() time.Time { return m.now },
		Newest: func(context.Context) (time.Time, error) { return m.now, nil },
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return r
}

// TestCutStaysUntilItIsSettled: an unclean end counts only in another boot, and stays
// pending through crashes and further cuts until every session has its notice.
func TestCutStaysUntilItIsSettled(t *testing.T) {
	m := &machine{disk: newDisk(), t: t, now: noon}
	if m.boot("a").Pending() != nil {
		t.Error("the first start found a cut")
	}
	if m.boot("a").Pending() != nil {
		t.Error("a crash of the server is no cut")
	}
	cut := m.boot("b").Pending()
	if cut == nil || !cut.Last.Equal(noon) || !cut.Since().Equal(noon.Add(-time.Minute)) {
		t.Fatalf("cut = %+v", cut)
	}
	m.now = noon.Add(time.Hour)
	for _, boot := range []string{"b", "c"} {
		if again := m.boot(boot).Pending(); again == nil || !again.Last.Equal(noon) {
			t.Errorf("boot %s: the pending cut is %+v", boot, again)
		}
	}
	r := m.boot("c")
	if err := r.Settled(t.Context(), []holdfast.SessionID{"s1"}); err != nil || r.Pending() != nil {
		t.Error(err)
	}
	r = m.boot("c")
	if r.Pending() != nil {
		t.Error("a settled cut came back")
	}
	if !slices.Equal(r.Told(), []holdfast.SessionID{"s1"}) {
		t.Errorf("sessions with a notice: %q", r.Told())
	}
	if err := r.Ended(t.Context()); err != nil {
		t.Fatal(err)
	}
	if m.boot("d").Pending() != nil {
		t.Error("a clean end counts as a cut")
	}
	if m.boot("e").Pending() == nil {
		t.Error("the clean end before the last counts for the last")
	}
}

// TestDirectCommandsAreRecordedFirst: a session with commands outside of turns is on
// record before the first of them runs, without a write for each, until one Window
// after the last.
func TestDirectCommandsAreRecordedFirst(t *testing.T) {
	m := &machine{disk: newDisk(), t: t, now: noon}
	r := m.boot("a")
	begin := m.writes
	for range 100 {
		done, err := r.Direct(t.Context(), "s1")
		if err != nil {
			t.Fatal(err)
		}
		done()
	}
	if m.writes != begin+1 {
		t.Errorf("100 commands cost %d writes", m.writes-begin)
	}
	open, err := r.Direct(t.Context(), "s2")
	if err != nil {
		t.Fatal(err)
	}
	if cut := (&machine{disk: &disk{facts: clone(m.facts)}, t: t, now: noon}).boot("b").Pending(); cut == nil || !slices.Equal(cut.Direct, []holdfast.SessionID{"s1", "s2"}) {
		t.Errorf("cut = %+v", cut)
	}
	m.now = noon.Add(boots.Window + time.Second)
	if err := r.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cut := (&machine{disk: &disk{facts: clone(m.facts)}, t: t, now: m.now}).boot("b").Pending(); cut == nil || !slices.Equal(cut.Direct, []holdfast.SessionID{"s2"}) {
		t.Errorf("cut = %+v: a command that runs on counts", cut)
	}
	open()
	if err := r.Forget(t.Context()); err != nil || !strings.Contains(m.facts["direct"], "s2") {
		t.Errorf("%v, %v: forgotten as it ended", m.facts, err)
	}
	m.full = true
	if _, err := r.Direct(t.Context(), "s3"); err == nil {
		t.Error("a command ran without its record")
	}
}

func clone(m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = v
	}
	return out
}

// TestFoldNamesUnsyncedCommands: only tools that may leave data in the page cache and
// ended within the window count.
func TestFoldNamesUnsyncedCommands(t *testing.T) {
	for _, c := range []struct {
		tool  string
		agent bool
		at    time.Duration
		want  bool
	}{
		{"Bash", false, -59 * time.Second, true},
		{"Bash", false, -61 * time.Second, false},
		{"Read", false, 0, false},
		{"Write", false, 0, false},
		{"Edit", false, 0, false},
		{"Write", true, 0, true},
		{"mcp__db__insert", false, 0, true},
	} {
		f := boots.Fold{Since: noon.Add(-boots.Window), Agent: c.agent}
		for _, ev := range []holdfast.Event{
			event(holdfast.EventToolRequested, "t1", noon.Add(-2*time.Minute), holdfast.ToolRequested{ToolUseID: "u", Name: c.tool}),
			event(holdfast.EventToolFinished, "t1", noon.Add(c.at), holdfast.ToolFinished{ToolUseID: "u", Outcome: holdfast.ExitOK}),
		} {
			if err := f.Add(ev); err != nil {
				t.Fatal(err)
			}
		}
		if got := len(f.Turns()) == 1; got != c.want {
			t.Errorf("%+v: at risk: %v", c, got)
		}
		// A notice settles the turns before it.
		if err := f.Add(event(holdfast.EventNotice, "", noon, holdfast.Notice{Code: holdfast.NoticeFilesAtRisk, AtRisk: &holdfast.FilesAtRisk{}})); err != nil || len(f.Turns()) != 0 || f.Told == nil {
			t.Errorf("after a notice: %v, %v", f.Turns(), err)
		}
	}
}

func event(typ holdfast.EventType, turn holdfast.TurnID, at time.Time, data any) holdfast.Event {
	raw, err := json.Marshal(data)
	if err != nil {
		panic(fmt.Sprint(err))
	}
	return holdfast.Event{Type: typ, Turn: turn, Time: at, Data: raw}
}

func TestTextNamesTurns(t *testing.T) {
	text := boots.Text(holdfast.FilesAtRisk{
		Turns: []holdfast.TurnAtRisk{{Number: 2}, {Number: 4}, {Number: 5}, {Number: 6}}, Direct: true, LastEvent: noon,
	})
	if !strings.Contains(text, "turns 2, 4-6, commands outside of turns") || !strings.Contains(text, "2026-01-02 12:00:00 UTC") {
		t.Error(text)
	}
}

// TestLastCut: the newest power cut stays known, also after the sessions have their notices and after an end in order.
func TestLastCut(t *testing.T) {
	m := &machine{disk: newDisk(), t: t, now: noon}
	if m.boot("a").Last() != nil {
		t.Error("the first start found a cut")
	}
	want := func(r *boots.Record, at time.Time) {
		t.Helper()
		if got := r.Last(); got == nil || !got.Last.Equal(at) {
			t.Errorf("the newest cut: %+v, want %s", got, at)
		}
	}
	want(m.boot("b"), noon)
	m.now = noon.Add(time.Hour)
	r := m.boot("c") // before the notices of the first cut were recorded
	want(r, m.now)
	for _, err := range []error{r.Settled(t.Context(), nil), r.Ended(t.Context())} {
		if err != nil {
			t.Fatal(err)
		}
	}
	at := m.now
	m.now = noon.Add(2 * time.Hour)
	want(m.boot("d"), at)
}
