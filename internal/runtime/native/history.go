package native

import (
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/loop"
)

// history is a session's log folded into a conversation, event by event. Any
// prefix of a log gives messages that alternate, begin with the user, and answer
// every tool use once, except those of the newest answer while its turn runs.
type history struct {
	// seq is the newest event folded.
	seq      int64
	messages []model.Message
	// thinking waits for its message.assistant.
	thinking []model.Block
	// open is the newest answer that asked for tools, until what follows it.
	open *step
	// steers joined a turn and have no place yet.
	steers []loop.Joined
	// reminders come before the next thing the user says.
	reminders []string
	// heard is what hooks said outside a turn, for the same place; prompt is the
	// newest message that began a turn.
	heard  []string
	prompt int64

	// The rest is about the newest turn.
	turn  holdfast.TurnID
	live  bool
	usage holdfast.Usage
	steps int
	// spoke: its newest answer asked for no tools.
	spoke      bool
	text, stop string
	// parked is until when it waits for its provider; zero once it went on.
	parked time.Time
	// bytes is about what the messages take.
	bytes int64
	// folder has the commands that messages may name.
	folder *folder.Folder
}

// step is an answer with tool uses: its blocks, and the state of each use.
type step struct {
	blocks []model.Block
	uses   []loop.Use
	// hooked is what hooks said to it.
	hooked []string
}

// filler stands where the user said nothing between two answers.
const filler = "<system-reminder>Go on.</system-reminder>"

// noText stands for an answer without content.
const noText = "(no text)"

// apply folds one event. Events must come in log order.
func (h *history) apply(e holdfast.Event) error {
	h.seq = e.Seq
	if e.Type != holdfast.EventThinking && e.Type != holdfast.EventMessageAssistant {
		h.thinking = nil
	}
	switch e.Type {
	case holdfast.EventMessageUser:
		return fold(e, func(m *holdfast.UserMessage) { h.user(e.Seq, *m) })
	case holdfast.EventTurnStarted:
		h.turn, h.live, h.spoke = e.Turn, true, false
		h.usage, h.steps, h.text, h.stop, h.parked = holdfast.Usage{}, 0, "", "", time.Time{}
	case holdfast.EventThinking:
		return fold(e, func(t *holdfast.Thinking) {
			h.thinking = append(h.thinking, model.Block{
				Type: model.Thinking, Text: t.Text, Signature: t.Signature, Redacted: t.Redacted,
			})
		})
	case holdfast.EventMessageAssistant:
		return fold(e, func(m *holdfast.AssistantMessage) { h.assistant(*m) })
	case holdfast.EventToolRequested, holdfast.EventToolAllowed, holdfast.EventToolDenied,
		holdfast.EventToolStarted, holdfast.EventToolFinished, holdfast.EventToolUnknown:
		return h.tool(e)
	case holdfast.EventTurnCompleted, holdfast.EventTurnFailed, holdfast.EventTurnInterrupted:
		return fold(e, func(t *holdfast.TurnEnded) { h.end(e, t.Message) })
	default:
		return h.remind(e)
	}
	return nil
}

func (h *history) user(seq int64, m holdfast.UserMessage) {
	m.Text = h.folder.Expand(m.Text)
	if m.Steer && h.live {
		h.steers = append(h.steers, loop.Joined{Seq: seq, Text: m.Text})
		return
	}
	h.close()
	h.place(seq)
	h.say(m.Text)
	h.prompt = seq
}

// say adds what the user said, after the reminders that wait for it.
func (h *history) say(text string) {
	for _, r := range h.reminders {
		h.append(model.Block{Type: model.Text, Text: "<system-reminder>" + r + "</system-reminder>"})
	}
	h.reminders = nil
	h.hear(h.heard)
	h.heard = nil
	h.append(model.Block{Type: model.Text, Text: text})
}

func (h *history) append(blocks ...model.Block) {
	h.messages = loop.AppendUser(h.messages, blocks...)
	h.weigh(blocks)
}

func (h *history) weigh(blocks []model.Block) {
	for i := range blocks {
		h.bytes += int64(len(blocks[i].Text)+len(blocks[i].Input)+len(blocks[i].Signature)) + 160
	}
}

// place puts the steering messages up to a log entry into the conversation.
func (h *history) place(upTo int64) {
	n := 0
	for n < len(h.steers) && h.steers[n].Seq <= upTo {
		h.say(h.steers[n].Text)
		n++
	}
	h.steers = slices.Delete(h.steers, 0, n)
}

