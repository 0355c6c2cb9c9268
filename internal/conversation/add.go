package conversation

import (
	"iter"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Read is the conversation of a log.
func Read(log iter.Seq2[holdfast.Event, error]) (*Conversation, error) {
	c := new(Conversation)
	return c, c.read(log)
}

// read adds events. Where log fails, what came before it stands.
func (c *Conversation) read(log iter.Seq2[holdfast.Event, error]) error {
	for ev, err := range log {
		if err != nil {
			return err
		}
		if err := c.Add(ev); err != nil {
			*c = Conversation{}
			return err
		}
	}
	err := c.Settle()
	if err != nil {
		*c = Conversation{}
	}
	return err
}

// Add reads the next event of the log; deltas say nothing. It fails with internal on a
// gap, and on an event that is damaged or does not decode. The conversation is of no use
// after that.
func (c *Conversation) Add(ev holdfast.Event) error {
	if ev.Seq == 0 {
		return nil
	}
	if ev.Seq != c.Seq+1 {
		return holdfast.Errorf(holdfast.KindInternal, "conversation", "log entry %d follows %d", ev.Seq, c.Seq)
	}
	if err := ev.Whole(); err != nil {
		return err
	}
	c.Seq = ev.Seq
	if ev.Turn == c.Turn.ID {
		ev.Turn = c.Turn.ID // one string for all events of a turn
	}
	if ev.Agent == "" && ev.Type != holdfast.EventThinking && ev.Type != holdfast.EventMessageAssistant {
		c.thinking = nil
	}
	if ev.Agent != "" {
		return c.child(ev)
	}
	at := Place{ev.Seq, ev.Turn}
	switch ev.Type {
	case holdfast.EventMessageUser:
		return with(ev, func(m holdfast.UserMessage) error { return c.message(&Message{at, m.Text(), m.Steer}) })
	case holdfast.EventTurnStarted:
		c.Turn = Turn{ID: ev.Turn, Live: true}
		if c.said != nil && c.said.Turn == ev.Turn {
			c.Turn.Message = c.said.Seq
		}
		c.item(&Begun{at})
		return nil
	case holdfast.EventThinking:
		return with(ev, func(t holdfast.Thinking) error { c.thinking = append(c.thinking, t); return nil })
	case holdfast.EventMessageAssistant:
		return with(ev, func(m holdfast.AssistantMessage) error { return c.answer(&Answer{Place: at, AssistantMessage: m}) })
	case holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		// The result is in the last answer.
		return with(ev, func(t struct{ Message string }) error {
			return c.end(&Ended{Place: at, How: ev.Type, Message: t.Message})
		})
	case holdfast.EventToolRequested, holdfast.EventToolAllowed, holdfast.EventToolDenied,
		holdfast.EventToolStarted, holdfast.EventToolFinished, holdfast.EventToolUnknown:
		return c.tool(at, ev)
	}
	return c.beside(at, ev)
}

// child reads an event of a child agent. What the child says and does is no part of the
// conversation; what it uses up and the questions that it waits for are the turn's.
func (c *Conversation) child(ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventMessageAssistant:
		return with(ev, func(m holdfast.AssistantMessage) error {
			if ev.Turn == c.Turn.ID {
				c.Turn.Told = c.Turn.Told.Add(m.Usage)
			}
			return nil
		})
	case holdfast.EventModelRequest, holdfast.EventApprovalAsked, holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		return c.beside(Place{ev.Seq, ev.Turn}, ev)
	}
	return nil
}

// with decodes an event's payload and hands it on.
func with[T any](ev holdfast.Event, to func(T) error) error {
	var p T
	if err := ev.Decode(&p); err != nil {
		return err
	}
	return to(p)
}

func (c *Conversation) item(i Item) {
	c.Items = append(c.Items, i)
	c.bytes += weight(i)
}

