package native

import (
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/conversation"
	"github.com/holdfast-run/holdfast/internal/folder"
	"github.com/holdfast-run/holdfast/internal/loop"
)

// history converts a conversation to messages for a model. Any prefix of a log gives messages that alternate
// between user and assistant, begin with the user, and answer every tool use once, except those of the newest
// answer while its turn runs.
type history struct {
	// items is the number of the conversation's items that were already converted.
	items    int
	messages []model.Message
	// counted is the size of all messages but the last one, because blocks may still be added to the last one.
	counted model.Counted
	// open is the newest answer with tool uses; nil once a later message follows it.
	open *step
	// steers are messages that joined a turn and are not yet among the messages for the model.
	steers []loop.Joined
	// reminders are texts that go before the next message of the user.
	reminders []string
	// heard are texts of hooks that ran outside a turn; they go before the next message of the user, too.
	heard []string
	// told are the positions of the newest message that began a turn and of those that joined it since.
	told []spot

	// The fields turn, live, spoke, text and stop are about the newest turn.
	turn holdfast.TurnID
	live bool
	// spoke is true if the newest answer of the turn has no tool uses.
	spoke      bool
	text, stop string
	// folder is the agent's folder, with the commands that messages may name.
	folder *folder.Folder
}

// spot is the position of a message of the user among the messages for the model: the number of its event, and the
// indexes of its message and of its block there.
type spot struct {
	seq            int64
	message, block int
}

// step is an answer with tool uses: its blocks for the model, and its tool uses.
type step struct {
	blocks []model.Block
	uses   []*conversation.Use
	// hooked are the texts of hooks about its tool uses.
	hooked []string
}

// read converts a conversation to messages for a model. It stores the result as the conversation's View, so
// that the next call adds only the new items.
func read(c *conversation.Conversation, f *folder.Folder) *history {
	h, _ := c.View.(*history)
	if h == nil || h.folder != f {
		h = &history{folder: f, messages: make([]model.Message, 0, len(c.Items)/2+4)}
		c.View = h
	}
	for _, i := range c.Items[h.items:] {
		h.add(i)
	}
	h.items = len(c.Items)
	h.counted.Count(h.messages, len(h.messages)-1)
	return h
}

// filler is the text of the user message that is inserted between two answers, because messages must alternate.
const filler = "<system-reminder>Go on.</system-reminder>"

// noText is the text of an answer without content.
const noText = "(no text)"

func (h *history) add(item conversation.Item) {
	switch i := item.(type) {
	case *conversation.Message:
		h.user(i)
	case *conversation.Begun:
		h.turn, h.live, h.spoke, h.text, h.stop = i.Turn, true, false, "", ""
	case *conversation.Answer:
		h.assistant(i)
	case *conversation.Ended:
		h.end(i)
	case *conversation.Aside:
		h.remind(i)
	}
}

func (h *history) user(m *conversation.Message) {
	text := h.folder.Expand(m.Text)
	if m.Steer && h.live {
		h.steers = append(h.steers, loop.Joined{Seq: m.Seq, Text: text})
		return
	}
	h.close()
	h.place(m.Seq)
	h.told = h.told[:0:0]
	h.say(m.Seq, text)
}

// say adds the message of the user with an event number, after the pending reminders.
func (h *history) say(seq int64, text string) {
	for _, r := range h.reminders {
		h.append(model.Block{Type: model.Text, Text: "<system-reminder>" + r + "</system-reminder>"})
	}
	h.reminders = nil
	h.hear(h.heard)
	h.heard = nil
	h.append(model.Block{Type: model.Text, Text: text})
	last := len(h.messages) - 1
	h.told = append(h.told, spot{seq, last, len(h.messages[last].Blocks) - 1})
}

func (h *history) append(blocks ...model.Block) {
	h.messages = loop.AppendUser(h.messages, blocks...)
}

