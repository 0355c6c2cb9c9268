package conversation

import (
	"iter"
	"slices"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Read returns the conversation that a log describes.
func Read(log iter.Seq2[holdfast.Event, error]) (*Conversation, error) {
	c := new(Conversation)
	return c, c.read(log)
}

// read adds the events of a log. If log fails, the events before the failure stay added; after any
// other error the conversation is empty.
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

// Add adds the next event of the log; deltas are ignored. It fails with internal on a gap in the numbers, and on an event
// that is damaged or does not decode, and with invalid on a rewind to an event that ends no turn. The conversation must
// not be used after an error.
func (c *Conversation) Add(ev holdfast.Event) error {
	if ev.Seq == 0 {
		return nil
	}
	if ev.Seq != c.Seq+1 {
		return holdfast.Errorf(holdfast.KindInternal, "conversation", "the session's log is out of order: event #%d follows event #%d", ev.Seq, c.Seq)
	}
	if err := ev.Whole(); err != nil {
		return err
	}
	c.Seq = ev.Seq
	if ev.Turn == c.Turn.ID {
		ev.Turn = c.Turn.ID // the events of a turn share one string for its id, which saves memory
	}
	if ev.Agent == "" {
		if ev.Type != holdfast.EventThinking && ev.Type != holdfast.EventMessageAssistant {
			c.thinking = nil
		}
		if ev.Type == holdfast.EventToolAllowed || ev.Type == holdfast.EventToolStarted {
			c.late = append(c.late, ev)
			return nil
		}
	}
	if ev.Type == holdfast.EventToolFinished && ev.Agent == "" {
		// Decode only the fields that a conversation uses: the others are only for clients.
		if o := (Outcome{How: Finished}); scanFinished(ev.Data, &o) {
			c.answered(&o)
			return nil
		}
	}
	step, err := Of(ev)
	if err != nil {
		return err
	}
	return c.apply(step, len(ev.Data))
}

// apply adds a step to the conversation. size is the length in bytes of the event's payload.
func (c *Conversation) apply(step Step, size int) error {
	switch s := step.(type) {
	case *Message:
		return c.message(s)
	case *Begun:
		c.Turn = Turn{ID: s.Turn, Live: true}
		if c.said != nil && c.said.Turn == s.Turn {
			c.Turn.Message = c.said.Seq
		}
		c.item(s)
	case *Thought:
		c.thinking = append(c.thinking, s.Thinking)
	case *Answer:
		return c.answer(s)
	case *End:
		// The turn's result text is already in its last answer.
		return c.end(&Ended{Place: s.Place, How: s.How, Message: s.Message})
	case *Request:
		c.requested(s.Place, s.ToolRequested)
	case *Outcome:
		c.answered(s)
	case *Rewound:
		// s.Place.Seq is the number of the session.rewound event, s.Rewound.Seq the event to which the rewind
		// goes back.
		return c.rewound(s.Place.Seq, s.Rewound.Seq)
	default:
		c.beside(step, size)
	}
	return nil
}

func (c *Conversation) item(i Item) {
	c.Items = append(c.Items, i)
	c.bytes += weight(i)
}

// weight returns the approximate memory of an item and of its part of the View, in bytes.
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

// unfinished reports whether the current turn has not ended and tool calls of its newest answer have no
// result yet.
func (c *Conversation) unfinished() bool {
	return c.Turn.Live && slices.ContainsFunc(c.uses, (*Use).waits)
}

// waits reports whether a use was requested and has no result yet.
func (u *Use) waits() bool { return u.State != Named && u.State != Answered }

func find(uses []*Use, id string) *Use {
	for _, u := range uses {
		if u.ID == id {
			return u
		}
	}
	return nil
}

// requested adds a request of a tool use. Ids are compared within the newest answer only, because
// some models use an id again later in the session.
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

func (c *Conversation) answered(o *Outcome) {
	u := find(c.uses, o.ToolUseID)
	if u == nil {
		u = find(c.loose, o.ToolUseID)
	}
	if u != nil && u.waits() {
		u.State, u.Result, u.Text, u.IsError = Answered, o.How, o.Text, o.IsError
		c.bytes += int64(len(o.Text))
	}
}

// Settle applies the decisions and intents that Add put into c.late without decoding them. Only after Settle
// are the states of tool uses without a result right.
func (c *Conversation) Settle() error {
	late := c.late
	c.late = nil
	for _, ev := range late {
		step, err := Of(ev)
		if err != nil {
			return err
		}
		switch s := step.(type) {
		case *Permitted:
			if u := find(c.uses, s.ToolUseID); u != nil && u.waits() {
				u.State, u.Rewritten = Allowed, s.Input
			}
		case *Launched:
			if u := find(c.uses, s.ToolUseID); u != nil && u.waits() {
				u.State, u.Intent, u.Began = Started, s.ToolStarted, s.Time
			}
		}
	}
	return nil
}

// close ends the newest answer: uses without a result will get none.
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

// beside adds a step that is neither a message nor a tool call: a hook, a notice, a box event, a resume, a
// model call or a question.
func (c *Conversation) beside(step Step, size int) {
	switch s := step.(type) {
	case *Hooked:
		c.item(&Aside{Place: s.Place, Hook: &s.HookRan, size: size})
	case *Noticed:
		c.notice(s, size)
	case *BoxEnded:
		if len(s.Processes) > 0 && (s.How == holdfast.EventBoxStopped || s.How == holdfast.EventBoxLost) {
			c.item(&Aside{Place: s.Place, Box: &s.BoxEnded, size: size})
		}
	case *Resumed:
		if len(s.Lost) > 0 {
			c.item(&Aside{Place: s.Place, Lost: s.Lost, size: size})
		}
	case *Called:
		c.Turn.called(s.ModelRequest, s.Turn == c.Turn.ID)
	case *ChildAnswered:
		if s.Turn == c.Turn.ID {
			c.Turn.Told = c.Turn.Told.Add(s.Usage)
		}
	case *Asked:
		if s.Turn == c.Turn.ID {
			c.Turn.Questions = append(c.Turn.Questions, Question{s.Question, s.Time})
		}
	case *Settled:
		c.Turn.settle(s.ID, s.Time)
	}
}

func (c *Conversation) notice(n *Noticed, size int) {
	switch {
	case n.OtherFiles():
		c.item(&Aside{Place: n.Place, AtRisk: n.Text, size: size})
	case n.Code == noticeParked && n.Until != nil && n.Turn == c.Turn.ID:
		c.Turn.Parked = *n.Until
		c.Turn.Waits = append(c.Turn.Waits, Wait{n.Time, *n.Until})
	}
}

// called adds the usage of a model call that has its own event. mine is false for a call of another
// turn, which is ignored.
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

// settle removes the question from the open questions, and adds the time during which it was open to Waits.
func (t *Turn) settle(id holdfast.ApprovalID, at time.Time) {
	i := slices.IndexFunc(t.Questions, func(q Question) bool { return q.ID == id })
	if i < 0 {
		return
	}
	t.Waits = append(t.Waits, Wait{t.Questions[i].Asked, at})
	t.Questions = slices.Delete(t.Questions, i, i+1)
}
