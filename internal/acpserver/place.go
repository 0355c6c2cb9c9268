package acpserver

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
)

// place is the directory of the editor's machine in which a session works; empty if the session's files are its
// own, in a box, where the editor cannot open them.
type place string

// placeOf returns the place of a session. If the server does not say it, the session has none.
func (s *server) placeOf(ctx context.Context, one holdfast.Session) place {
	if s.cfg.Workspace == nil || one.Workspace == "" {
		return ""
	}
	w, err := s.cfg.Workspace(ctx, one.Workspace)
	if err != nil {
		s.cfg.Log.Warn("tool calls are shown without their files, because the session's directory is not known", "session_id", one.ID, "error", err)
	}
	return place(w.Dir)
}

// file returns the path on the editor's machine of a file that a tool call names; empty if the editor cannot open it.
func (p place) file(name string) string {
	if p == "" || name == "" {
		return ""
	}
	name = strings.ToValidUTF8(name, "")
	if !path.IsAbs(name) {
		name = path.Join(boxDir, name)
	}
	rest, ok := strings.CutPrefix(path.Clean(name), boxDir)
	if !ok || rest != "" && rest[0] != '/' {
		return ""
	}
	return path.Join(string(p), rest)
}

// shown returns the file that a tool call is about, and its change of it as a difference: nil if there is none, or
// if it is too long for an update.
func (p place) shown(tool string, input json.RawMessage) (where []acp.ToolCallLocation, change []acp.ToolCallContent) {
	var in struct {
		FilePath string  `json:"file_path"`
		Path     string  `json:"path"`
		Notebook string  `json:"notebook_path"`
		Offset   int     `json:"offset"`
		Old      *string `json:"old_string"`
		New      *string `json:"new_string"`
		Content  *string `json:"content"`
	}
	if p == "" || json.Unmarshal(input, &in) != nil {
		return nil, nil
	}
	file := p.file(in.FilePath + in.Path + in.Notebook)
	if file == "" {
		return nil, nil
	}
	loc := acp.ToolCallLocation{Path: file}
	if in.Offset > 0 {
		loc.Line = &in.Offset
	}
	if len(input) <= maxInput {
		switch {
		case tool == "Edit" && in.Old != nil && in.New != nil:
			change = []acp.ToolCallContent{acp.ToolDiffContent(file, *in.New, *in.Old)}
		case tool == "Write" && in.Content != nil:
			change = []acp.ToolCallContent{acp.ToolDiffContent(file, *in.Content)}
		}
	}
	return []acp.ToolCallLocation{loc}, change
}
