package builtin

import (
	"context"
	"io"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// The notes that are added to a result of Read, Write or Edit, about the file's text in the user's editor.
const (
	noteUnsaved = "[This is the text in the user's editor, which has not saved it: the file on disk differs. Grep and commands see the disk.]\n"
	noteUnknown = "[%s. This is about the file on disk; the editor may show another text.]\n"
)

// unsaved returns the text of a file that the user's editor has not saved. below is the file's path in the workspace as
// the box found it, so path rules have been checked; it is empty if the file is outside of the workspace. note is a
// text for the model, "" if there is nothing to say.
func unsaved(ctx context.Context, call tool.Call, below string) (text string, differs bool, note string, err error) {
	if call.Unsaved == nil || below == "" {
		return "", false, "", nil
	}
	text, differs, err = call.Unsaved(ctx, below)
	switch {
	case err != nil && ctx.Err() != nil:
		return "", false, "", err
	case err != nil:
		return "", false, strings.Replace(noteUnknown, "%s", clean(firstUpper(reason(err))), 1), nil
	case differs:
		return text, true, noteUnsaved, nil
	}
	return "", false, "", nil
}

// refuseUnsaved returns conflict for a call that would change a file for which the user's editor has unsaved changes,
// unless the box has already received the call. If the call may run, note is a text to add to its result.
func refuseUnsaved(ctx context.Context, call tool.Call, path string) (note string, err error) {
	if call.Unsaved == nil || ctx.Err() != nil {
		return "", nil
	}
	ans, err := call.Box.Read(ctx, wire.ReadRequest{Path: path, Limit: 1, Where: true}, io.Discard)
	switch {
	case ctx.Err() != nil:
		return "", nil // the call that follows reports what happened to ctx
	case holdfast.IsKind(err, holdfast.KindUnavailable):
		return "", err
	case err != nil:
		return "", nil // the call that follows reports this error, or creates the file if it is missing
	}
	_, differs, note, err := unsaved(ctx, call, ans.Below)
	if err != nil || !differs {
		return note, nil
	}
	held, err := call.Box.Calls(ctx)
	if err != nil || holds(held, call.ID) {
		return "", err
	}
	return "", holdfast.Errorf(holdfast.KindConflict, "file.edit", "the file %s was not changed: it has unsaved changes in the user's editor", holdfast.Quote(path)).
		WithHint("ask the user to save the file or to undo the changes; the tool Read shows the editor's text")
}

func firstUpper(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