// place moves the steering messages up to an event number from steers to the messages.
func (h *history) place(upTo int64) {
	n := 0
	for n < len(h.steers) && h.steers[n].Seq <= upTo {
		h.say(h.steers[n].Seq, h.steers[n].Text)
		n++
	}
	h.steers = slices.Delete(h.steers, 0, n)
}

func (h *history) assistant(a *conversation.Answer) {
	s := &step{blocks: make([]model.Block, 0, len(a.Parts)+len(a.Thinking))}
	thinking := make([]model.Block, len(a.Thinking))
	for i, t := range a.Thinking {
		thinking[i] = model.Block{Type: model.Thinking, Text: t.Text, Signature: t.Signature, Redacted: t.Redacted}
	}
	if !slices.ContainsFunc(a.Parts, func(p holdfast.Part) bool { return p.Type == holdfast.PartThinking }) {
		s.blocks, thinking = append(s.blocks, thinking...), nil
	}
	if a.Continues && h.open != nil {
		// An agent of another runtime may start the first tool calls of an answer before the answer is
		// complete, so that the answer comes in parts.
		s.blocks, s.uses, s.hooked = append(slices.Clone(h.open.blocks), s.blocks...), h.open.uses, h.open.hooked
		h.open = nil
	}
	h.close()
	h.place(a.Seen)
	uses := a.Uses
	for _, p := range a.Parts {
		switch p.Type {
		case holdfast.PartThinking:
			if len(thinking) > 0 {
				s.blocks, thinking = append(s.blocks, thinking[0]), thinking[1:]
			}
		case holdfast.PartToolUse:
			if len(uses) == 0 || uses[0].ID != p.ToolUseID {
				continue // the part of the answer before this one has this tool use already
			}
			s.blocks = append(s.blocks, model.Block{Type: model.ToolUse, ID: p.ToolUseID})
			s.uses, uses = append(s.uses, uses[0]), uses[1:]
		default:
			if text := p.Shown(); text != "" {
				s.blocks = append(s.blocks, model.Block{Type: model.Text, Text: text})
			}
		}
	}
	h.spoke = len(s.uses) == 0
	if h.spoke {
		h.text, h.stop = a.Text(), a.StopReason
		h.answer(s.blocks)
		return
	}
	h.open = s
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
}

// requested returns the open step without the uses whose tool.requested is not in the log,
// because these never began. It returns nil if none is left.
func (h *history) requested() *step {
	if h.open == nil {
		return nil
	}
	s := &step{
		uses: make([]*conversation.Use, 0, len(h.open.uses)), blocks: make([]model.Block, 0, len(h.open.blocks)),
		hooked: h.open.hooked,
	}
	for _, b := range h.open.blocks {
		if b.Type == model.ToolUse {
			i := slices.IndexFunc(h.open.uses, func(u *conversation.Use) bool { return u.ID == b.ID })
			u := h.open.uses[i]
			if u.State == conversation.Named {
				continue
			}
			b.Name, b.Input = u.Name, u.Input
			s.uses = append(s.uses, u)
		}
		s.blocks = append(s.blocks, b)
	}
	if len(s.uses) == 0 {
		return nil
	}
	return s
}

// close ends the open step: uses without an outcome never get one.
func (h *history) close() {
	s := h.requested()
	h.open = nil
	if s == nil {
		return
	}
	h.answer(s.blocks)
	results := make([]model.Block, len(s.uses))
	for i, u := range s.uses {
		results[i] = result(u)
	}
	h.append(results...)
	h.hear(s.hooked)
}

// result returns the block with the outcome of a tool use, for the model.
func result(u *conversation.Use) model.Block {
	switch u.Result {
	case conversation.Finished:
		return loop.FinishedResult(holdfast.ToolFinished{ToolUseID: u.ID, Content: u.Text, IsError: u.IsError})
	case conversation.Denied:
		return loop.DeniedResult(holdfast.ToolDecision{ToolUseID: u.ID, Reason: u.Text})
	case conversation.Lost:
		return loop.UnknownResult(holdfast.ToolUnknown{ToolUseID: u.ID, Reason: u.Text})
	}
	return loop.AbandonedResult(pending(u))
}