func (h *history) assistant(m holdfast.AssistantMessage) {
	s, thinking := &step{}, h.thinking
	h.thinking = nil
	if !slices.ContainsFunc(m.Parts, func(p holdfast.Part) bool { return p.Thinking }) {
		s.blocks, thinking = thinking, nil
	}
	if h.unfinished() {
		// An agent of another runtime began with the first calls of an answer before
		// it had said the rest of it.
		s.blocks, s.uses, s.hooked = append(slices.Clone(h.open.blocks), s.blocks...), h.open.uses, h.open.hooked
		h.open = nil
	}
	h.close()
	h.place(m.Seen)
	h.usage, h.steps, h.parked = h.usage.Add(m.Usage), h.steps+1, time.Time{}
	var text []string
	for _, p := range m.Parts {
		switch {
		case p.Thinking:
			if len(thinking) > 0 {
				s.blocks, thinking = append(s.blocks, thinking[0]), thinking[1:]
			}
		case p.ToolUseID != "":
			if slices.ContainsFunc(s.uses, func(u loop.Use) bool { return u.ID == p.ToolUseID }) {
				continue
			}
			s.blocks = append(s.blocks, model.Block{Type: model.ToolUse, ID: p.ToolUseID})
			s.uses = append(s.uses, loop.Use{ID: p.ToolUseID})
		case p.Text != "":
			s.blocks = append(s.blocks, model.Block{Type: model.Text, Text: p.Text})
			text = append(text, p.Text)
		}
	}
	h.spoke = len(s.uses) == 0
	if h.spoke {
		h.text, h.stop = strings.Join(text, "\n"), m.StopReason
		h.answer(s.blocks)
		return
	}
	h.open = s
}

// unfinished reports that calls of the newest answer have no result yet, while its
// turn goes on.
func (h *history) unfinished() bool {
	return h.live && h.open != nil && slices.ContainsFunc(h.open.uses, func(u loop.Use) bool { return u.State != 0 && u.State != loop.Answered })
}

// answer adds a message of the assistant.
func (h *history) answer(blocks []model.Block) {
	if n := len(h.messages); n == 0 || h.messages[n-1].Role == model.Assistant {
		h.append(model.Block{Type: model.Text, Text: filler})
	}
	if len(blocks) == 0 {
		blocks = []model.Block{{Type: model.Text, Text: noText}}
	}
	h.messages = append(h.messages, model.Message{Role: model.Assistant, Blocks: blocks})
	h.weigh(blocks)
}

// tool folds an event of a tool use.
func (h *history) tool(e holdfast.Event) error {
	switch e.Type {
	case holdfast.EventToolRequested:
		return fold(e, func(p *holdfast.ToolRequested) {
			if u := h.use(p.ToolUseID); u != nil && u.State == 0 {
				u.Name, u.Input, u.State = p.Name, p.Input, loop.Requested
			}
		})
	case holdfast.EventToolAllowed:
		return fold(e, func(p *holdfast.ToolDecision) {
			if u := h.pending(p.ToolUseID); u != nil {
				u.State, u.Rewritten = loop.Allowed, p.Input
			}
		})
	case holdfast.EventToolDenied:
		return fold(e, func(p *holdfast.ToolDecision) { h.answered(p.ToolUseID, loop.DeniedResult(*p)) })
	case holdfast.EventToolStarted:
		return fold(e, func(p *holdfast.ToolStarted) {
			if u := h.pending(p.ToolUseID); u != nil {
				u.State, u.Started, u.Began = loop.Started, *p, e.Time
			}
		})
	case holdfast.EventToolFinished:
		return fold(e, func(p *holdfast.ToolFinished) { h.answered(p.ToolUseID, loop.FinishedResult(*p)) })
	case holdfast.EventToolUnknown:
		return fold(e, func(p *holdfast.ToolUnknown) { h.answered(p.ToolUseID, loop.UnknownResult(*p)) })
	}
	return nil
}

// fold decodes an event's payload and hands it on.
func fold[T any](e holdfast.Event, to func(*T)) error {
	var p T
	if err := e.Decode(&p); err != nil {
		return err
	}
	to(&p)
	return nil
}

// use is a use of the open step by its id. Ids count within the newest answer
// only: not every model gives each use of a session an id of its own.
func (h *history) use(id string) *loop.Use {
	if h.open == nil {
		return nil
	}
	for i := range h.open.uses {
		if h.open.uses[i].ID == id {
			return &h.open.uses[i]
		}
	}
	return nil
}

// pending is a use that was requested and not answered.
func (h *history) pending(id string) *loop.Use {
	u := h.use(id)
	if u == nil || u.State == 0 || u.State == loop.Answered {
		return nil
	}
	return u
}

func (h *history) answered(id string, result model.Block) {
	if u := h.pending(id); u != nil {
		u.State, u.Result = loop.Answered, result
	}
}

