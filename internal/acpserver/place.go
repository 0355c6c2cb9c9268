package acpserver

import (
	"context"
	"path"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// place is the directory of the editor's machine in which a session works; empty if the session works elsewhere, where
// the editor cannot open the files, or if the directory is not known.
type place string

// placeOf returns the directory of the editor's machine in which a session works. If the server does not say it,
// placeOf returns none.
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
