package claude

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/runtime/claude/cli"
	"github.com/holdfast-run/holdfast/internal/runtime/resident"
)

// outcome is the outcome of a tool use of the CLI, as hooks receive it.
type outcome struct {
	Failed bool   `json:"failed,omitempty"`
	Text   string `json:"text,omitempty"`
}

// post handles the CLI's report that a tool use has ended: it runs the hooks, whose texts go to the model.
func (q *requests) post(ctx context.Context, id string, in *hookInput, toolUse string) {
	p := pending{ID: id, Use: resident.UseID(in.Agent, toolUse), Kind: kindPost}
	u := q.turn.Uses.Get(p.Use)
	if q.t.Hooks == nil || u == nil {
		q.inbox.answer(id, reply(id, object{}))
		return
	}
	if q.inbox.has(id) {
		return
	}
	o := outcome{Text: outputOf(in.Output)}
	if in.Event != "PostToolUse" {
		o = outcome{Failed: true, Text: outputOf(in.Error)}
	}
	kept := p
	kept.Input = resident.Marshal(outcome{o.Failed, clip.Counted(o.Text, mostKeptOutcome)})
	if q.inbox.fits(kept) {
		q.inbox.add(kept)
	}
	o.Text = clip.Counted(o.Text, mostContent)
	p.Input = resident.Marshal(o)
	q.fire(ctx, p, u)
}

// listing returns the Listing that finds the files which a tool use changes. It is the zero Listing, which
// lists nothing, if no hook needs the files or the tool's input names the file.
func (q *requests) listing(u *resident.Use) resident.Listing {
	if q.t.Hooks == nil || cli.ChangesNothing(u.Name) || cli.Edited(u.Name, u.Runs()) != "" ||
		!q.t.Hooks.Waits(hook.Input{Event: hook.FileChanged, ToolName: u.Name}) {
		return resident.Listing{}
	}
	return resident.NewListing(q.host, q.t.ID, u)
}

// fire runs the hooks after a tool use, while the CLI's lines are read, and then answers the
// CLI. If the next server calls fire again, hooks whose runs are in the log do not run again.
func (q *requests) fire(ctx context.Context, p pending, u *resident.Use) {
	var o outcome
	hooks := q.t.Hooks
	if hooks == nil || !decode(p.Input, &o) {
		q.turn.Outbox.Pass(reply(p.ID, object{}))
		return
	}
	event := "PostToolUse" // the name of the event in the CLI's format
	about := hook.Input{
		Event: hook.PostToolUse, ToolName: u.Name, ToolInput: u.Runs(), ToolUseID: u.ID, AgentID: u.Agent, ToolOutput: o.Text,
	}
	if o.Failed {
		event = "PostToolUseFailure"
		about.Event, about.ToolOutput, about.Error = hook.PostToolUseFailure, "", o.Text
	}
	before := q.saved
	q.saved = nil
	listed := q.listing(u)
	q.turn.Decisions.Go(u.Agent+"\x00post", func() (resident.Then, error) {
		changes := listed.End(ctx)
		res := hooks.Fire(ctx, about)
		name := about.ToolName
		if file := cli.Edited(name, about.ToolInput); about.Event == hook.PostToolUse && file != "" {
			hooks.Fire(ctx, hook.Input{Event: hook.FileChanged, ToolName: name, ToolUseID: about.ToolUseID, FilePath: file})
		}
		for _, c := range changes.Files {
			hooks.Fire(ctx, hook.Input{Event: hook.FileChanged, ToolName: name, ToolUseID: about.ToolUseID, FilePath: c.Path, Trigger: string(c.Kind), AgentID: about.AgentID})
		}
		out := object{"hookEventName": event}
		if said := append(before, hooks.Said()...); len(said) > 0 {
			out["additionalContext"] = strings.Join(said, "\n")
		}
		if res.ToolOutput != nil && strings.HasPrefix(name, "mcp__") {
			out["updatedMCPToolOutput"] = *res.ToolOutput
		}
		return func(ctx context.Context) error {
			if untold := changes.Untold(); untold != "" {
				q.turn.Recorder.Notice(holdfast.NoticeFilesUntold, resident.Valid(untold))
			}
			q.turn.Outbox.Pass(reply(p.ID, object{"hookSpecificOutput": out}))
			return q.flush(ctx)
		}, nil
	})
}

// outputOf returns a tool's outcome as text, or as JSON if the CLI reports no text.
func outputOf(raw json.RawMessage) string {
	var shell struct {
		Stdout *string `json:"stdout"`
		Stderr string  `json:"stderr"`
	}
	if decode(raw, &shell) && shell.Stdout != nil {
		return strings.TrimSpace(resident.Valid(*shell.Stdout + "\n" + shell.Stderr))
	}
	return resident.Valid(stringOf(raw))
}
