package engine_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// model is what a session must be after the verbs so far.
type model struct {
	t  *rapid.T
	w  *world
	p  *puppet
	id holdfast.SessionID

	status  holdfast.Status
	turns   []*modelTurn
	running *modelTurn
	resumes int
}

type modelTurn struct {
	id     holdfast.TurnID
	status holdfast.TurnStatus
	// text is what the turn does; steer is what it will do once released.
	text, steer string
	key         string
	// waits is how often the turn has come to wait; waiting: it does.
	waits   int
	waiting bool
}

// TestSessionStateMachine drives sessions with random verbs, restarts of the
// server among them, and compares every answer and state with a model.
func TestSessionStateMachine(t *testing.T) {
	p := newPuppet()
	p.box = func(ctx context.Context, host runtime.Host) error {
		_, err := host.Box(ctx) // there is no driver: the session goes to error
		return err
	}
	w := newWorld(t, p, nil)
	rapid.Check(t, func(rt *rapid.T) {
		m := &model{t: rt, w: w, p: p, status: holdfast.StatusActive}
		m.id = w.create(holdfast.CreateSession{})
		verbs := map[string]func(){
			"send": m.send, "send again": m.sendAgain, "steer": m.steer, "release": m.release, "interrupt": m.interrupt,
			"pause": m.pause, "resume": m.resume, "end": m.end, "update": m.update,
		}
		names := []string{
			"send", "send", "send", "send", "send again", "steer", "release", "release", "interrupt", "pause", "pause",
			"resume", "resume", "update", "restart", "end",
		}
		for range rapid.IntRange(1, 14).Draw(rt, "verbs") {
			name := rapid.SampledFrom(names).Draw(rt, "verb")
			if name == "restart" {
				// Seldom: it takes as long as all others together.
				if rapid.IntRange(0, 3).Draw(rt, "really") == 0 {
					m.restart()
				}
			} else {
				verbs[name]()
			}
			m.compare(name)
		}
		m.finish()
	})
}

// settle lets what runs by itself run to its end.
func (m *model) settle() {
	for m.status == holdfast.StatusActive {
		if m.running == nil {
			i := slices.IndexFunc(m.turns, func(t *modelTurn) bool { return t.status == holdfast.TurnQueued })
			if i < 0 {
				return
			}
			m.running = m.turns[i]
			m.running.status = holdfast.TurnRunning
		}
		switch m.running.text {
		case "wait":
			if !m.running.waiting {
				m.running.waiting = true
				m.running.waits++
			}
			return
		case "fail":
			m.over(holdfast.TurnFailed)
		case "box":
			m.over(holdfast.TurnFailed)
			m.status = holdfast.StatusError
		default:
			m.over(holdfast.TurnCompleted)
		}
	}
}

func (m *model) over(s holdfast.TurnStatus) {
	m.running.status = s
	m.running = nil
}

// want checks the kind of an answer.
func (m *model) want(verb string, err error, k holdfast.Kind) {
	if holdfast.KindOf(err) != k {
		m.t.Fatalf("%s of a session that is %s: %v, want kind %q\n%s", verb, m.status, err, k, m.w.dump(m.id))
	}
}

// wake is what every message and resume does to a session that is not active.
func (m *model) wake() {
	if m.status == holdfast.StatusPaused || m.status == holdfast.StatusError {
		m.status = holdfast.StatusActive
		m.resumes++
		if i := slices.IndexFunc(m.turns, func(t *modelTurn) bool { return t.status == holdfast.TurnQueued }); i >= 0 {
			m.running = m.turns[i]
			m.running.status = holdfast.TurnRunning
		}
	}
}

