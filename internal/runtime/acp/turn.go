package acp

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/retell"
	"github.com/holdfast-run/holdfast/internal/runtime"
)

// promptLine is the line of the prompt under way, made from the log: the same
// whenever it is made.
func (x *run) promptLine() (json.RawMessage, retell.Told, error) {
	p := x.a.data.Prompt
	var told retell.Told
	var err error
	first := p.Messages[0]
	if first == x.messages[0].seq {
		o := retell.Options{After: p.After, Before: first, Tokens: x.r.cfg.HistoryTokens}
		if told, err = retell.Session(x.ctx, x.host, o); err != nil {
			return nil, told, err
		}
	}
	var texts []string
	for _, m := range x.messages {
		if slices.Contains(p.Messages, m.seq) {
			texts = append(texts, m.text)
		}
	}
	texts = append(texts, x.aside...)
	line, err := request(p.ID, acp.AgentMethodSessionPrompt, acp.PromptRequest{
		SessionId: acp.SessionId(x.a.state.AgentID), Prompt: []acp.ContentBlock{acp.TextBlock(told.Prompt(strings.Join(texts, "\n\n")))},
	})
	return line, told, err
}

// say hands the messages that the agent did not get to it, unless its answer to
// earlier ones is under way.
func (x *run) say() error {
	d := &x.a.data
	if d.Prompt != nil {
		return x.goOn()
	}
	if err := x.setMode(); err != nil {
		return err
	}
	if instructions := x.instructions(); instructions != "" {
		x.aside = append(x.aside, instructions)
	}
	p := &prompt{ID: d.Next, Turn: x.t.ID, After: x.a.state.Upto}
	for _, m := range x.unsaid() {
		p.Messages = append(p.Messages, m.seq)
	}
	d.Next++
	d.Prompt = p
	line, told, err := x.promptLine()
	if err != nil {
		return err
	}
	started := holdfast.AgentStarted{
		Generation: x.a.state.Generation, Runtime: x.r.Name(), AgentID: x.a.state.AgentID, Version: x.a.state.Version, Tier: d.Tier,
		Turns: x.a.state.Turns + told.Turns, Of: x.completed, Truncated: told.Truncated, Reason: d.Reason,
		Call: x.a.state.Call, Box: x.a.state.Box, DurationMS: float64(x.r.cfg.Now().Sub(x.began).Microseconds()) / 1000,
	}
	switch {
	case d.Tier == "":
		started.Tier = holdfast.TierLive
	case d.Tier == holdfast.TierInjected && told.Block == "":
		started.Tier, started.Reason = holdfast.TierFresh, ""
	}
	x.a.send(line, true)
	x.a.state.Turns, x.a.state.Upto = started.Turns, end
	d.Tier, d.Reason, d.Said = "", "", p.Messages[len(p.Messages)-1]
	if err := x.keep(x.ctx, draft(holdfast.EventAgentStarted, started)); err != nil {
		return err
	}
	x.a.state.Upto = end
	x.host.At("prompt-recorded")
	err = x.c.send(line)
	x.host.At("prompted")
	return err
}

// instructions are the agent's own, told once to each new agent.
func (x *run) instructions() string {
	if x.a.data.Most > 0 || x.a.state.Upto > 0 || strings.TrimSpace(x.t.Instructions) == "" {
		return ""
	}
	return "<system-reminder>\nInstructions of this session's agent:\n" + x.t.Instructions + "\n</system-reminder>"
}

// setMode gives the agent the mode that goes with the session's, where it has it.
func (x *run) setMode() error {
	want, ok := x.r.cfg.Profile.Modes[x.t.Session.Mode]
	if !ok {
		want = x.r.cfg.Profile.Modes[""]
	}
	d := &x.a.data
	if want == "" || want == d.Mode || !slices.Contains(d.Modes, want) {
		return nil
	}
	// Its answer is not waited for: prompts come behind it.
	line, err := request(d.Next, acp.AgentMethodSessionSetMode, acp.SetSessionModeRequest{
		SessionId: acp.SessionId(x.a.state.AgentID), ModeId: acp.SessionModeId(want),
	})
	if err != nil {
		return err
	}
	d.Next++
	d.Mode = want
	return x.tell(line)
}

// goOn takes up a prompt that another server sent: what waits for a decision is
// decided.
func (x *run) goOn() error {
	for i := range x.a.data.Prompt.Tools {
		if t := &x.a.data.Prompt.Tools[i]; t.Ask != nil {
			x.decide(t)
		}
	}
	return nil
}

