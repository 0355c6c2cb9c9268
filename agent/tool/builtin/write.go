package builtin

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast/agent/tool"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

var writeSpec = tool.Spec{
	Name:        "Write",
	Description: "Writes a file, replacing what was there. Missing directories are made. To change a part of a file use Edit.",
	Schema: schema(`{"type":"object","properties":{` +
		`"file_path":{"type":"string","description":"The file; relative paths are relative to the workspace"},` +
		`"content":{"type":"string","description":"The whole new content"}` +
		`},"required":["file_path","content"],"additionalProperties":false}`),
	Effect: tool.Mutate, Where: tool.InBox,
}

func runWrite(ctx context.Context, call tool.Call) (tool.Result, error) {
	in := newInput(call.Input)
	path := in.filled("file_path")
	content := in.text("content", true)
	if err := in.done(); err != nil {
		return tool.Result{}, err
	}
	note, err := refuseUnsaved(ctx, call, path)
	if err != nil {
		return tool.Result{}, err
	}
	return once(ctx, call, func(ctx context.Context, id sandbox.Call) (string, error) {
		ans, err := call.Box.Write(ctx, id, wire.WriteRequest{Path: path, Parents: true}, []byte(content))
		if err != nil {
			return "", err
		}
		did := "Replaced"
		if ans.Created {
			did = "Created"
		}
		return note + fmt.Sprintf("%s %s: %s, %s", did, show(path), count(int64(lineCount(content)), "line"), count(ans.Size, "byte")), nil
	})
}

var editSpec = tool.Spec{
	Name: "Edit",
	Description: "Replaces text in a file. old_string must be in the file exactly once, spaces and indentation included; " +
		"with replace_all every occurrence is replaced.",
	Schema: schema(`{"type":"object","properties":{` +
		`"file_path":{"type":"string","description":"The file; relative paths are relative to the workspace"},` +
		`"old_string":{"type":"string","description":"The text to replace, without line numbers"},` +
		`"new_string":{"type":"string","description":"The text to put in its place"},` +
		`"replace_all":{"type":"boolean","description":"Replace every occurrence (default false)"}` +
		`},"required":["file_path","old_string","new_string"],"additionalProperties":false}`),
	Effect: tool.Mutate, Where: tool.InBox,
}

func runEdit(ctx context.Context, call tool.Call) (tool.Result, error) {
	in := newInput(call.Input)
	req := wire.EditRequest{
		Path: in.filled("file_path"), Old: in.text("old_string", true), New: in.text("new_string", true),
		All: in.flag("replace_all", false),
	}
	if err := in.done(); err != nil {
		return tool.Result{}, err
	}
	note, err := refuseUnsaved(ctx, call, req.Path)
	if err != nil {
		return tool.Result{}, err
	}
	return once(ctx, call, func(ctx context.Context, id sandbox.Call) (string, error) {
		ans, err := call.Box.Edit(ctx, id, req)
		if err != nil {
			return "", err
		}
		text := note + fmt.Sprintf("Replaced %s in %s", count(int64(ans.Replaced), "occurrence"), show(req.Path))
		if ans.Snippet != "" {
			text += ":\n" + ans.Snippet
		}
		return text, nil
	})
}

func lineCount(s string) int {
	n := strings.Count(s, "\n")
	if s != "" && !strings.HasSuffix(s, "\n") {
		n++
	}
	return n
}

// count returns a number with its noun in the singular or plural.
func count(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// show returns a path for use in a line of text, quoted if it has control characters.
func show(path string) string {
	for _, r := range path {
		if r < 0x20 || r == 0x7f {
			return fmt.Sprintf("%q", path)
		}
	}
	return path
}