func (m *model) send() {
	msg := holdfast.SendMessage{
		Text: rapid.SampledFrom([]string{"quick", "quick", "wait", "wait", "fail", "box"}).Draw(m.t, "text"),
		Mode: rapid.SampledFrom([]string{"queue", "queue", "interrupt"}).Draw(m.t, "mode"),
		Key:  fmt.Sprintf("key %d", len(m.turns)),
	}
	if msg.Mode == "interrupt" && m.running == nil && m.status != holdfast.StatusActive {
		// Whether it interrupts or only follows what it wakes is a race.
		msg.Mode = "queue"
	}
	sent, err := m.w.Send(m.w.t.Context(), m.id, msg)
	if m.status == holdfast.StatusEnded {
		m.want("send", err, holdfast.KindGone)
		return
	}
	m.want("send", err, "")
	m.wake()
	turn := &modelTurn{id: sent.Turn.ID, text: msg.Text, status: holdfast.TurnQueued, key: msg.Key + msg.Mode}
	m.turns = append(m.turns, turn)
	if m.running == nil {
		m.running, turn.status = turn, holdfast.TurnRunning
	}
	if sent.Turn.Status != turn.status || sent.Duplicate || sent.Turn.Number != int64(len(m.turns)) {
		m.t.Fatalf("sent %+v, want %s and number %d", sent, turn.status, len(m.turns))
	}
	if msg.Mode == "interrupt" && m.running != turn {
		m.over(holdfast.TurnInterrupted)
	}
	m.settle()
}

// sendAgain repeats a message with its key.
func (m *model) sendAgain() {
	if len(m.turns) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.turns)-1).Draw(m.t, "which")
	old := m.turns[i]
	key := fmt.Sprintf("key %d", i)
	text := m.text(i)
	sent, err := m.w.Send(m.w.t.Context(), m.id, holdfast.SendMessage{Text: text, Mode: old.key[len(key):], Key: key})
	m.want("send again", err, "")
	if !sent.Duplicate || sent.Turn.ID != old.id {
		m.t.Fatalf("repeated message got %+v, first was turn %s", sent, old.id)
	}
	m.settle()
	m.compare("send again")
	_, err = m.w.Send(m.w.t.Context(), m.id, holdfast.SendMessage{Text: text + "!", Mode: old.key[len(key):], Key: key})
	m.want("another message with the key", err, holdfast.KindConflict)
	m.settle()
}

// text is the message that a turn began with.
func (m *model) text(i int) string {
	turn, err := m.w.Turn(m.w.t.Context(), m.id, m.turns[i].id)
	if err != nil {
		m.t.Fatal(err)
	}
	return turn.Text
}

func (m *model) steer() {
	if m.running == nil {
		return
	}
	text := rapid.SampledFrom([]string{"quick", "wait", "fail"}).Draw(m.t, "steer")
	sent, err := m.w.Send(m.w.t.Context(), m.id, holdfast.SendMessage{Text: text, Mode: "steer"})
	m.want("steer", err, "")
	if sent.Turn.ID != m.running.id {
		m.t.Fatalf("steered turn %s, %s runs", sent.Turn.ID, m.running.id)
	}
	m.running.steer = text
}

// release lets the waiting turn go on.
func (m *model) release() {
	if m.running == nil {
		return
	}
	m.p.release <- struct{}{}
	m.goOn()
}

func (m *model) goOn() {
	r := m.running
	if r.steer == "" {
		m.over(holdfast.TurnCompleted)
	} else {
		r.text, r.steer, r.waiting = r.steer, "", false
	}
	m.settle()
}

func (m *model) interrupt() {
	_, err := m.w.Interrupt(m.w.t.Context(), m.id)
	switch {
	case m.status == holdfast.StatusEnded:
		m.want("interrupt", err, holdfast.KindGone)
	case m.running == nil:
		m.want("interrupt", err, holdfast.KindConflict)
	default:
		m.want("interrupt", err, "")
		m.over(holdfast.TurnInterrupted)
		m.settle()
	}
}

func (m *model) pause() {
	req := holdfast.EndSession{Interrupt: rapid.Bool().Draw(m.t, "interrupt")}
	_, err := m.w.Pause(m.w.t.Context(), m.id, req)
	switch {
	case m.status == holdfast.StatusEnded:
		m.want("pause", err, holdfast.KindGone)
	case m.status != holdfast.StatusActive, m.running != nil && !req.Interrupt:
		m.want("pause", err, holdfast.KindConflict)
	default:
		m.want("pause", err, "")
		if m.running != nil {
			m.over(holdfast.TurnInterrupted)
		}
		m.status = holdfast.StatusPaused
	}
}