// converse reads until the prompt is answered.
func (x *run) converse() (again bool, res runtime.Result, err error) {
	done := x.ctx.Done()
	var grace <-chan time.Time
	for {
		select {
		case l, ok := <-x.c.lines:
			if !ok {
				return x.lost()
			}
			x.at = l.next
			final, err := x.handle(l.raw)
			if err != nil {
				return false, res, x.failed(err)
			}
			if final != nil {
				return x.answer(final)
			}
		case v := <-x.decided:
			if err := x.decidedOn(v); err != nil {
				return false, res, err
			}
		case <-done:
			done = nil
			if err := x.cancelPrompt(); err != nil {
				return false, res, err
			}
			timer := time.NewTimer(x.r.cfg.Grace)
			defer timer.Stop()
			grace = timer.C
		case <-grace:
			if err := x.kill("it did not stop"); err != nil {
				return false, res, err
			}
			x.at = 0
			x.a.stopped()
			return false, res, x.interrupted()
		}
	}
}

// context is the one for records: the turn's, or what is left after it.
func (x *run) context() context.Context {
	if x.ctx.Err() != nil {
		return x.late
	}
	return x.ctx
}

// answer ends the prompt with the agent's answer to it.
func (x *run) answer(m *message) (again bool, res runtime.Result, err error) {
	p := x.a.data.Prompt
	if x.ctx.Err() != nil {
		return false, res, x.interrupted()
	}
	var said prompted
	if m.Error == nil && json.Unmarshal(m.Result, &said) != nil {
		m.Error = &rpcError{Message: "its answer cannot be read"}
	}
	if m.Error != nil {
		drafts := append(x.flush(""), x.endTools("the agent's turn failed")...)
		x.unsettle()
		if err := x.keep(x.ctx, drafts...); err != nil {
			return false, res, err
		}
		return false, res, x.refused(m.Error)
	}
	usage := holdfast.Usage{
		InputTokens: said.Usage.Input, OutputTokens: said.Usage.Output,
		CacheReadTokens: said.Usage.CacheRead, CacheWriteTokens: said.Usage.CacheWrite,
	}.Clamp()
	stop := cut(said.StopReason, 64)
	if stop == "" {
		stop = "end_turn"
	}
	// What is not over by now will not be: its outcome comes before the last answer.
	drafts := append(x.endTools("the agent ended its turn"), x.flush(stop)...)
	d := &x.a.data
	d.Prompts++
	d.Most = max(d.Most+1, d.Prompts)
	d.Tries, d.Prompt, d.Out = 0, nil, nil
	x.a.state.Turns++
	x.a.state.Upto = end
	x.before = answerSoFar{x.steps, x.text}
	text, steps := x.text, x.steps
	for _, dr := range drafts {
		if a, ok := dr.Data.(holdfast.AssistantMessage); ok {
			x.spoke(a)
			text, steps = x.text, x.steps
		}
	}
	if len(p.Tools) > 0 && !spoke(drafts) {
		// Its last words came before its last tool.
		text = ""
	}
	x.text, x.stop, x.steps = text, stop, steps
	res = x.result(drafts)
	res.Usage = usage
	x.host.At("answered")
	if more, err := x.steered(drafts); more || err != nil {
		return more, res, err
	}
	row, err := x.row()
	if err != nil {
		return false, res, err
	}
	res.States = []holdfast.AgentState{row}
	return false, res, nil
}

// steered takes in messages that joined the turn meanwhile. The agent cannot take
// them while it works: they are its next prompt, in the same turn.
func (x *run) steered(drafts []journal.Draft) (more bool, err error) {
	events, err := x.host.Steered(x.ctx, x.a.data.Said)
	if err != nil {
		return false, err
	}
	for _, ev := range events {
		if ev.Seq <= x.messages[len(x.messages)-1].seq {
			continue
		}
		err := decode(ev, func(m *holdfast.UserMessage) { x.messages = append(x.messages, heard{ev.Seq, m.Text()}) })
		if err != nil {
			return false, err
		}
	}
	if len(x.unsaid()) == 0 {
		return false, nil
	}
	x.steps, x.text = x.before.steps, x.before.text
	x.aside = nil
	return true, x.keep(x.ctx, drafts...)
}

func spoke(drafts []journal.Draft) bool {
	return slices.ContainsFunc(drafts, func(d journal.Draft) bool { return d.Type == holdfast.EventMessageAssistant })
}

// result is that of a turn whose answer is in the log but for drafts.
func (x *run) result(drafts []journal.Draft) runtime.Result {
	stop := x.stop
	if stop == "" {
		stop = "end_turn"
	}
	return runtime.Result{Final: drafts, Seen: x.seen(), Text: x.text, StopReason: stop, Usage: x.usage, Steps: x.steps}
}

// refused is what an error of the agent means for the turn.
func (x *run) refused(e *rpcError) error {
	kind := holdfast.KindUnavailable
	if e.Code == -32000 {
		kind = holdfast.KindUnauthenticated
	}
	said := e.Message
	if detail := strings.Trim(string(e.Data), `"`); len(detail) > 2 && detail != "null" {
		said += ": " + detail
	}
	return holdfast.Errorf(kind, op, "the agent %s failed: %s", holdfast.Quote(x.r.cfg.Profile.Name), holdfast.Quote(cut(said, 1000))).
		WithHint("send the message again")
}

