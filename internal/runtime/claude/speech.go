package claude

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/transcript"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
	"github.com/holdfast-run/holdfast/policy"
)

const (
	// mostAnswer is the most bytes of one answer: its lines, and early outcomes with emptyBlock more for each.
	mostAnswer, emptyBlock = 32 << 20, 256
	// wholeTime is the longest pause between the blocks of an answer that comes without stream events.
	wholeTime = 200 * time.Millisecond
)

// speech handles the model's answers, the outcomes of tool uses, and the mirrored transcript lines of a turn.
type speech struct {
	t       *runtime.Turn
	host    runtime.Host
	turn    *resident.Run
	letters *letters
	inbox   *inbox
	asks    *requests
	flush   func(context.Context) error

	asm assembler
	// own is the text of the newest answer that the CLI wrote by itself, without a model.
	own string
	// shown is true if live readers got deltas of an answer that is not in the log.
	shown bool
	// leaf is the uuid of the last line of the newest answer. mirrored is the newest leaf that a mirrored
	// transcript line contained, or for which the end of a turn waited in vain.
	leaf, mirrored string
}

// cut ends an answer that is incomplete. If the CLI was interrupted, the part that has arrived is recorded.
func (s *speech) cut(why resident.Cause) {
	if o := s.asm.close(); o != nil && why == resident.Interrupted {
		s.record(o)
	} else if s.shown && why != resident.Interrupted {
		s.turn.Recorder.Notice(holdfast.NoticeVoid, "the agent's answer broke off; what was shown of it is void")
	}
	s.shown = false
}

// streamed handles a stream event: a piece of an answer while it is written.
func (s *speech) streamed(ctx context.Context, l *line, at int64) error {
	d := &l.Event.Delta
	if l.Parent != "" || l.Agent != "" {
		if d.Text != "" && l.Parent != "" {
			s.host.Delta(holdfast.DeltaToolOutput, holdfast.ToolOutput{ToolUseID: l.Parent, Stream: "stdout", Text: resident.Valid(d.Text)})
		}
		return nil
	}
	switch d.Type {
	case "text_delta":
		s.shown = true
		s.host.Delta(holdfast.DeltaText, holdfast.TextDelta{Text: resident.Valid(d.Text)})
	case "thinking_delta":
		s.shown = true
		s.host.Delta(holdfast.DeltaThinking, holdfast.TextDelta{Text: resident.Valid(d.Thinking)})
	}
	done, void := s.asm.event(l, at)
	if void != nil && void.shown {
		s.turn.Recorder.Notice(holdfast.NoticeVoid, "the answer broke off; what was shown of it is void")
	}
	return s.answered(ctx, done)
}

// said handles a line with a block of a model's answer, or with an answer that the CLI wrote by itself.
func (s *speech) said(ctx context.Context, l *line, raw resident.Line) error {
	if l.Parent != "" || l.Agent != "" {
		return nil
	}
	if l.Message.Model == synthetic {
		s.own = textOf(l.Message.Content)
	}
	done := s.asm.message(l, raw.At)
	if o := s.asm.open; o != nil {
		if o.bytes += len(raw.Text); o.bytes > mostAnswer {
			return tooLarge()
		}
		if !o.streamed {
			s.closeLater(o)
		}
	}
	return s.answered(ctx, done)
}

func tooLarge() error {
	return holdfast.Errorf(holdfast.KindTooLarge, op, "one answer of the agent is larger than %d bytes", mostAnswer)
}

// closeLater ends an answer that came without stream events if nothing follows within wholeTime,
// because no line marks its end.
func (s *speech) closeLater(o *answer) {
	n := len(o.blocks)
	s.turn.Decisions.After(wholeTime, func(ctx context.Context) error {
		if s.asm.open != o || len(o.blocks) != n {
			return nil
		}
		if err := s.answered(ctx, s.asm.close()); err != nil {
			return err
		}
		return s.flush(ctx)
	})
}

// closeWhole ends an answer that came without stream events when a line after it shows that it is complete.
func (s *speech) closeWhole(ctx context.Context) error {
	if o := s.asm.open; o == nil || o.streamed {
		return nil
	}
	return s.answered(ctx, s.asm.close())
}

// answered records a complete answer, and starts the decisions on its tool uses.
func (s *speech) answered(ctx context.Context, o *answer) error {
	if o == nil {
		return nil
	}
	s.record(o)
	s.shown = false
	for i := range o.early {
		s.outcome(o.early[i].ToolUseID, &o.early[i])
	}
	if s.t.Hooks != nil {
		// If there are hooks, the answer is committed before any decision on it.
		if err := s.flush(ctx); err != nil {
			return err
		}
	}
	s.asks.answered(ctx, o)
	return nil
}

