package loop

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/sandbox"
)

// tell fires the hooks after a tool call and gives its outcome back as they left
// it. They run before the outcome is recorded: what ran in a box is held there
// until then. No hook runs after an interrupted call. changes are the files that differ
// after the call.
func (r *run) tell(ctx context.Context, u *Use, f holdfast.ToolFinished, changes sandbox.Changes) holdfast.ToolFinished {
	if r.env.Hooks == nil || ctx.Err() != nil {
		return f
	}
	in := hook.Input{Event: hook.PostToolUse, ToolName: u.Name, ToolInput: u.runs(), ToolUseID: u.ID, ToolOutput: f.Content}
	if f.IsError || f.Outcome != holdfast.ExitOK {
		in.Event, in.ToolOutput, in.Error = hook.PostToolUseFailure, "", f.Content
	}
	res := r.env.Hooks.Fire(ctx, in)
	if res.ToolOutput != nil && strings.HasPrefix(u.Name, "mcp__") {
		f.Content = clip(valid(*res.ToolOutput))
	}
	if in.Event == hook.PostToolUse && (u.Name == "Write" || u.Name == "Edit") {
		var file struct {
			Path string `json:"file_path"`
		}
		if json.Unmarshal(u.runs(), &file) == nil && file.Path != "" {
			r.env.Hooks.Fire(ctx, hook.Input{Event: hook.FileChanged, ToolName: u.Name, ToolUseID: u.ID, FilePath: file.Path})
		}
	}
	for _, c := range changes.Files {
		r.env.Hooks.Fire(ctx, hook.Input{Event: hook.FileChanged, ToolName: u.Name, ToolUseID: u.ID, FilePath: c.Path, Trigger: string(c.Kind)})
	}
	if untold := changes.Untold(); untold != "" {
		r.add(holdfast.EventNotice, holdfast.Notice{Code: holdfast.NoticeFilesUntold, Text: valid(untold)})
	}
	return f
}

// tellRefused fires the hooks of a call that was refused before anybody was asked.
func (r *run) tellRefused(ctx context.Context, u *Use, why string) {
	if r.env.Hooks == nil || ctx.Err() != nil {
		return
	}
	in := hook.Input{Event: hook.PreToolUse, ToolName: u.Name, ToolInput: u.Input, ToolUseID: u.ID}
	r.env.Hooks.Fire(ctx, in)
	in.Event, in.Error = hook.PermissionDenied, why
	r.env.Hooks.Fire(ctx, in)
}

// tellBatch fires the hooks after all calls of one answer.
func (r *run) tellBatch(ctx context.Context, uses []Use) {
	if r.env.Hooks == nil || ctx.Err() != nil {
		return
	}
	in := hook.Input{Event: hook.PostToolBatch}
	for i := range uses {
		in.ToolUseIDs = append(in.ToolUseIDs, uses[i].ID)
	}
	r.env.Hooks.Fire(ctx, in)
}

// hooked are the texts of hooks that follow the answers of a step.
func (r *run) hooked() []model.Block {
	texts := r.c.Hooked
	r.c.Hooked = nil
	if r.env.Hooks != nil {
		texts = append(texts, r.env.Hooks.Said()...)
	}
	out := make([]model.Block, len(texts))
	for i, t := range texts {
		out[i] = model.Block{Type: model.Text, Text: t}
	}
	return out
}
