package acpserver

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/jsonrpc"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// lender is a session in a directory, whose editor is shown.
func lender(t *testing.T, dir string, shown func(path string) (any, error)) *session {
	t.Helper()
	toEditor, fromServer := io.Pipe()
	toServer, fromEditor := io.Pipe()
	log := slog.New(slog.DiscardHandler)
	s := &server{cfg: Config{Log: log}, ctx: t.Context()}
	s.peer = jsonrpc.New(jsonrpc.Config{In: toServer, Out: fromServer, Log: log, Serve: func(string, json.RawMessage) jsonrpc.Work { return nil }})
	editor := jsonrpc.New(jsonrpc.Config{In: toEditor, Out: fromEditor, Log: log, Serve: func(_ string, params json.RawMessage) jsonrpc.Work {
		var req struct{ Path string }
		if err := json.Unmarshal(params, &req); err != nil {
			t.Error(err)
		}
		return func(context.Context) (any, error) { return shown(req.Path) }
	}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{}, 2)
	for _, p := range []*jsonrpc.Peer{s.peer, editor} {
		go func() {
			_ = p.Run(ctx)
			ended <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		cancel()
		<-ended
		<-ended
		for _, c := range []io.Closer{toEditor, fromServer, toServer, fromEditor} {
			_ = c.Close()
		}
	})
	return &session{s: s, id: one, ctx: t.Context(), view: view{place: place(dir)}}
}

// TestUnsavedTextIsOfThisFile: while the editor opens a file, the agent puts a symlink in the place of a directory on
// the way, and then the directory back: the text is not taken, because it may be of another file of the machine.
func TestUnsavedTextIsOfThisFile(t *testing.T) {
	top := t.TempDir()
	dir, aside, secrets := filepath.Join(top, "d/src"), filepath.Join(top, "d/aside"), filepath.Join(t.TempDir(), "secrets")
	for _, d := range []string{dir, secrets} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for at, text := range map[string]string{filepath.Join(dir, "f"): "text", filepath.Join(secrets, "f"): "SECRET"} {
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	do := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	attack := true
	o := lender(t, top, func(path string) (any, error) {
		if attack {
			do(os.Rename(dir, aside))
			do(os.Symlink(secrets, dir))
			defer func() {
				do(os.Remove(dir))
				do(os.Rename(aside, dir))
			}()
		}
		b, err := os.ReadFile(path)
		return map[string]string{"content": strings.ReplaceAll(string(b), "text", "unsaved")}, err
	})
	old := time.Now().Add(-reloadTime)
	testkit.Eventually(t, "the file is at rest", func() bool {
		st, err := os.Stat(filepath.Join(dir, "f"))
		return err == nil && st.ModTime().Before(time.Now().Add(-reloadTime)) && time.Now().After(old)
	})
	if text, differs, err := o.unsaved(t.Context(), "d/src/f"); err == nil || differs || text != "" {
		t.Errorf("the text of another file: %q, %v, %v", text, differs, err)
	}
	attack = false
	testkit.Eventually(t, "the directory is at rest", func() bool {
		text, differs, err := o.unsaved(t.Context(), "d/src/f")
		return err == nil && differs && text == "unsaved"
	})
	if err := os.Symlink("src", filepath.Join(top, "d/link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"d/link/f", "none", "d", "../x"} {
		if text, differs, err := o.unsaved(t.Context(), name); err == nil || differs {
			t.Errorf("%s: %q, %v, %v", name, text, differs, err)
		}
	}
}

// TestUnsavedGarbage: an answer of the editor that has no text, or a text that is too long, is an error.
func TestUnsavedGarbage(t *testing.T) {
	dir := t.TempDir()
	for name, data := range map[string]string{"f": "text", "big": strings.Repeat("x", maxUnsaved+1), "latin": "caf\xe9"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var answer any
	o := lender(t, dir, func(string) (any, error) { return answer, nil })
	for _, bad := range []any{nil, map[string]any{}, map[string]any{"content": nil}, map[string]any{"content": 7}, []int{1}, map[string]any{"content": strings.Repeat("x", maxUnsaved+1)}} {
		answer = bad
		if text, differs, err := o.unsaved(t.Context(), "f"); err == nil || differs || text != "" {
			t.Errorf("%.60v: %.60q, %v, %v", bad, text, differs, err)
		}
	}
	answer = map[string]any{"content": "other"}
	for _, name := range []string{"big", "latin"} {
		if _, differs, err := o.unsaved(t.Context(), name); err != nil || differs {
			t.Errorf("%s, which is not compared: %v, %v", name, differs, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := o.unsaved(ended, "f"); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Errorf("an ended connection: %v", err)
	}
}