// record adds the events of an answer to the next commit.
func (s *speech) record(o *answer) {
	seen, _ := s.letters.seen()
	for _, d := range o.drafts(s.t.Session.Model, seen, o.spent()) {
		s.turn.Recorder.Add(d.Type, d.Data)
		switch d := d.Data.(type) {
		case holdfast.AssistantMessage:
			s.turn.Account.Spoke(d, false)
		case holdfast.ToolRequested:
			s.turn.Uses.Know(d)
		}
	}
	s.leaf = o.last
}

// results handles a line with the outcomes of tool uses.
func (s *speech) results(ctx context.Context, l *line) error {
	agent := cmp.Or(l.Agent, l.Parent)
	if agent == "" {
		if err := s.closeWhole(ctx); err != nil {
			return err
		}
	}
	for _, b := range blocks(l.Message.Content) {
		if b.Type != "tool_result" {
			continue
		}
		if o := s.asm.open; agent == "" && o != nil && o.has(b.ToolUseID) {
			// The CLI itself refused this call, and reports that before the answer is complete.
			if o.bytes += len(b.Content) + emptyBlock; o.bytes > mostAnswer {
				return tooLarge()
			}
			o.early = append(o.early, b)
			continue
		}
		s.outcome(resident.UseID(agent, b.ToolUseID), &b)
	}
	return nil
}

// outcome records the outcome of a tool use.
func (s *speech) outcome(id string, b *block) {
	u := s.turn.Uses.Get(id)
	if u == nil {
		return
	}
	s.inbox.drop(func(p pending) bool { return p.Use == id })
	text := clip.Counted(textOf(b.Content), mostContent)
	switch u.State {
	case resident.Requested:
		// The CLI itself refused to run the tool, without asking for a decision.
		s.turn.Uses.Deny(u, policy.Decision{By: Name, Reason: text})
	case resident.Started:
		f := holdfast.ToolFinished{Outcome: holdfast.ExitOK, Content: text, IsError: b.IsError}
		switch {
		case b.IsError && s.turn.Halted:
			f.Outcome = holdfast.ExitCanceled
		case b.IsError:
			f.Outcome = holdfast.ExitError
			if code, ok := exitCode(text); ok && u.Name == "Bash" {
				f.Outcome, f.ExitCode = holdfast.ExitExit, &code
			}
		}
		s.turn.Uses.Finish(u, f)
	default:
		return
	}
	s.host.At("tool-result")
}

// exitCode returns the exit code of a command from the CLI's text; ok is false if it has none.
func exitCode(text string) (code int, ok bool) {
	n, err := fmt.Sscanf(strings.TrimPrefix(text, "Error: "), "Exit code %d", &code)
	return code, n == 1 && err == nil
}

// mirror records the lines that the CLI adds to its transcript.
func (s *speech) mirror(l *line) {
	if len(l.Entries) == 0 {
		return
	}
	state := &s.turn.Recorder.State
	name, ok := transcript.Name(state.AgentID, l.File)
	if !ok {
		s.turn.Recorder.Odd("agent.unknown", "", "the agent reported a transcript that is not its own:  "+holdfast.Quote(clip.Counted(l.File, 200)))
		return
	}
	s.turn.Recorder.Add(holdfast.EventAgentMirrored, holdfast.AgentMirrored{Generation: state.Generation, File: name, Entries: l.Entries})
	for _, e := range l.Entries {
		var head struct {
			UUID string `json:"uuid"`
		}
		if json.Unmarshal(e, &head) == nil && head.UUID != "" && head.UUID == s.leaf {
			s.mirrored = head.UUID
		}
	}
}

// ownAnswer records an answer that the CLI wrote by itself, such as that to /context, without a model.
func (s *speech) ownAnswer(text string) {
	if s.turn.Account.Steps > 0 && s.own != text {
		return
	}
	s.own = ""
	seen, _ := s.letters.seen()
	msg := holdfast.AssistantMessage{
		Parts: []holdfast.Part{{Type: holdfast.PartText, Text: clip.Counted(text, mostContent)}}, Seen: seen, StopReason: "end_turn", Model: s.t.Session.Model,
	}
	s.host.Delta(holdfast.DeltaText, holdfast.TextDelta{Text: msg.Parts[0].Text})
	s.turn.Recorder.Add(holdfast.EventMessageAssistant, msg)
}