// pending converts a use of the newest answer to the form with which the loop continues it.
func pending(u *conversation.Use) loop.Use {
	out := loop.Use{ID: u.ID, Name: u.Name, Input: u.Input}
	switch u.State {
	case conversation.Answered:
		out.State, out.Result = loop.Answered, result(u)
		return out
	case conversation.Requested:
		out.State = loop.Requested
	case conversation.Allowed:
		out.State = loop.Allowed
	case conversation.Started:
		out.State = loop.Started
	}
	out.Rewritten, out.Started, out.Began = u.Rewritten, u.Intent, u.Began
	return out
}

// end handles the end of a turn, which may add a reminder for the next message.
func (h *history) end(e *conversation.Ended) {
	if h.live && e.Turn == h.turn {
		h.close()
		h.place(e.Seq)
		h.live = false
	}
	switch e.How {
	case holdfast.EventTurnInterrupted:
		h.reminders = append(h.reminders, "The user interrupted the previous turn.")
	case holdfast.EventTurnFailed:
		h.reminders = append(h.reminders, "The previous turn failed: "+quoteAll([]string{e.Message})+".")
	}
}

// remind adds what the model must know of its sandbox or from hooks to the next message.
func (h *history) remind(a *conversation.Aside) {
	switch {
	case a.Hook != nil:
		h.hook(a)
	case a.AtRisk != "":
		h.warn(a)
	case a.Box != nil:
		h.reminders = append(h.reminders, "The sandbox ended ("+quoteAll([]string{a.Box.Reason})+
			") and with it these background processes: "+quoteAll(a.Box.Processes)+". They do not run any more.")
	case a.Lost != nil:
		h.reminders = append(h.reminders, "The session was resumed. This did not survive: "+quoteAll(a.Lost)+".")
	}
}

// warn adds a warning for the model: to its running turn, else to the next message.
func (h *history) warn(a *conversation.Aside) {
	reminder := "<system-reminder>" + a.AtRisk + "</system-reminder>"
	switch {
	case !h.live || a.Turn != h.turn:
		h.reminders = append(h.reminders, a.AtRisk)
	case h.open != nil:
		h.open.hooked = append(h.open.hooked, reminder)
	default:
		h.hear([]string{reminder})
	}
}

// quoteAll formats values that the agent may have chosen: escaped, so that none can close a
// reminder.
func quoteAll(values []string) string {
	return strings.NewReplacer("<", "‹", ">", "›").Replace(clip.Quoted(values))
}

// stands returns the state of the running turn, from which the loop continues. The caller may change the
// result.
func (h *history) stands(c *conversation.Conversation, again bool) loop.Conversation {
	out := loop.Conversation{
		Messages: append(make([]model.Message, 0, len(h.messages)+8), h.messages...), Counted: h.counted, Seen: c.Seq, Usage: c.Turn.Told.Add(c.Turn.Failed), Steps: c.Turn.Answers,
		Reissue: again && !h.spoke, Parked: c.Turn.Parked,
	}
	for _, s := range h.steers {
		out.Joined = append(out.Joined, s.Text)
	}
	s := h.requested()
	if s == nil {
		return out
	}
	if n := len(out.Messages); n == 0 || out.Messages[n-1].Role == model.Assistant {
		out.Messages = loop.AppendUser(out.Messages, model.Block{Type: model.Text, Text: filler})
	}
	out.Messages = append(out.Messages, model.Message{Role: model.Assistant, Blocks: s.blocks})
	out.Hooked = slices.Clone(s.hooked)
	for _, u := range s.uses {
		out.Pending = append(out.Pending, pending(u))
		out.Reissue = out.Reissue && u.State == conversation.Answered
	}
	return out
}