// weight returns about how many bytes an item takes, and what the View holds for it.
func weight(i Item) int64 {
	n := 400
	switch i := i.(type) {
	case *Message:
		n += len(i.Text)
	case *Answer:
		n += 100 * (len(i.Parts) + len(i.Thinking))
		for _, p := range i.Parts {
			n += len(p.Text)
		}
		for _, t := range i.Thinking {
			n += len(t.Text) + len(t.Signature)
		}
	case *Use:
		n += len(i.Input) + len(i.Rewritten) + len(i.Text)
	case *Ended:
		n += len(i.Message)
	case *Aside:
		n += i.size
	}
	return int64(n)
}

func (c *Conversation) message(m *Message) error {
	c.item(m)
	if m.Steer && c.Turn.Live {
		c.Turn.Steered = m.Seq
		return nil
	}
	c.said = m
	return c.close()
}

func (c *Conversation) answer(a *Answer) error {
	a.Thinking, a.Continues = c.thinking, c.unfinished()
	c.thinking = nil
	if !a.Continues {
		if err := c.close(); err != nil {
			return err
		}
	}
	for _, p := range a.Parts {
		if p.ToolUseID != "" && find(c.uses, p.ToolUseID) == nil {
			u := &Use{ID: p.ToolUseID}
			a.Uses, c.uses = append(a.Uses, u), append(c.uses, u)
		}
	}
	c.item(a)
	c.Turn.Answers, c.Turn.Told, c.Turn.Parked = c.Turn.Answers+1, c.Turn.Told.Add(a.Usage), time.Time{}
	return nil
}

// unfinished reports that calls of the newest answer have no result yet, while its turn
// goes on.
func (c *Conversation) unfinished() bool {
	return c.Turn.Live && slices.ContainsFunc(c.uses, (*Use).waits)
}

// waits: it was requested, and has no result.
func (u *Use) waits() bool { return u.State != Named && u.State != Answered }

func find(uses []*Use, id string) *Use {
	for _, u := range uses {
		if u.ID == id {
			return u
		}
	}
	return nil
}

// tool reads an event of a tool use. Ids count within the newest answer only: not every
// model gives each use of a session an id of its own.
func (c *Conversation) tool(at Place, ev holdfast.Event) error {
	switch ev.Type {
	case holdfast.EventToolRequested:
		return with(ev, func(r holdfast.ToolRequested) error { c.requested(at, r); return nil })
	case holdfast.EventToolFinished:
		return with(ev, func(f holdfast.ToolFinished) error {
			return c.answered(f.ToolUseID, Finished, f.Content, f.IsError)
		})
	case holdfast.EventToolDenied:
		return with(ev, func(d holdfast.ToolDecision) error { return c.answered(d.ToolUseID, Denied, d.Reason, true) })
	case holdfast.EventToolUnknown:
		return with(ev, func(u holdfast.ToolUnknown) error { return c.answered(u.ToolUseID, Lost, u.Reason, true) })
	}
	c.late = append(c.late, ev)
	return nil
}

func (c *Conversation) requested(at Place, r holdfast.ToolRequested) {
	u := find(c.uses, r.ToolUseID)
	if u == nil {
		if u = find(c.loose, r.ToolUseID); u == nil {
			u = &Use{ID: r.ToolUseID}
			c.loose = append(c.loose, u)
		}
	}
	if u.State != Named {
		return
	}
	u.Place, u.Name, u.Input, u.State = at, r.Name, r.Input, Requested
	c.item(u)
}

func (c *Conversation) answered(id string, how Result, text string, isError bool) error {
	u := find(c.uses, id)
	if u == nil {
		u = find(c.loose, id)
	}
	if u != nil && u.waits() {
		u.State, u.Result, u.Text, u.IsError = Answered, how, text, isError
		c.bytes += int64(len(text))
	}
	return nil
}