func (m *model) resume() {
	res, err := m.w.Resume(m.w.t.Context(), m.id, holdfast.ResumeSession{})
	if m.status == holdfast.StatusEnded {
		m.want("resume", err, holdfast.KindGone)
		return
	}
	m.want("resume", err, "")
	if (res.Receipt == nil) != (m.status == holdfast.StatusActive) {
		m.t.Fatalf("resume of a session that is %s gave receipt %+v", m.status, res.Receipt)
	}
	m.wake()
	m.settle()
}

func (m *model) end() {
	req := holdfast.EndSession{Interrupt: rapid.Bool().Draw(m.t, "interrupt")}
	_, err := m.w.End(m.w.t.Context(), m.id, req)
	if m.running != nil && !req.Interrupt {
		m.want("end", err, holdfast.KindConflict)
		return
	}
	m.want("end", err, "")
	for _, t := range m.turns {
		if !t.status.Terminal() {
			t.status = holdfast.TurnInterrupted
		}
	}
	m.running, m.status = nil, holdfast.StatusEnded
}

func (m *model) update() {
	title := rapid.SampledFrom([]string{"", "a", "b"}).Draw(m.t, "title")
	s, err := m.w.Update(m.w.t.Context(), m.id, holdfast.UpdateSession{Title: &title})
	if m.status == holdfast.StatusEnded {
		m.want("update", err, holdfast.KindGone)
		return
	}
	m.want("update", err, "")
	if s.Title != title {
		m.t.Fatalf("title %q", s.Title)
	}
}

func (m *model) restart() {
	m.w.restart()
	if r := m.running; r != nil {
		r.waiting = false
		if r.steer != "" {
			// It reads all of its messages when it begins anew.
			r.text, r.steer = r.steer, ""
		}
	}
	m.settle()
}

// compare waits until the engine has got where the model is.
func (m *model) compare(verb string) {
	ctx := m.w.t.Context()
	var turns []holdfast.Turn
	same := func() bool {
		s, err := m.w.Session(ctx, m.id)
		if err != nil || s.Status != m.status {
			return false
		}
		if turns, err = m.w.Turns(ctx, m.id, 0, 500); err != nil || len(turns) != len(m.turns) {
			return false
		}
		for i, t := range turns {
			if t.ID != m.turns[i].id || t.Status != m.turns[i].status {
				return false
			}
		}
		// What comes next must not reach a turn that has yet to read its message.
		return m.running == nil || m.p.waited(m.running.id) == m.running.waits
	}
	if !eventually(same) {
		var want []string
		for _, t := range m.turns {
			want = append(want, string(t.status))
		}
		s, _ := m.w.Session(ctx, m.id)
		m.t.Fatalf("after %s the session is %s, want %s; turns %+v, want %v\n%s", verb, s.Status, m.status, turns, want, m.w.dump(m.id))
	}
	position := 0
	for _, t := range turns {
		want := 0
		if t.Status == holdfast.TurnQueued {
			position++
			want = position
		}
		if t.QueuePosition != want {
			m.t.Fatalf("turn %d is at position %d, want %d", t.Number, t.QueuePosition, want)
		}
	}
}

// finish checks the whole log and ends the session.
func (m *model) finish() {
	m.w.sound(m.id)
	resumes, started, running := 0, int64(0), holdfast.TurnID("")
	for _, ev := range m.w.log(m.id) {
		switch {
		case ev.Type == holdfast.EventSessionResumed:
			resumes++
		case ev.Type == holdfast.EventTurnStarted:
			var d holdfast.TurnStartedData
			if err := ev.Decode(&d); err != nil {
				m.t.Fatal(err)
			}
			if d.Number <= started || running != "" {
				m.t.Fatalf("turn %d starts after %d, and %q runs\n%s", d.Number, started, running, m.w.dump(m.id))
			}
			started, running = d.Number, ev.Turn
		case ev.EndsTurn() && ev.Turn == running:
			running = ""
		}
	}
	if resumes != m.resumes {
		m.t.Fatalf("%d resumes in the log, want %d\n%s", resumes, m.resumes, m.w.dump(m.id))
	}
	if _, err := m.w.End(m.w.t.Context(), m.id, holdfast.EndSession{Interrupt: true}); err != nil {
		m.t.Fatal(err)
	}
}
