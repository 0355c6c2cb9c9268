package claude

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast/hook"
)

// outcome is what hooks are told of a tool use that the CLI carried out.
type outcome struct {
	Failed bool   `json:"failed,omitempty"`
	Text   string `json:"text,omitempty"`
}

// post tells the hooks of a tool's outcome, and the model what they say to it.
func (x *run) post(ctx context.Context, id string, in *hookInput, toolUse string) {
	p := pending{ID: id, Use: useID(in.Agent, toolUse), Kind: kindPost}
	u := x.uses[p.Use]
	if x.t.Hooks == nil || u == nil {
		x.answer(p, reply(id, object{}))
		return
	}
	if x.has(id) {
		return
	}
	o := outcome{Text: outputOf(in.Output)}
	if in.Event != "PostToolUse" {
		o = outcome{Failed: true, Text: outputOf(in.Error)}
	}
	kept := p
	kept.Input = bytesOf(outcome{o.Failed, clip(o.Text, mostKeptOutcome)})
	if x.fits(kept) {
		x.mem.Pending = append(x.mem.Pending, kept)
	}
	o.Text = clip(o.Text, mostContent)
	p.Input = bytesOf(o)
	x.fire(ctx, p, u)
}

// fire runs the hooks that follow a tool use, beside the loop, and then answers the CLI.
// Fired again by the next server, hooks whose runs are in the log do not run again.
func (x *run) fire(ctx context.Context, p pending, u *use) {
	var o outcome
	if x.t.Hooks == nil || !decode(p.Input, &o) {
		x.out = append(x.out, reply(p.ID, object{}))
		return
	}
	event := "PostToolUse" // as the CLI calls it
	about := hook.Input{
		Event: hook.PostToolUse, ToolName: u.name, ToolInput: u.runs(), ToolUseID: u.id, AgentID: u.agent, ToolOutput: o.Text,
	}
	if o.Failed {
		event = "PostToolUseFailure"
		about.Event, about.ToolOutput, about.Error = hook.PostToolUseFailure, "", o.Text
	}
	before := x.saved
	x.saved = nil
	listed := x.listed(u)
	x.beside(u.agent+"\x00post", func() verdict {
		changes := listed.end(ctx)
		res := x.t.Hooks.Fire(ctx, about)
		name := about.ToolName
		if file := edited(name, about.ToolInput); about.Event == hook.PostToolUse && file != "" {
			x.t.Hooks.Fire(ctx, hook.Input{Event: hook.FileChanged, ToolName: name, ToolUseID: about.ToolUseID, FilePath: file})
		}
		for _, c := range changes.Files {
			x.t.Hooks.Fire(ctx, hook.Input{Event: hook.FileChanged, ToolName: name, ToolUseID: about.ToolUseID, FilePath: c.Path, Trigger: string(c.Kind), AgentID: about.AgentID})
		}
		out := object{"hookEventName": event}
		if said := append(before, x.t.Hooks.Said()...); len(said) > 0 {
			out["additionalContext"] = strings.Join(said, "\n")
		}
		if res.ToolOutput != nil && strings.HasPrefix(name, "mcp__") {
			out["updatedMCPToolOutput"] = *res.ToolOutput
		}
		return verdict{p: p, body: object{"hookSpecificOutput": out}, untold: changes.Untold()}
	})
}

// outputOf is a tool's outcome as the CLI has it: a text, or JSON.
func outputOf(raw json.RawMessage) string {
	var shell struct {
		Stdout *string `json:"stdout"`
		Stderr string  `json:"stderr"`
	}
	if decode(raw, &shell) && shell.Stdout != nil {
		return strings.TrimSpace(valid(*shell.Stdout + "\n" + shell.Stderr))
	}
	return valid(stringOf(raw))
}