// unsettle ends the prompt without an answer: the agent may know it or not.
func (x *run) unsettle() {
	d := &x.a.data
	if d.Prompt == nil {
		return
	}
	if d.Unsettled == nil {
		after := d.Prompt.After
		d.Unsettled = &after
	}
	d.Most++
	d.Prompt, d.Out = nil, nil
}

// cancelPrompt tells the agent to stop, unless the server is letting go of the turn.
func (x *run) cancelPrompt() error {
	line, err := notify(acp.AgentMethodSessionCancel, acp.CancelNotification{SessionId: acp.SessionId(x.a.state.AgentID)})
	if err != nil {
		return err
	}
	lines := []json.RawMessage{line}
	p := x.a.data.Prompt
	for i := range p.Tools {
		if t := &p.Tools[i]; t.Ask != nil {
			no, err := chosen(t.Ask, "")
			if err != nil {
				return err
			}
			lines, t.Ask = append(lines, no), nil
		}
	}
	for _, l := range lines {
		x.a.send(l, false)
	}
	p.Cancelled = true
	if err := x.keep(x.late); err != nil {
		return errors.Join(context.Cause(x.ctx), err)
	}
	return x.c.send(lines...)
}

// interrupted puts a cancelled turn in order and gives its cause.
func (x *run) interrupted() error {
	drafts := append(x.flush("interrupted"), x.endTools("the turn was interrupted")...)
	x.unsettle()
	if err := x.keep(x.late, drafts...); err != nil {
		return errors.Join(context.Cause(x.ctx), err)
	}
	return context.Cause(x.ctx)
}

// interruptedBefore is a turn that was cancelled when nobody was attached: the agent
// is stopped, what is open in the log is answered.
func (x *run) interruptedBefore() error {
	cause := context.Cause(x.ctx)
	if x.a == nil || x.a.data.Prompt == nil {
		return cause
	}
	// Nothing is touched when the server lets go of the turn.
	if err := x.keep(x.late); err != nil {
		return errors.Join(cause, err)
	}
	if x.a.state.Call != "" {
		var err error
		if x.box, err = x.host.Box(x.late); err == nil && x.box.Boot() == x.a.state.Boot {
			err = x.kill("interrupted")
		}
		if err != nil {
			return errors.Join(cause, err)
		}
	}
	x.at = 0
	x.a.stopped()
	return x.interrupted()
}

// lost is the end of the attachment in the middle of a prompt.
func (x *run) lost() (again bool, res runtime.Result, err error) {
	if x.ctx.Err() != nil {
		if !x.pipeBroke() && x.c.err == nil {
			x.at = 0
			x.a.stopped()
		}
		return false, res, x.interrupted()
	}
	if x.pipeBroke() {
		// The agent may live: the next attachment sees.
		return true, res, nil
	}
	if x.c.err != nil {
		return false, res, x.failed(x.c.err)
	}
	why := x.c.why()
	x.host.Release(x.box, x.a.state.Call)
	return true, res, x.settleLost("the agent has ended: " + why)
}

// failed ends an agent that cannot be understood.
func (x *run) failed(err error) error {
	var bad *garbled
	if !errors.As(err, &bad) && !holdfast.IsKind(err, holdfast.KindTooLarge) {
		return err
	}
	if kerr := x.kill("it cannot be understood"); kerr != nil {
		return errors.Join(err, kerr)
	}
	drafts := append(x.flush("failed"), x.endTools("the agent cannot be understood")...)
	x.unsettle()
	x.at = 0
	x.a.stopped()
	if kerr := x.keep(x.context(), drafts...); kerr != nil {
		return errors.Join(err, kerr)
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s cannot be understood: %w", holdfast.Quote(x.r.cfg.Profile.Name), err).
		WithHint("send the message again: the agent is started anew")
}

// settleLost ends the prompt of an agent whose process is gone. One that had done
// nothing yet is tried once more.
func (x *run) settleLost(reason string) error {
	x.at = 0
	d := &x.a.data
	p := d.Prompt
	if p == nil {
		x.a.stopped()
		return nil
	}
	mine := p.Turn == x.t.ID
	harmless := !p.Produced && len(p.Parts) == 0 && len(x.open) == 0 && !p.Cancelled
	var drafts []journal.Draft
	if mine {
		drafts = append(x.flush("lost"), x.endTools(reason)...)
	}
	x.unsettle()
	x.a.stopped()
	switch {
	case !mine:
	case harmless && d.Tries == 0:
		d.Tries++
		d.Said = p.Messages[0] - 1
		drafts = append(drafts, draft(holdfast.EventNotice, holdfast.Notice{
			Code: "agent.restarted", Text: "the agent ended before it did anything, and is started again: " + reason,
		}))
	default:
		d.Tries = 0
		if err := x.keep(x.ctx, drafts...); err != nil {
			return err
		}
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the agent %s ended in the middle of the turn: %s", holdfast.Quote(x.r.cfg.Profile.Name), reason).
			WithHint("send the message again: the agent is started anew")
	}
	if err := x.keep(x.ctx, drafts...); err != nil {
		return err
	}
	return nil
}