// Settle reads what was left for later: after it the states of the uses without a result
// are right.
func (c *Conversation) Settle() error {
	late := c.late
	c.late = nil
	for _, ev := range late {
		var err error
		if ev.Type == holdfast.EventToolAllowed {
			err = with(ev, func(d holdfast.ToolDecision) error {
				if u := find(c.uses, d.ToolUseID); u != nil && u.waits() {
					u.State, u.Rewritten = Allowed, d.Input
				}
				return nil
			})
		} else {
			err = with(ev, func(s holdfast.ToolStarted) error {
				if u := find(c.uses, s.ToolUseID); u != nil && u.waits() {
					u.State, u.Intent, u.Began = Started, s, ev.Time
				}
				return nil
			})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// close ends the newest answer: what has no result will have none.
func (c *Conversation) close() error {
	if slices.ContainsFunc(c.uses, (*Use).waits) {
		if err := c.Settle(); err != nil {
			return err
		}
	}
	c.uses, c.loose, c.late = nil, nil, nil
	return nil
}

func (c *Conversation) end(e *Ended) error {
	if e.How == holdfast.EventTurnCompleted {
		c.Completed++
	}
	e.Completed = c.Completed
	c.item(e)
	if !c.Turn.Live || e.Turn != c.Turn.ID {
		return nil
	}
	c.Turn.Live = false
	return c.close()
}

// beside reads what is neither said nor done.
func (c *Conversation) beside(at Place, ev holdfast.Event) error {
	mine := ev.Turn == c.Turn.ID
	switch ev.Type {
	case holdfast.EventHookRan:
		return with(ev, func(r holdfast.HookRan) error { c.item(&Aside{Place: at, Hook: &r, size: len(ev.Data)}); return nil })
	case holdfast.EventNotice:
		return with(ev, func(n holdfast.Notice) error { c.notice(at, ev, n); return nil })
	case holdfast.EventBoxStopped, holdfast.EventBoxLost:
		return with(ev, func(b holdfast.BoxEnded) error {
			if len(b.Processes) > 0 {
				c.item(&Aside{Place: at, Box: &b, size: len(ev.Data)})
			}
			return nil
		})
	case holdfast.EventSessionResumed:
		return with(ev, func(r holdfast.Receipt) error {
			if len(r.Lost) > 0 {
				c.item(&Aside{Place: at, Lost: r.Lost, size: len(ev.Data)})
			}
			return nil
		})
	case holdfast.EventModelRequest:
		return with(ev, func(m holdfast.ModelRequest) error { c.Turn.called(m, mine); return nil })
	case holdfast.EventApprovalAsked:
		return with(ev, func(a holdfast.Approval) error {
			if mine {
				c.Turn.Questions = append(c.Turn.Questions, Question{a, ev.Time})
			}
			return nil
		})
	case holdfast.EventApprovalAnswered, holdfast.EventApprovalExpired:
		return with(ev, func(a holdfast.ApprovalAnswered) error { c.Turn.settle(a.ID, ev.Time); return nil })
	}
	return nil
}

func (c *Conversation) notice(at Place, ev holdfast.Event, n holdfast.Notice) {
	switch {
	case n.Code == holdfast.NoticeFilesAtRisk:
		c.item(&Aside{Place: at, AtRisk: n.Text, size: len(ev.Data)})
	case n.Code == noticeParked && n.Until != nil && ev.Turn == c.Turn.ID:
		c.Turn.Parked = *n.Until
		c.Turn.Waits = append(c.Turn.Waits, Wait{ev.Time, *n.Until})
	}
}

// called counts a model call that was recorded by itself.
func (t *Turn) called(m holdfast.ModelRequest, mine bool) {
	if !mine {
		return
	}
	t.Brokered.Any = t.Brokered.Any || m.Brokered
	switch {
	case m.Status != holdfast.StatusOK:
		t.Failed = t.Failed.Add(m.Usage)
	case m.Brokered:
		t.Brokered.Answers++
		t.Brokered.Usage = t.Brokered.Usage.Add(m.Usage)
	}
}

// settle ends a question, and with it the wait for its answer.
func (t *Turn) settle(id holdfast.ApprovalID, at time.Time) {
	i := slices.IndexFunc(t.Questions, func(q Question) bool { return q.ID == id })
	if i < 0 {
		return
	}
	t.Waits = append(t.Waits, Wait{t.Questions[i].Asked, at})
	t.Questions = slices.Delete(t.Questions, i, i+1)
}
