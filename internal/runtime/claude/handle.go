package claude

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
)

// mostNotices is how many notices about odd lines a turn records.
const mostNotices = 10

// mostUnknown bounds what is shown of a line of an unknown kind, in bytes.
const mostUnknown = 2000

// mostAnswer bounds an answer that is being put together.
const mostAnswer = 32 << 20

// handle deals with one line.
func (x *run) handle(ctx context.Context, r raw) error {
	at := x.offset
	x.offset = r.next
	x.link.read.Store(r.next)
	if r.met != nil {
		close(r.met)
	}
	before := len(x.due)
	defer func() {
		if len(x.due) > before {
			x.weight += len(r.line)
		}
	}()
	l, err := parseLine(r.line)
	if err != nil {
		x.odd("agent.garbage", "the agent said something that is no message: "+holdfast.Quote(clip(string(r.line), 200)))
		return nil
	}
	switch l.Type {
	case "stream_event":
		return x.streamed(ctx, &l, at)
	case "assistant":
		if l.Parent != "" || l.Agent != "" {
			return nil
		}
		if l.Message.Model == synthetic {
			x.own = textOf(l.Message.Content)
		}
		done := x.asm.message(&l, at)
		if o := x.asm.open; o != nil {
			if o.bytes += len(r.line); o.bytes > mostAnswer {
				return holdfast.Errorf(holdfast.KindTooLarge, op, "an answer of the agent is over %d bytes", mostAnswer)
			}
			if !o.streamed {
				x.deferClose()
			}
		}
		return x.answered(ctx, done)
	case "user":
		return x.results(ctx, &l)
	case "system":
		return x.system(ctx, &l, r.line)
	case "control_request":
		return x.asked(ctx, &l)
	case "control_response":
		return x.replied(&l)
	case "control_cancel_request":
		x.mem.Pending = slices.DeleteFunc(x.mem.Pending, func(p pending) bool { return p.ID == l.RequestID })
	case "transcript_mirror":
		x.mirror(&l)
	case "command_lifecycle":
		x.lifecycle(&l)
	case "result":
		return x.resulted(ctx, &l)
	case "keep_alive", "tool_progress", "rate_limit_event", "auth_status", "prompt_suggestion", "tool_use_summary":
	default:
		x.unknown(l.Type, r.line)
	}
	return nil
}

// unknown passes on a line of a kind that this server does not know, for readers that do.
func (x *run) unknown(kind string, line []byte) {
	x.odd("agent.unknown", "the agent sent a message of the unknown kind "+holdfast.Quote(clip(kind, 60))+": "+clip(valid(string(line)), mostUnknown))
}

// odd records a notice about a line, if there were not too many.
func (x *run) odd(code, text string) {
	switch x.notices++; {
	case x.notices < mostNotices:
		x.notice(code, text)
	case x.notices == mostNotices:
		x.notice(code, text+"; further ones are not told of")
	}
}

// streamed takes a piece of an answer as it comes.
func (x *run) streamed(ctx context.Context, l *line, at int64) error {
	d := &l.Event.Delta
	if l.Parent != "" || l.Agent != "" {
		if d.Text != "" && l.Parent != "" {
			x.host.Delta(holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: l.Parent, Stream: "stdout", Text: valid(d.Text)})
		}
		return nil
	}
	switch d.Type {
	case "text_delta":
		x.shown = true
		x.host.Delta(holdfast.DeltaText, holdfast.TextDelta{Text: valid(d.Text)})
	case "thinking_delta":
		x.shown = true
		x.host.Delta(holdfast.DeltaThinking, holdfast.TextDelta{Text: valid(d.Thinking)})
	}
	done, void := x.asm.event(l, at)
	if void != nil && void.shown {
		x.notice("deltas.void", "the answer broke off; what was shown of it is void")
	}
	return x.answered(ctx, done)
}

// deferClose closes the answer that came without a stream when nothing follows.
func (x *run) deferClose() {
	x.deferred = time.After(wholeTime)
}

// closeAnswer ends an answer whose end nobody told.
func (x *run) closeAnswer(ctx context.Context) error {
	if err := x.answered(ctx, x.asm.close()); err != nil {
		return err
	}
	return x.flush(ctx)
}

