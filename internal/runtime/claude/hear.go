package claude

import (
	"context"
	"slices"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// mostUnknown is the most bytes of an unknown line that a notice quotes.
const mostUnknown = 2000

// Hear implements resident.Dialect.
func (x *run) Hear(ctx context.Context, l resident.Line) (resident.Heard, error) {
	if err := x.hear(ctx, l); err != nil {
		return resident.Commit, err
	}
	switch {
	case x.over != nil:
		return resident.Over, nil
	case x.speech.asm.open != nil:
		return resident.Hold, nil
	}
	// If only mirrored transcript lines are due, they may wait a short time for an event of another type.
	if !slices.ContainsFunc(x.turn.Recorder.Due(), func(d journal.Draft) bool { return d.Type != holdfast.EventAgentMirrored }) {
		return resident.Later, nil
	}
	return resident.Commit, nil
}

func (x *run) hear(ctx context.Context, raw resident.Line) error {
	l, err := parseLine(raw.Text)
	if err != nil {
		x.turn.Recorder.Odd("agent.garbage", "", "the agent wrote a line that is not a message:  "+holdfast.Quote(clip.Counted(string(raw.Text), 200)))
		return nil
	}
	switch l.Type {
	case "stream_event":
		return x.speech.streamed(ctx, &l, raw.At)
	case "assistant":
		return x.speech.said(ctx, &l, raw)
	case "user":
		return x.speech.results(ctx, &l)
	case "system":
		return x.system(ctx, &l, raw.Text)
	case "control_request":
		return x.asks.asked(ctx, &l)
	case "control_response":
		return x.replied(&l.Response)
	case "control_cancel_request":
		x.inbox.drop(func(p pending) bool { return p.ID == l.RequestID })
	case "transcript_mirror":
		x.speech.mirror(&l)
	case "command_lifecycle":
		if l.State == "started" {
			x.letters.begins(l.Command)
		}
	case "result":
		return x.resulted(ctx, &l)
	case "keep_alive", "tool_progress", "rate_limit_event", "auth_status", "prompt_suggestion", "tool_use_summary":
	default:
		x.unknown(l.Type, raw.Text)
	}
	return nil
}

// unknown records a line of an unknown kind in a notice, for readers that know the kind.
func (x *run) unknown(kind string, line []byte) {
	x.turn.Recorder.Odd("agent.unknown", "", "the agent sent a message of the unknown kind "+holdfast.Quote(clip.Counted(kind, 60))+": "+clip.Counted(string(line), mostUnknown))
}

// system handles a line of the CLI about itself.
func (x *run) system(ctx context.Context, l *line, raw []byte) error {
	switch l.Subtype {
	case "init", "thinking_tokens", "session_state_changed", "turn_starting", "turn_duration", "post_turn_summary", "stop_hook_summary",
		"task_started", "task_progress", "task_updated", "task_notification", "task_summary", "background_tasks_changed",
		"hook_started", "hook_progress", "hook_response", "permission_denied", "permission_check_status",
		"commands_changed", "session_metadata", "session_title_changed", "shell_cwd", "vcs_state_changed", "file_snapshot":
		// These lines are not recorded: other lines bring their content into the log, or they concern only the CLI.
	case "status":
		return x.speech.closeWhole(ctx)
	case "api_retry":
		x.turn.Recorder.Notice("model.retry", l.retry())
	case "compact_boundary":
		x.turn.Recorder.Notice("agent.compacted", "the agent shortened its view of the conversation; the log keeps all of it")
	case "session_writes_lost", "mirror_error":
		x.turn.Recorder.Notice("agent."+l.Subtype, "the agent could not write its transcript: the log keeps the conversation")
	default:
		x.unknown("system/"+l.Subtype, raw)
	}
	return nil
}

// resulted handles a result line: the CLI has finished its answers to one or more messages.
func (x *run) resulted(ctx context.Context, l *line) error {
	if !x.mem.Shaken {
		// This is the result of a failed start: the process ends by itself, and its stderr says why.
		return nil
	}
	if err := x.speech.answered(ctx, x.speech.asm.close()); err != nil {
		return err
	}
	mine := x.letters.cover(l.Prompts, x.turn.Halted)
	if x.turn.Halted {
		x.letters.done()
		x.over = l
		x.turn.Recorder.Touch()
		return nil
	}
	if !mine && len(x.letters.list) > 0 {
		// This result covers only messages from before this turn.
		return nil
	}
	x.turn.Recorder.Touch()
	if l.IsError || l.Subtype != "success" {
		x.letters.done()
		x.speech.leaf = ""
		if until, ok := x.limited(l); ok {
			return x.park(ctx, until, failureOf(l))
		}
		x.over, x.fail = l, failureOf(l)
		return nil
	}
	if x.letters.open() {
		return nil
	}
	if text := stringOf(l.Result); text != "" {
		x.turn.Account.Text = resident.Valid(text)
		x.speech.ownAnswer(text)
	}
	if l.Stop != "" {
		x.turn.Account.Stop = l.Stop
	}
	// The CLI has received every answer to its requests, because otherwise it would still wait for one.
	x.inbox.drop(func(p pending) bool { return !p.open() })
	x.turn.Outbox.Read()
	x.over = l
	return nil
}

// replied handles the CLI's answer to a request of the server.
func (x *run) replied(a *response) error {
	switch a.RequestID {
	case handshakeID:
		return x.shaken(a)
	case "hf-model":
		if a.Subtype != "success" {
			x.turn.Recorder.Notice("agent.model", "the agent refused the new model and keeps the old one:  "+clip.Counted(stringOf(a.Error), 300))
		}
	}
	return nil
}

// shaken checks the answer to the handshake: whether this runtime can work with this CLI.
func (x *run) shaken(a *response) error {
	if x.mem.Shaken {
		return nil
	}
	var g greeting
	bad := func(format string, args ...any) error {
		return holdfast.Errorf(holdfast.KindUnavailable, op, format, args...).WithHint("install the supported release: holdfast runtime install claude")
	}
	switch {
	case a.Subtype != "success":
		return bad("the Claude Code CLI refused the handshake: %s", clip.Counted(stringOf(a.Error), 300))
	case !decode(a.Response, &g):
		return bad("the Claude Code CLI answered the handshake with %s", holdfast.Quote(clip.Counted(string(a.Response), 100)))
	case g.Version != Version:
		return bad("the Claude Code CLI is release %s, but this server works with %s", holdfast.Quote(g.Version), Version)
	case !g.HooksApplied:
		return bad("the Claude Code CLI did not accept the callbacks by which its tools are decided")
	}
	x.turn.Recorder.State.Version, x.mem.Shaken, x.turn.Ready = g.Version, true, true
	tier := holdfast.TierLive
	if x.plan != nil {
		tier = x.plan.tier
	}
	x.receipt(tier)
	x.host.At("agent-ready")
	return nil
}

// failureOf returns the error for a result that reports a failure, in most cases with a hint what to do.
func failureOf(l *line) error {
	text := strings.TrimSpace(stringOf(l.Result))
	if text == "" {
		var list []string
		if decode(l.Errors, &list) {
			text = strings.Join(list, "; ")
		}
	}
	text = clip.Counted(text, 2<<10)
	e := &holdfast.Error{Op: "model", Kind: holdfast.KindUnavailable, Msg: text, Hint: "send the message again later"}
	switch {
	case l.Status == 401:
		e.Kind, e.Hint = holdfast.KindUnauthenticated, "check the provider's key: ANTHROPIC_API_KEY in the server's environment, or anthropic.key_file"
	case l.Status == 403:
		e.Kind, e.Hint = holdfast.KindDenied, "check the budgets (holdfast session show), and what the provider's key may do"
	case l.Status == 429:
		e.Kind = holdfast.KindBusy
	case l.Status == 413:
		e.Kind, e.Hint = holdfast.KindTooLarge, "start another session, or send less"
	case l.Status >= 400 && l.Status < 500:
		e.Kind, e.Hint = holdfast.KindInvalid, ""
	case l.Subtype == "error_max_turns" || strings.HasPrefix(l.Subtype, "error_max_"):
		e.Kind, e.Hint = holdfast.KindBusy, "send another message to go on"
	}
	if e.Msg == "" {
		e.Msg = "the agent ended the turn: " + l.Subtype + " " + l.Reason
	}
	return e
}
