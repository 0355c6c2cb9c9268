package policy

import (
	"context"
	"fmt"

	"github.com/holdfast-run/holdfast"
)

// class is what ByMode knows of a tool.
type class int

const (
	// reads changes nothing and stays in the box.
	reads class = iota + 1
	// notes changes only the agent's own list.
	notes
	// edits changes files.
	edits
	// acts does anything else: runs commands, reaches out, starts agents.
	acts
)

// tools is the fixed set of tool names, in Claude Code's spelling.
var tools = map[string]class{
	"Read": reads, "Glob": reads, "Grep": reads, "LS": reads,
	"TodoWrite": notes,
	"Write":     edits, "Edit": edits,
	"Bash": acts, "WebFetch": acts, "WebSearch": acts, "Task": acts,
}

// modes says which classes a mode lets pass; what would have to be asked is
// denied as long as nobody can be asked.
var modes = map[holdfast.Mode][]class{
	holdfast.ModeBypassPermissions: {reads, notes, edits, acts},
	holdfast.ModeAcceptEdits:       {reads, notes, edits},
	holdfast.ModeDefault:           {reads, notes},
	holdfast.ModeAuto:              {reads, notes},
	holdfast.ModeDontAsk:           {reads, notes},
	holdfast.ModePlan:              {reads},
}

// ByMode decides by the session's permission mode and the tool's name. It is
// pure and safe for concurrent use; a mode or a tool outside the fixed sets is
// denied, and so is a tool that bears a reading tool's name and is not read-only.
type ByMode struct{}

// Decide implements Decider. It never fails.
func (ByMode) Decide(_ context.Context, req Request) (Verdict, error) {
	passes, ok := modes[req.Mode]
	if !ok {
		return deny("mode", "%s is not a permission mode", holdfast.Quote(string(req.Mode))), nil
	}
	c, ok := tools[req.Tool]
	if !ok {
		return deny("mode", "%s is not a tool that permission modes know", holdfast.Quote(req.Tool)), nil
	}
	if c == reads && !req.ReadOnly {
		return deny("mode", "%s claims a reading tool's name but changes things", holdfast.Quote(req.Tool)), nil
	}
	for _, p := range passes {
		if p == c {
			return Verdict{Allow: true, By: "mode"}, nil
		}
	}
	return deny("mode", "permission mode %s does not allow %s; the user can allow it with: holdfast session update %s --mode %s",
		req.Mode, req.Tool, req.Session, holdfast.ModeBypassPermissions), nil
}

func deny(by, format string, args ...any) Verdict {
	return Verdict{By: by, Reason: fmt.Sprintf(format, args...)}
}