// answered records an answer that is complete, and decides what it asks for.
func (x *run) answered(ctx context.Context, o *answer) error {
	if o == nil {
		return nil
	}
	x.record(o)
	x.shown = false
	for i := range o.early {
		x.outcome(o.early[i].ToolUseID, &o.early[i])
	}
	if x.t.Hooks != nil {
		// With hooks an answer is in the log before anybody is asked about it.
		if err := x.flush(ctx); err != nil {
			return err
		}
	}
	for _, p := range slices.Clone(x.mem.Pending) {
		if u := x.uses[p.Use]; p.open() && (u == nil || o.has(p.Use)) {
			x.pursue(ctx, p)
		}
	}
	return nil
}

// record puts an answer into the next commit.
func (x *run) record(o *answer) {
	used := o.spent()
	drafts := o.drafts(x.t.Session.Model, x.seen(), used)
	for _, d := range drafts {
		d.Turn = x.t.ID
		x.due = append(x.due, d)
		if r, ok := d.Data.(holdfast.ToolRequested); ok {
			x.know(use{id: r.ToolUseID, name: r.Name, input: r.Input})
		}
	}
	x.steps, x.used = x.steps+1, x.used.Add(used)
	x.text, x.stop = o.text(), o.stop
	x.mem.Leaf = o.last
}

// seen is the newest message of the user that the CLI works on.
func (x *run) seen() int64 {
	var seq int64
	for _, s := range x.mem.Sent {
		if s.Begun || s.Done {
			seq = max(seq, s.Seq)
		}
	}
	return seq
}

// results takes the outcomes of tool uses.
func (x *run) results(ctx context.Context, l *line) error {
	agent := l.Agent
	if agent == "" && l.Parent != "" {
		agent = l.Parent
	}
	if agent == "" {
		if o := x.asm.open; o != nil && !o.streamed {
			if err := x.answered(ctx, x.asm.close()); err != nil {
				return err
			}
		}
	}
	for _, b := range blocks(l.Message.Content) {
		if b.Type != "tool_result" {
			continue
		}
		if o := x.asm.open; agent == "" && o != nil && o.has(b.ToolUseID) {
			// What the CLI refuses by itself is answered before the answer is complete.
			o.early = append(o.early, b)
			continue
		}
		x.outcome(useID(agent, b.ToolUseID), &b)
	}
	return nil
}

// outcome records what a tool use came to.
func (x *run) outcome(id string, b *block) {
	u := x.uses[id]
	if u == nil {
		return
	}
	x.mem.Pending = slices.DeleteFunc(x.mem.Pending, func(p pending) bool { return p.Use == id })
	text := clip(valid(textOf(b.Content)), mostContent)
	switch u.state {
	case requested:
		// The CLI itself would not carry it out.
		x.add(holdfast.EventToolDenied, holdfast.ToolDecision{
			ToolUseID: u.id, Tool: u.name, InputHash: holdfast.InputHash(u.input), By: Name, Reason: text,
		})
	case started:
		f := holdfast.ToolFinished{
			ToolUseID: u.id, Call: u.call, Outcome: holdfast.ExitOK, Content: text, IsError: b.IsError,
			DurationMS: milliseconds(x.r.cfg.Now().Sub(u.began)),
		}
		switch {
		case b.IsError && x.halted:
			f.Outcome = holdfast.ExitCanceled
		case b.IsError:
			f.Outcome = holdfast.ExitError
			if code, ok := exitCode(text); ok && u.name == "Bash" {
				f.Outcome, f.ExitCode = holdfast.ExitExit, &code
			}
		}
		x.add(holdfast.EventToolFinished, f)
	default:
		return
	}
	u.state = answered
	x.host.At("tool-result")
}

// exitCode is that of a command, as the CLI tells it.
func exitCode(text string) (code int, ok bool) {
	n, err := fmt.Sscanf(strings.TrimPrefix(text, "Error: "), "Exit code %d", &code)
	return code, n == 1 && err == nil
}

// system takes what the CLI says about itself.
func (x *run) system(ctx context.Context, l *line, raw []byte) error {
	switch l.Subtype {
	case "init", "thinking_tokens", "session_state_changed", "turn_starting", "turn_duration", "post_turn_summary", "stop_hook_summary",
		"task_started", "task_progress", "task_updated", "task_notification", "task_summary", "background_tasks_changed",
		"hook_started", "hook_progress", "hook_response", "permission_denied", "permission_check_status",
		"commands_changed", "session_metadata", "session_title_changed", "shell_cwd", "vcs_state_changed", "file_snapshot":
		// What they tell is in the log otherwise, or of the CLI's own household.
	case "status":
		if o := x.asm.open; o != nil && !o.streamed {
			return x.answered(ctx, x.asm.close())
		}
	case "api_retry":
		return x.retrying(l)
	case "compact_boundary":
		x.notice("agent.compacted", "the agent shortened its view of the conversation; the log keeps all of it")
	case "session_writes_lost", "mirror_error":
		x.notice("agent."+l.Subtype, "the agent could not write its transcript: the log keeps the conversation")
	default:
		x.unknown("system/"+l.Subtype, raw)
	}
	return nil
}

