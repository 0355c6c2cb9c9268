package loop

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/sandbox"
)

// teller tells the hooks of a turn about its tool calls. Without hooks it does nothing.
type teller struct {
	hooks hook.Turn
	batch *batch
}

// watched returns a context with which a call reports the files that it changed. It does so
// only if a hook waits for them, because finding them takes time.
func (t *teller) watched(ctx context.Context, u *Use) (context.Context, *sandbox.Changes) {
	all := &sandbox.Changes{}
	if t.hooks == nil || !t.hooks.Waits(hook.Input{Event: hook.FileChanged, ToolName: u.Name}) {
		return ctx, all
	}
	return sandbox.Watched(ctx, func(c sandbox.Changes) {
		all.Files, all.More = append(all.Files, c.Files...), all.More+c.More
		if c.Unseen != "" {
			all.Unseen = c.Unseen
		}
	}), all
}

// finished fires the hooks after a tool call and returns the call's outcome, in which a hook may
// have replaced the result of an MCP tool. The hooks run before the outcome is recorded; until then
// the box remembers the call. No hook runs once the turn is cancelled. changes are the files that
// the call changed.
func (t *teller) finished(ctx context.Context, u *Use, f holdfast.ToolFinished, changes sandbox.Changes) holdfast.ToolFinished {
	if t.hooks == nil || ctx.Err() != nil {
		return f
	}
	in := hook.Input{Event: hook.PostToolUse, ToolName: u.Name, ToolInput: u.runs(), ToolUseID: u.ID, ToolOutput: f.Content}
	if f.IsError || f.Outcome != holdfast.ExitOK {
		in.Event, in.ToolOutput, in.Error = hook.PostToolUseFailure, "", f.Content
	}
	res := t.hooks.Fire(ctx, in)
	if res.ToolOutput != nil && strings.HasPrefix(u.Name, "mcp__") {
		f.Content = clip.Counted(*res.ToolOutput, maxContent)
	}
	if in.Event == hook.PostToolUse && (u.Name == "Write" || u.Name == "Edit") {
		var file struct {
			Path string `json:"file_path"`
		}
		if json.Unmarshal(u.runs(), &file) == nil && file.Path != "" {
			t.hooks.Fire(ctx, hook.Input{Event: hook.FileChanged, ToolName: u.Name, ToolUseID: u.ID, FilePath: file.Path})
		}
	}
	for _, c := range changes.Files {
		t.hooks.Fire(ctx, hook.Input{Event: hook.FileChanged, ToolName: u.Name, ToolUseID: u.ID, FilePath: c.Path, Trigger: string(c.Kind)})
	}
	if untold := changes.Untold(); untold != "" {
		t.batch.add(holdfast.EventNotice, holdfast.Notice{Code: holdfast.NoticeFilesUntold, Text: valid(untold)})
	}
	return f
}

// refused runs the hooks for a call that was refused, as invalid or of an unknown tool, before the
// policy was asked.
func (t *teller) refused(ctx context.Context, u *Use, why string) {
	if t.hooks == nil || ctx.Err() != nil {
		return
	}
	in := hook.Input{Event: hook.PreToolUse, ToolName: u.Name, ToolInput: u.Input, ToolUseID: u.ID}
	t.hooks.Fire(ctx, in)
	in.Event, in.Error = hook.PermissionDenied, why
	t.hooks.Fire(ctx, in)
}

// answered fires the hooks after all calls of one answer of the model.
func (t *teller) answered(ctx context.Context, uses []Use) {
	if t.hooks == nil || ctx.Err() != nil {
		return
	}
	in := hook.Input{Event: hook.PostToolBatch}
	for i := range uses {
		in.ToolUseIDs = append(in.ToolUseIDs, uses[i].ID)
	}
	t.hooks.Fire(ctx, in)
}

// said returns texts of hooks as blocks for the model, to follow the results of a step: the given texts, and
// those that hooks returned since the last call of said.
func (t *teller) said(texts []string) []model.Block {
	if t.hooks != nil {
		texts = append(texts, t.hooks.Said()...)
	}
	out := make([]model.Block, len(texts))
	for i, text := range texts {
		out[i] = model.Block{Type: model.Text, Text: text}
	}
	return out
}