// requested is the open step without the uses whose tool.requested is not in the
// log: they never began. A step of which nothing was requested never happened.
func (h *history) requested() *step {
	if h.open == nil {
		return nil
	}
	missing := 0
	for i := range h.open.uses {
		if h.open.uses[i].State == 0 {
			missing++
		}
	}
	if missing == len(h.open.uses) {
		return nil
	}
	s := &step{
		uses: make([]loop.Use, 0, len(h.open.uses)-missing), blocks: make([]model.Block, 0, len(h.open.blocks)-missing),
		hooked: h.open.hooked,
	}
	for _, b := range h.open.blocks {
		if b.Type == model.ToolUse {
			i := slices.IndexFunc(h.open.uses, func(u loop.Use) bool { return u.ID == b.ID })
			u := h.open.uses[i]
			if u.State == 0 {
				continue
			}
			b.Name, b.Input = u.Name, u.Input
			s.uses = append(s.uses, u)
		}
		s.blocks = append(s.blocks, b)
	}
	return s
}

// close ends the open step: what is not answered never will be.
func (h *history) close() {
	s := h.requested()
	h.open = nil
	if s == nil {
		return
	}
	h.answer(s.blocks)
	results := make([]model.Block, len(s.uses))
	for i, u := range s.uses {
		results[i] = u.Result
		if u.State != loop.Answered {
			results[i] = loop.AbandonedResult(u)
		}
	}
	h.append(results...)
	h.hear(s.hooked)
}

// end folds a turn's terminal event.
func (h *history) end(e holdfast.Event, why string) {
	if h.live && e.Turn == h.turn {
		h.close()
		h.place(e.Seq)
		h.live = false
	}
	switch e.Type {
	case holdfast.EventTurnInterrupted:
		h.reminders = append(h.reminders, "The user interrupted the previous turn.")
	case holdfast.EventTurnFailed:
		h.reminders = append(h.reminders, "The previous turn failed: "+quoteAll([]string{why})+".")
	}
}

// remind keeps what the model must know of its sandbox for the next message.
func (h *history) remind(e holdfast.Event) error {
	switch e.Type {
	case holdfast.EventHookRan:
		return fold(e, func(r *holdfast.HookRan) { h.hook(e, *r) })
	case holdfast.EventModelRequest:
		return fold(e, func(m *holdfast.ModelRequest) {
			if m.Status != holdfast.StatusOK {
				h.usage = h.usage.Add(m.Usage)
			}
		})
	case holdfast.EventNotice:
		return fold(e, func(n *holdfast.Notice) {
			if n.Code == holdfast.NoticeFilesAtRisk {
				h.warn(e, n.Text)
			}
			if n.Code == loop.NoticeParked && n.Until != nil {
				h.parked = *n.Until
			}
		})
	case holdfast.EventBoxStopped, holdfast.EventBoxLost:
		return fold(e, func(b *holdfast.BoxEnded) {
			if len(b.Processes) > 0 {
				h.reminders = append(h.reminders, "The sandbox ended ("+quoteAll([]string{b.Reason})+
					") and with it these background processes: "+quoteAll(b.Processes)+". They do not run any more.")
			}
		})
	case holdfast.EventSessionResumed:
		return fold(e, func(r *holdfast.Receipt) {
			if len(r.Lost) > 0 {
				h.reminders = append(h.reminders, "The session was resumed. This did not survive: "+quoteAll(r.Lost)+".")
			}
		})
	}
	return nil
}

// warn gives the model a warning: at once if its turn goes on, else with the next
// message.
func (h *history) warn(e holdfast.Event, text string) {
	reminder := "<system-reminder>" + text + "</system-reminder>"
	switch {
	case !h.live || e.Turn != h.turn:
		h.reminders = append(h.reminders, text)
	case h.open != nil:
		h.open.hooked = append(h.open.hooked, reminder)
	default:
		h.hear([]string{reminder})
	}
}

// quoteAll renders values that the agent may have chosen: escaped, without
// anything that could close a reminder.
func quoteAll(values []string) string {
	const most = 20
	var b strings.Builder
	for i, v := range values {
		if i == most {
			b.WriteString(", …")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(holdfast.Quote(v))
	}
	return strings.NewReplacer("<", "‹", ">", "›").Replace(b.String())
}

// conversation is where the live turn stands. What it returns is the caller's;
// the history may go on growing.
func (h *history) conversation(again bool) loop.Conversation {
	c := loop.Conversation{
		Messages: slices.Clone(h.messages), Seen: h.seq, Usage: h.usage, Steps: h.steps, Reissue: again && !h.spoke,
		Parked: h.parked,
	}
	for _, s := range h.steers {
		c.Joined = append(c.Joined, s.Text)
	}
	s := h.requested()
	if s == nil {
		return c
	}
	if n := len(c.Messages); n == 0 || c.Messages[n-1].Role == model.Assistant {
		c.Messages = loop.AppendUser(c.Messages, model.Block{Type: model.Text, Text: filler})
	}
	c.Messages = append(c.Messages, model.Message{Role: model.Assistant, Blocks: s.blocks})
	c.Pending, c.Hooked = s.uses, slices.Clone(s.hooked)
	for _, u := range s.uses {
		c.Reissue = c.Reissue && u.State == loop.Answered
	}
	return c
}
