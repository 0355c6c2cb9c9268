package acpserver

import (
	"encoding/json"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clip"
	"github.com/holdfast-run/holdfast/internal/conversation"
)

// tool returns the updates for a tool call. They point to files, and show changes of them, only if the editor can
// open them (see place).
func (v *view) tool(step conversation.Step) []acp.SessionUpdate {
	switch s := step.(type) {
	case *conversation.Request:
		return v.requested(s.ToolRequested)
	case *conversation.Permitted:
		if len(s.Input) > 0 { // the input was changed by the decision
			return v.rewritten(s.ToolUseID, s.Input)
		}
	case *conversation.Launched:
		return update(s.ToolUseID, acp.WithUpdateStatus(acp.ToolCallStatusInProgress))
	case *conversation.Output:
		return v.output(s.ToolOutput)
	case *conversation.Outcome:
		return v.outcome(s)
	}
	return nil
}

func (v *view) outcome(o *conversation.Outcome) []acp.SessionUpdate {
	switch o.How {
	case conversation.Denied:
		return v.ended(o.ToolUseID, acp.ToolCallStatusFailed, "denied by "+o.By+": "+o.Text, nil)
	case conversation.Lost:
		return v.ended(o.ToolUseID, acp.ToolCallStatusFailed, "nobody knows whether it ran: "+o.Text, nil)
	}
	f, status := o.Finished, acp.ToolCallStatusCompleted
	if f.IsError || f.Outcome != holdfast.ExitOK && f.Outcome != holdfast.ExitExit {
		status = acp.ToolCallStatusFailed
	}
	out := map[string]any{"outcome": f.Outcome}
	if f.ExitCode != nil {
		out["exit_code"] = *f.ExitCode
	}
	return v.ended(o.ToolUseID, status, o.Text, out)
}

func update(id string, opts ...acp.ToolCallUpdateOpt) []acp.SessionUpdate {
	return []acp.SessionUpdate{acp.UpdateToolCall(acp.ToolCallId(id), opts...)}
}

func (v *view) name(id string) string {
	if t := v.tools[id]; t != nil {
		return t.name
	}
	return "tool"
}

func (v *view) requested(d holdfast.ToolRequested) []acp.SessionUpdate {
	if v.tools == nil || len(v.tools) >= maxTools {
		v.tools = map[string]*toolView{}
	}
	c := v.call(d.Name, d.Input)
	where, change, note := c.shown()
	v.tools[d.ToolUseID] = &toolView{name: d.Name, change: change}
	in := raw(d.Input)
	if in == nil && len(d.Input) > 0 {
		note = leftOut(d.Input)
	}
	if note != "" {
		change = append(content(note+"; it is in the session's log"), change...)
	}
	// The SDK's own constructor would make up an input for a call with a location.
	out := []acp.SessionUpdate{{ToolCall: &acp.SessionUpdateToolCall{
		ToolCallId: acp.ToolCallId(d.ToolUseID), Title: c.title(), Kind: kindOf(d.Name), Status: acp.ToolCallStatusPending,
		RawInput: in, Locations: where, Content: change,
	}}}
	if d.Name == "TodoWrite" {
		out = append(out, plan(d.Input)...)
	}
	return out
}

// rewritten returns the update for a call whose input was changed before it ran. It replaces all that the editor shows of
// the earlier input.
func (v *view) rewritten(id string, input json.RawMessage) []acp.SessionUpdate {
	c := v.call(v.name(id), input)
	where, change, note := c.shown()
	if t := v.tools[id]; t != nil {
		t.change = change
	}
	in := raw(input)
	if in == nil {
		note = leftOut(input)
		in = note
	}
	text := "the call's input was changed before it ran"
	if note != "" {
		text += "; " + note + "; it is in the session's log"
	}
	opts := []acp.ToolCallUpdateOpt{
		acp.WithUpdateTitle(c.title()), acp.WithUpdateRawInput(in), acp.WithUpdateContent(append(content(text), change...)),
	}
	if where != nil {
		opts = append(opts, acp.WithUpdateLocations(where))
	}
	return update(id, opts...)
}

// output returns an update with a running call's output. Each update carries all of the output, so
// updates are sent in steps of growing size.
func (v *view) output(d holdfast.ToolOutput) []acp.SessionUpdate {
	t := v.tools[d.ToolUseID]
	if t == nil || len(t.live) >= maxLive {
		return nil
	}
	t.live += d.Text
	if len(t.live) < t.told+t.told/4+16 && t.told > 0 {
		return nil
	}
	t.told = len(t.live)
	return update(d.ToolUseID, acp.WithUpdateContent(content(clip.Middle(t.live, maxLive))))
}

func (v *view) ended(id string, status acp.ToolCallStatus, text string, out any) []acp.SessionUpdate {
	shown := content(clip.Middle(text, maxResult))
	if t := v.tools[id]; t != nil && status == acp.ToolCallStatusCompleted && t.change != nil {
		shown = t.change
	}
	delete(v.tools, id)
	opts := []acp.ToolCallUpdateOpt{acp.WithUpdateStatus(status), acp.WithUpdateContent(shown)}
	if out != nil {
		opts = append(opts, acp.WithUpdateRawOutput(out))
	}
	return update(id, opts...)
}

func content(text string) []acp.ToolCallContent {
	return []acp.ToolCallContent{acp.ToolContent(acp.TextBlock(text))}
}

func kindOf(tool string) acp.ToolKind {
	switch tool {
	case "Read", "LS":
		return acp.ToolKindRead
	case "Write", "Edit", "NotebookEdit":
		return acp.ToolKindEdit
	case "Glob", "Grep":
		return acp.ToolKindSearch
	case "Bash":
		return acp.ToolKindExecute
	case "WebFetch", "WebSearch":
		return acp.ToolKindFetch
	case "TodoWrite", "Task", "Skill":
		return acp.ToolKindThink
	}
	return acp.ToolKindOther
}

// plan converts a list of todos to the editor's form of a plan.
func plan(input json.RawMessage) []acp.SessionUpdate {
	var in struct {
		Todos []struct {
			Content string `json:"content"`
			Status  string `json:"status"`
		} `json:"todos"`
	}
	if json.Unmarshal(input, &in) != nil || len(input) > maxInput {
		return nil
	}
	entries := []acp.PlanEntry{}
	for _, t := range in.Todos {
		status := acp.PlanEntryStatusPending
		switch t.Status {
		case "in_progress":
			status = acp.PlanEntryStatusInProgress
		case "completed":
			status = acp.PlanEntryStatusCompleted
		}
		entries = append(entries, acp.PlanEntry{Content: t.Content, Priority: acp.PlanEntryPriorityMedium, Status: status})
	}
	return []acp.SessionUpdate{acp.UpdatePlan(entries...)}
}