// lifecycle follows the messages that were sent.
func (x *run) lifecycle(l *line) {
	for i := range x.mem.Sent {
		if s := &x.mem.Sent[i]; s.UUID == l.Command && l.State == "started" && !s.Begun {
			s.Begun = true
		}
	}
}

// mirror records what the CLI adds to its transcript.
func (x *run) mirror(l *line) {
	if len(l.Entries) == 0 {
		return
	}
	name, ok := transcript.Name(x.state.AgentID, l.File)
	if !ok {
		x.odd("agent.unknown", "the agent told of a transcript that is none of its own: "+holdfast.Quote(clip(l.File, 200)))
		return
	}
	ev := holdfast.AgentMirrored{Generation: x.state.Generation, File: name, Entries: l.Entries}
	x.due = append(x.due, journal.Draft{Type: holdfast.EventAgentMirrored, Turn: x.t.ID, Data: ev})
	for _, e := range l.Entries {
		var head struct {
			UUID string `json:"uuid"`
		}
		if json.Unmarshal(e, &head) == nil && head.UUID != "" && head.UUID == x.mem.Leaf {
			x.mirrored = head.UUID
		}
	}
}

// resulted takes the result of messages that were sent.
func (x *run) resulted(ctx context.Context, l *line) error {
	if !x.mem.Shaken {
		// Of a start that failed: the process ends, and stderr says why.
		return nil
	}
	if err := x.answered(ctx, x.asm.close()); err != nil {
		return err
	}
	mine := false
	for i := range x.mem.Sent {
		s := &x.mem.Sent[i]
		if slices.Contains(l.Prompts, s.UUID) || len(l.Prompts) == 0 && (s.Begun || x.halted) {
			mine = mine || !s.Done
			s.Begun, s.Done = true, true
		}
	}
	if x.halted {
		for i := range x.mem.Sent {
			x.mem.Sent[i].Done = true
		}
		x.over, x.dirty = l, true
		return nil
	}
	if !mine && len(x.mem.Sent) > 0 {
		// Of something that was said before this turn.
		return nil
	}
	x.dirty = true
	if l.IsError || l.Subtype != "success" {
		for i := range x.mem.Sent {
			x.mem.Sent[i].Done = true
		}
		x.mem.Leaf = ""
		if until, ok := x.limited(l); ok {
			return x.park(ctx, until, failureOf(l))
		}
		x.over, x.fail = l, failureOf(l)
		return nil
	}
	if slices.ContainsFunc(x.mem.Sent, func(s sent) bool { return !s.Done }) {
		return nil
	}
	if text := stringOf(l.Result); text != "" {
		x.text = valid(text)
		x.ownAnswer(text)
	}
	if l.Stop != "" {
		x.stop = l.Stop
	}
	// It had every answer, or it would be waiting still.
	x.mem.Pending = slices.DeleteFunc(x.mem.Pending, func(p pending) bool { return !p.open() })
	x.over = l
	return nil
}

// ownAnswer records what the CLI answers a message by itself, as to /context: no model was
// asked, and no answer of one is in the log.
func (x *run) ownAnswer(text string) {
	if x.steps > 0 && x.own != text {
		return
	}
	x.own = ""
	msg := holdfast.AssistantMessage{
		Parts: []holdfast.Part{{Type: holdfast.PartText, Text: clip(valid(text), mostContent)}}, Seen: x.seen(), StopReason: "end_turn", Model: x.t.Session.Model,
	}
	x.host.Delta(holdfast.DeltaText, holdfast.TextDelta{Text: msg.Parts[0].Text})
	x.add(holdfast.EventMessageAssistant, msg)
}

// retrying tells that the CLI asks the model again.
func (x *run) retrying(l *line) error {
	wait := time.Duration(l.RetryDelay * float64(time.Millisecond))
	what := "the model's provider did not answer"
	if l.ErrorStatus != 0 {
		what = fmt.Sprintf("the model's provider answered %d", l.ErrorStatus)
	}
	x.notice("model.retry", fmt.Sprintf("%s; trying again in %s (%d of %d)", what, wait.Round(time.Millisecond), l.Attempt+1, l.MaxRetries+1))
	return nil
}
