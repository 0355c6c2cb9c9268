package escape

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// readOp reads a path with the file operations, as the files API does. The
// control is the naive server: it opens the path on the host.
func (r *rig) readOp(path string) Row {
	r.Helper()
	path = r.fill(path)
	row := Row{Saw: r.readFile(path), Verdict: Held}
	if row.Saw != "not_found" && row.Saw != "denied" {
		row.Verdict = Escaped
		r.Errorf("a file operation read a file outside of the box, or failed unexpectedly: %q", row.Saw)
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(workspace(r.spec), strings.Repeat("../", 64), path)
	}
	row.Control = r.naive(path)
	r.standing()
	return row
}

func (r *rig) readFile(path string) string {
	var out strings.Builder
	_, err := r.box.Read(r.Context(), wire.ReadRequest{Path: path}, &out)
	if err != nil {
		return string(holdfast.KindOf(err))
	}
	return "ok " + out.String()
}

// naive runs the control: a naive server that opens the given path on the host.
func (r *rig) naive(path string) string {
	r.Helper()
	b, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(b), canary) {
		r.Errorf("the control failed, so the attempt proves nothing: it read %q, error %v", b, err)
	}
	return "os.Open: ok " + string(b)
}

// plantedLink tries to read a file through a symlink that a tool made in the workspace.
func plantedLink(r *rig) Row {
	r.Helper()
	if saw := r.exec(r.box, wire.ExecRequest{Shell: r.fill("ln -sfn {other} planted")}); saw != "exit 0" {
		r.Fatal(saw)
	}
	row := Row{Saw: r.readFile("planted"), Verdict: Held}
	if row.Saw != "not_found" {
		row.Verdict = Escaped
		r.Errorf("a file operation read a file outside of the box, or failed unexpectedly: %q", row.Saw)
	}
	row.Control = r.naive(filepath.Join(workspace(r.spec), "planted"))
	if err := os.Remove(filepath.Join(workspace(r.spec), "planted")); err != nil && !errors.Is(err, os.ErrNotExist) {
		r.Error(err)
	}
	return row
}
