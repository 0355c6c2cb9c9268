package resident

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
)

// NoticeParked is the code of the notice that a turn waits for its provider; the engine
// and the native runtime read it.
const NoticeParked = "model.parked"

// Message is a message of the user that belongs to the turn.
type Message struct {
	Seq  int64
	Text string
}

// Account holds what was said in one turn, by the user and by the agent, and what it
// used up. The zero value is a turn in which nothing was said.
type Account struct {
	Messages []Message
	// Asides are texts of hooks for the agent that belong to no message.
	Asides []string
	// Warnings are texts that an agent has to get when it starts.
	Warnings []string
	// Steps counts the answers of the model, Text is the newest one, Stop why it ended.
	Steps      int
	Text, Stop string
	Used       holdfast.Usage
	// Parked is the time until which the log says that the turn waits; zero is not.
	Parked time.Time
	// Live: the turn has started in the log; Ended: it has ended.
	Live, Ended bool
}

// Fold takes in an event of the turn that is in the log. An answer that is a part of
// the one before is no step of its own.
func (a *Account) Fold(ev holdfast.Event, part bool) error {
	switch ev.Type {
	case holdfast.EventTurnStarted:
		a.Live = true
	case holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		a.Ended = true
	case holdfast.EventMessageUser:
		return Fold(ev, func(m *holdfast.UserMessage) { a.Messages = append(a.Messages, Message{ev.Seq, m.Text()}) })
	case holdfast.EventHookRan:
		return Fold(ev, a.hooked)
	case holdfast.EventMessageAssistant:
		return Fold(ev, func(m *holdfast.AssistantMessage) { a.Spoke(*m, part) })
	case holdfast.EventNotice:
		return Fold(ev, func(n *holdfast.Notice) {
			if n.Code == NoticeParked && n.Until != nil {
				a.Parked = *n.Until
			}
			if n.Code == holdfast.NoticeFilesAtRisk {
				a.Warnings = append(a.Warnings, n.Text)
			}
		})
	}
	return nil
}

// hooked puts what a hook said with the message that it is about, or with the asides.
func (a *Account) hooked(ran *holdfast.HookRan) {
	for i := range a.Messages {
		if m := &a.Messages[i]; m.Seq == ran.MessageSeq {
			m.Text = hook.Prompted(m.Text, *ran)
			return
		}
	}
	a.Asides = append(a.Asides, hook.Texts(*ran)...)
}

// Spoke takes in an answer of the agent. A part of an answer is no step of its own.
func (a *Account) Spoke(m holdfast.AssistantMessage, part bool) {
	if !part {
		a.Steps++
	}
	var text []string
	for _, p := range m.Parts {
		if s := p.Shown(); s != "" {
			text = append(text, s)
		}
	}
	a.Text, a.Stop, a.Used, a.Parked = strings.Join(text, "\n"), m.StopReason, a.Used.Add(m.Usage), time.Time{}
}

// Last returns the number of the turn's newest message, 0 without any.
func (a *Account) Last() int64 {
	if n := len(a.Messages); n > 0 {
		return a.Messages[n-1].Seq
	}
	return 0
}

// Join takes in messages that joined the turn. Those that it has are passed over.
func (a *Account) Join(events []holdfast.Event) error {
	for _, ev := range events {
		if ev.Seq <= a.Last() {
			continue
		}
		if err := a.Fold(ev, false); err != nil {
			return err
		}
	}
	return nil
}

// Without returns the messages for which told is false.
func (a *Account) Without(told func(seq int64) bool) []Message {
	return slices.DeleteFunc(slices.Clone(a.Messages), func(m Message) bool { return told(m.Seq) })
}
