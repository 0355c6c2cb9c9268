package engine_test

import (
	"context"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/journal"
)

func TestCreateFillsInDefaults(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	s, _, err := w.Create(t.Context(), holdfast.CreateSession{Env: map[string]string{"TOKEN": "s3cret"}, Tags: []string{"a"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	want := holdfast.Session{
		ID: s.ID, Status: holdfast.StatusActive, Agent: "default", AgentVersion: version, Trust: holdfast.Untrusted,
		Runtime: "native", Model: "scripted", Mode: holdfast.ModeBypassPermissions, Tags: []string{"a"},
		Env: map[string]string{"TOKEN": "***"}, Revision: s.Revision, LastSeq: 1, CreatedAt: s.CreatedAt, LastActiveAt: s.LastActiveAt,
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Error(d)
	}
	row, err := w.store.Sessions.Row(t.Context(), s.ID)
	if err != nil || strings.Contains(string(row.Given.SealedEnv), "s3cret") || len(row.Given.SealedEnv) == 0 {
		t.Errorf("sealed environment %q, %v", row.Given.SealedEnv, err)
	}
	if strings.Contains(w.dump(s.ID), "s3cret") {
		t.Error("the log holds the value")
	}
}

// WS-R85, WS-P18.
func TestCreateWithOwnIDAndKey(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	req := holdfast.CreateSession{ID: "01890A5D-AC96-774B-BCCE-B302099A8057"}
	s, replayed, err := w.Create(t.Context(), req, "key")
	if err != nil || replayed || s.ID != "01890a5d-ac96-774b-bcce-b302099a8057" {
		t.Fatalf("%+v, %v", s, err)
	}
	again, replayed, err := w.Create(t.Context(), req, "key")
	if err != nil || !replayed || again.ID != s.ID {
		t.Errorf("%+v, %v", again, err)
	}
	_, _, err = w.Create(t.Context(), req, "")
	w.wantKind(err, holdfast.KindConflict)
	_, _, err = w.Create(t.Context(), holdfast.CreateSession{Title: "x"}, "key")
	w.wantKind(err, holdfast.KindConflict)
	// What the request named is gone: the answer is still the first one's.
	named := holdfast.CreateSession{Agent: "default"}
	s, _, err = w.Create(t.Context(), named, "named")
	if err != nil {
		t.Fatal(err)
	}
	w.tune = func(c *engine.Config) { c.Agents = noAgent{} }
	w.stop(true)
	w.start()
	again, replayed, err = w.Create(t.Context(), named, "named")
	if err != nil || !replayed || again.ID != s.ID {
		t.Errorf("%+v, %v", again, err)
	}
	_, _, err = w.Create(t.Context(), holdfast.CreateSession{Agent: "default", Title: "x"}, "named")
	w.wantKind(err, holdfast.KindConflict)
	_, _, err = w.Create(t.Context(), named, "new")
	w.wantKind(err, holdfast.KindNotFound)
}

// noAgent is a registry whose agents were all deleted.
type noAgent struct{ engine.Agents }

func (noAgent) Get(context.Context, holdfast.AgentName) (holdfast.Agent, error) {
	return holdfast.Agent{}, holdfast.Errorf(holdfast.KindNotFound, "agent", "there is none")
}

func TestCreateRefusesWhatItDoesNotKnow(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	long := strings.Repeat("x", 40_000)
	for name, c := range map[string]struct {
		req  holdfast.CreateSession
		kind holdfast.Kind
		says string
	}{
		"id":            {holdfast.CreateSession{ID: "../x"}, holdfast.KindInvalid, `"../x"`},
		"agent grammar": {holdfast.CreateSession{Agent: "A b"}, holdfast.KindInvalid, `"A b"`},
		"agent":         {holdfast.CreateSession{Agent: "nobody"}, holdfast.KindNotFound, "nobody"},
		"trust":         {holdfast.CreateSession{Trust: "root"}, holdfast.KindInvalid, `"root"`},
		"mode":          {holdfast.CreateSession{Mode: "yolo"}, holdfast.KindInvalid, `"yolo"`},
		"runtime":       {holdfast.CreateSession{Runtime: "claude"}, holdfast.KindInvalid, `"claude"`},
		"model":         {holdfast.CreateSession{Model: "gpt"}, holdfast.KindInvalid, `"gpt"`},
		"title":         {holdfast.CreateSession{Title: long}, holdfast.KindInvalid, "title"},
		"title nul":     {holdfast.CreateSession{Title: "a\x00"}, holdfast.KindInvalid, "title"},
		"tag":           {holdfast.CreateSession{Tags: []string{""}}, holdfast.KindInvalid, `""`},
		"tags":          {holdfast.CreateSession{Tags: make([]string, 51)}, holdfast.KindInvalid, "51"},
		"env name":      {holdfast.CreateSession{Env: map[string]string{"1A": "x"}}, holdfast.KindInvalid, `"1A"`},
		"env reserved":  {holdfast.CreateSession{Env: map[string]string{"HOLDFAST_TOKEN": "x"}}, holdfast.KindDenied, "HOLDFAST_TOKEN"},
		"env value":     {holdfast.CreateSession{Env: map[string]string{"A": long}}, holdfast.KindInvalid, `"A"`},
	} {
		_, _, err := w.Create(t.Context(), c.req, "")
		if !holdfast.IsKind(err, c.kind) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v (%s)", name, err, holdfast.KindOf(err))
		}
	}
	page, err := w.List(t.Context(), holdfast.SessionFilter{})
	if err != nil || len(page.Sessions) != 0 {
		t.Errorf("refused creates left %+v, %v", page, err)
	}
}

// TestASH8ResumeAnswers walks the table of decisions: what each verb answers in
// each state.
//
// DOC-9, DOC-13, DOC-14, DOC-15, DOC-16, DOC-23, WS-R19.
func TestASH8ResumeAnswers(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	put := func(s holdfast.Status) holdfast.SessionID {
		id := w.create(holdfast.CreateSession{})
		switch s {
		case holdfast.StatusPaused:
			if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
				t.Fatal(err)
			}
		case holdfast.StatusError:
			c := journal.NewChange(id)
			c.Status = []holdfast.Status{holdfast.StatusError}
			if _, err := w.journal.Commit(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		case holdfast.StatusEnded:
			if _, err := w.End(t.Context(), id, holdfast.EndSession{}); err != nil {
				t.Fatal(err)
			}
		}
		return id
	}
	verbs := map[string]func(holdfast.SessionID) (holdfast.Session, error){
		"pause": func(id holdfast.SessionID) (holdfast.Session, error) {
			return w.Pause(t.Context(), id, holdfast.EndSession{})
		},
		"resume": func(id holdfast.SessionID) (holdfast.Session, error) {
			r, err := w.Resume(t.Context(), id, holdfast.ResumeSession{})
			return r.Session, err
		},
		"end": func(id holdfast.SessionID) (holdfast.Session, error) {
			return w.End(t.Context(), id, holdfast.EndSession{})
		},
	}
	const ok, conflict, gone = "", holdfast.KindConflict, holdfast.KindGone
	for _, c := range []struct {
		verb string
		from holdfast.Status
		kind holdfast.Kind
		to   holdfast.Status
	}{
		{"pause", holdfast.StatusActive, ok, holdfast.StatusPaused},
		{"pause", holdfast.StatusPaused, conflict, holdfast.StatusPaused},
		{"pause", holdfast.StatusError, conflict, holdfast.StatusError},
		{"pause", holdfast.StatusEnded, gone, holdfast.StatusEnded},
		{"resume", holdfast.StatusActive, ok, holdfast.StatusActive},
		{"resume", holdfast.StatusPaused, ok, holdfast.StatusActive},
		{"resume", holdfast.StatusError, ok, holdfast.StatusActive},
		{"resume", holdfast.StatusEnded, gone, holdfast.StatusEnded},
		{"end", holdfast.StatusActive, ok, holdfast.StatusEnded},
		{"end", holdfast.StatusPaused, ok, holdfast.StatusEnded},
		{"end", holdfast.StatusError, ok, holdfast.StatusEnded},
		{"end", holdfast.StatusEnded, ok, holdfast.StatusEnded},
	} {
		id := put(c.from)
		_, err := verbs[c.verb](id)
		if holdfast.KindOf(err) != c.kind {
			t.Errorf("%s of %s: %v", c.verb, c.from, err)
		}
		if s, _ := w.Session(t.Context(), id); s.Status != c.to {
			t.Errorf("%s of %s leads to %s, want %s", c.verb, c.from, s.Status, c.to)
		}
	}
	for name, verb := range verbs {
		_, err := verb("01890a5d-ac96-774b-bcce-b302099a8057")
		if !holdfast.IsKind(err, holdfast.KindNotFound) {
			t.Errorf("%s of an unknown session: %v", name, err)
		}
	}
}

func TestPauseAndEndDuringATurn(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	first := w.send(id, "wait")
	second := w.send(id, "wait")
	p.wait(t)
	_, err := w.Pause(t.Context(), id, holdfast.EndSession{})
	w.wantKind(err, holdfast.KindConflict)
	_, err = w.End(t.Context(), id, holdfast.EndSession{})
	w.wantKind(err, holdfast.KindConflict)
	s, err := w.End(t.Context(), id, holdfast.EndSession{Interrupt: true})
	if err != nil || s.Status != holdfast.StatusEnded {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, turn := range []holdfast.Turn{first, second} {
		if got := w.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
			t.Errorf("turn = %+v", got)
		}
	}
	_, err = w.Send(t.Context(), id, holdfast.SendMessage{Text: "hello"})
	w.wantKind(err, holdfast.KindGone)
}

func TestASH10MessageToPausedSessionResumesItOnce(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	w.ended(id, w.send(id, "hello").ID)
	if _, err := w.Pause(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, err := w.Resume(t.Context(), id, holdfast.ResumeSession{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	w.ended(id, w.send(id, "again").ID)
	n := 0
	for _, ev := range w.log(id) {
		if ev.Type != holdfast.EventSessionResumed {
			continue
		}
		n++
		var r holdfast.Receipt
		if err := ev.Decode(&r); err != nil {
			t.Fatal(err)
		}
		r.DurationMS = 0
		want := holdfast.Receipt{From: holdfast.StatusPaused, Tier: holdfast.TierRebuilt, Path: "cold", Turns: 1, Events: 6, Files: holdfast.FilesEmpty, Box: "none"}
		if d := cmp.Diff(want, r); d != "" {
			t.Error(d)
		}
	}
	if n != 1 {
		t.Errorf("%d resumes in the log, want 1", n)
	}
}

// TestResumeCutOffByACrashIsAnError: a session that a crash left starting is in error, and a message resumes it.
//
// DOC-15.
func TestResumeCutOffByACrashIsAnError(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	c := journal.NewChange(id)
	c.Status = []holdfast.Status{holdfast.StatusPaused, holdfast.StatusStarting}
	if _, err := w.journal.Commit(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	w.restart()
	s, err := w.Session(t.Context(), id)
	if err != nil || s.Status != holdfast.StatusError || s.Error == "" {
		t.Fatalf("%+v, %v", s, err)
	}
	w.ended(id, w.send(id, "hello").ID)
	if s, _ := w.Session(t.Context(), id); s.Status != holdfast.StatusActive || s.Error != "" {
		t.Errorf("%+v", s)
	}
}

func TestUpdate(t *testing.T) {
	p := newPuppet()
	w := newWorld(t, p, nil)
	id := w.create(holdfast.CreateSession{})
	title, mode, model, bad := "named", "plan", "other", "nope"
	tags := []string{"x", "y"}
	s, err := w.Update(t.Context(), id, holdfast.UpdateSession{Title: &title, Mode: &mode, Model: &model, Tags: &tags})
	if err != nil || s.Title != title || s.Mode != holdfast.ModePlan || s.Model != model || !cmp.Equal(s.Tags, tags) {
		t.Errorf("%+v, %v", s, err)
	}
	again, err := w.Update(t.Context(), id, holdfast.UpdateSession{Title: &title})
	if err != nil || again.Revision != s.Revision {
		t.Errorf("an update that changes nothing moved the revision: %+v, %v", again, err)
	}
	for _, req := range []holdfast.UpdateSession{{Mode: &bad}, {Model: &bad}, {Trust: &bad}} {
		_, err := w.Update(t.Context(), id, req)
		w.wantKind(err, holdfast.KindInvalid)
	}
	turn := w.send(id, "wait")
	p.wait(t)
	trusted := "trusted"
	_, err = w.Update(t.Context(), id, holdfast.UpdateSession{Trust: &trusted})
	w.wantKind(err, holdfast.KindConflict)
	s, err = w.Update(t.Context(), id, holdfast.UpdateSession{Trust: &trusted, Interrupt: true})
	if err != nil || s.Trust != holdfast.Trusted {
		t.Errorf("%+v, %v", s, err)
	}
	if got := w.ended(id, turn.ID); got.Status != holdfast.TurnInterrupted {
		t.Errorf("turn = %+v", got)
	}
}

// TestUpdateSaysWhatChanged, from what and to what, in the transaction that
// changes it.
func TestUpdateSaysWhatChanged(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	id := w.create(holdfast.CreateSession{Title: "one", Tags: []string{"a", "b"}})
	two := "two"
	if _, err := w.Update(t.Context(), id, holdfast.UpdateSession{Title: &two}); err != nil {
		t.Fatal(err)
	}
	title, plan := "three", "plan"
	s, err := w.Update(t.Context(), id, holdfast.UpdateSession{
		Title: &title, Mode: &plan, AddTags: []string{"c", "a"}, RemoveTags: []string{"b", "zz"},
	})
	if err != nil || s.Title != "three" || !cmp.Equal(s.Tags, []string{"a", "c"}) || s.Revision != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	was, is := "two", "three"
	bypass, planned := holdfast.ModeBypassPermissions, holdfast.ModePlan
	want := holdfast.SessionUpdated{
		SessionChange: holdfast.SessionChange{Title: &is, Mode: &planned, Tags: &[]string{"a", "c"}},
		From:          holdfast.SessionChange{Title: &was, Mode: &bypass, Tags: &[]string{"a", "b"}},
	}
	if d := cmp.Diff(want, datas[holdfast.SessionUpdated](w, id, holdfast.EventSessionUpdated)[1]); d != "" {
		t.Error(d)
	}
}

// TestUpdateAtARevision changes only what the caller has seen.
//
// WS-P18.
func TestUpdateAtARevision(t *testing.T) {
	w := newWorld(t, newPuppet(), nil)
	id := w.create(holdfast.CreateSession{})
	one, two, empty, gone := "one", "two", "", "abacus"
	if s, err := w.Update(t.Context(), id, holdfast.UpdateSession{Title: &one, Revision: 1}); err != nil || s.Revision != 2 {
		t.Fatalf("%+v, %v", s, err)
	}
	_, err := w.Update(t.Context(), id, holdfast.UpdateSession{Title: &two, Revision: 1})
	w.wantKind(err, holdfast.KindConflict)
	for _, req := range []holdfast.UpdateSession{{Trust: &empty}, {Runtime: &gone}, {AddTags: []string{""}}} {
		_, err := w.Update(t.Context(), id, req)
		w.wantKind(err, holdfast.KindInvalid)
	}
	if _, err := w.End(t.Context(), id, holdfast.EndSession{}); err != nil {
		t.Fatal(err)
	}
	_, err = w.Update(t.Context(), id, holdfast.UpdateSession{Title: &two})
	w.wantKind(err, holdfast.KindGone)
	if s, _ := w.Session(t.Context(), id); s.Title != one {
		t.Errorf("title %q", s.Title)
	}
}
