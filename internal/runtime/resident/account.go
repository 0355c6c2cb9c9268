package resident

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
)

// NoticeParked is the code of the notice that a turn waits for its model provider; packages
// loop, conversation and obs use the same code.
const NoticeParked = "model.parked"

// Message is a user message of the turn: the number of its event, and its text with what hooks added.
type Message struct {
	Seq  int64
	Text string
}

// Account holds the messages, the answers and the usage of one turn. The zero value has none.
type Account struct {
	Messages []Message
	// Asides are texts from hooks that the agent must receive, but that do not belong to a message.
	Asides []string
	// Warnings are texts that an agent must receive when it starts.
	Warnings []string
	// Steps is the number of the model's answers, Text is the newest answer, Stop is the reason why
	// it ended.
	Steps      int
	Text, Stop string
	Used       holdfast.Usage
	// Parked is the time until which the turn waits according to the log, zero if it does not wait.
	Parked time.Time
	// Live is true once the log has the start of the turn, Ended once it has the end.
	Live, Ended bool
}

// Fold adds an event of the turn from the log. If part is true, an answer is the rest of the previous answer
// and is not counted as a step.
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
			if n.OtherFiles() {
				a.Warnings = append(a.Warnings, n.Text)
			}
		})
	}
	return nil
}

// hooked adds the texts of a hook to the message that they are about, or to the asides.
func (a *Account) hooked(ran *holdfast.HookRan) {
	for i := range a.Messages {
		if m := &a.Messages[i]; m.Seq == ran.MessageSeq {
			m.Text = hook.Prompted(m.Text, *ran)
			return
		}
	}
	a.Asides = append(a.Asides, hook.Texts(*ran)...)
}

// Spoke adds an answer of the agent. If part is true, it is the rest of the previous answer and is not
// counted as a step.
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

// Last returns the event number of the turn's newest message, or 0 if there is none.
func (a *Account) Last() int64 {
	if n := len(a.Messages); n > 0 {
		return a.Messages[n-1].Seq
	}
	return 0
}

// Join adds messages that joined the turn, and skips those that it has already.
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

// Without returns the messages for whose event number the function told returns false.
func (a *Account) Without(told func(seq int64) bool) []Message {
	return slices.DeleteFunc(slices.Clone(a.Messages), func(m Message) bool { return told(m.Seq) })
}
