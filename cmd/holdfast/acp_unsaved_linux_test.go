package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// calls returns a script for a turn that makes calls; each is a tool's name and its input.
func calls(t *testing.T, pairs ...any) string {
	t.Helper()
	var steps []any
	for i := 0; i < len(pairs); i += 2 {
		steps = append(steps, map[string]any{"tool": pairs[i], "input": pairs[i+1]})
	}
	b, err := json.Marshal(append(steps, map[string]any{"say": "done"}))
	if err != nil {
		t.Fatal(err)
	}
	return "<script>" + string(b) + "</script>"
}

type in map[string]any

// results returns the results of the session's last n tool calls.
func (p *process) results(id holdfast.SessionID, n int) []holdfast.ToolFinished {
	p.t.Helper()
	var out []holdfast.ToolFinished
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if ev.Type == holdfast.EventToolFinished {
			out = append(out, payload[holdfast.ToolFinished](p.t, ev))
		}
	}
	if len(out) < n {
		p.t.Fatalf("%d calls have results: %+v", len(out), out)
	}
	return out[len(out)-n:]
}

// asksFor returns the paths that the editor was asked for since the last call.
func (d *editor) asksFor() (paths []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range d.read {
		if r.Line != nil || r.Limit != nil {
			d.t.Errorf("asked for a part of %s: line %v, limit %v", r.Path, r.Line, r.Limit)
		}
		paths = append(paths, r.Path)
	}
	d.read = nil
	return slices.Compact(paths)
}

// settle waits until main.go is older than the time for which an editor may be behind.
func settle(t *testing.T, dir string) {
	t.Helper()
	testkit.Eventually(t, "the directory is at rest", func() bool {
		st, err := os.Stat(filepath.Join(dir, "main.go"))
		return err == nil && time.Since(st.ModTime()) > 2*time.Second
	})
}

// TestACPReadsUnsavedText: a file that the editor has open and has not saved is read as the editor shows it, and is not
// changed until it is saved; path rules hold, and nothing outside of the directory is asked for.
func TestACPReadsUnsavedText(t *testing.T) {
	dir := project(t)
	p := launchOn(t, filepath.Join(testkit.BaseDir(t), "data"), "local", holdfast.Untrusted, "--set", "permissions.deny=Read(secret.txt)")
	file := filepath.Join(dir, "main.go")
	for name, text := range map[string]string{"secret.txt": "s", "crlf.txt": "one\r\ntwo\r\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	give(t, dir)
	var buffer atomic.Pointer[string]
	show := func(text string) { buffer.Store(&text) }
	show("package unsaved\n")
	d := p.editLending(func(_ context.Context, req acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
		switch filepath.Base(req.Path) {
		case "main.go":
			return acp.ReadTextFileResponse{Content: *buffer.Load()}, nil
		case "crlf.txt":
			return acp.ReadTextFileResponse{Content: "one\ntwo\n"}, nil
		}
		return acp.ReadTextFileResponse{}, errors.New("not open")
	}, "--mode", "bypassPermissions")
	made, err := d.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
	if err != nil {
		t.Fatal(err)
	}
	id := holdfast.SessionID(made.SessionId)
	settle(t, dir)
	d.ask(made.SessionId, calls(t, "Read", in{"file_path": "main.go"}, "Edit", in{"file_path": "/workspace/main.go", "old_string": "main", "new_string": "other"},
		"Write", in{"file_path": "main.go", "content": "x"}, "Grep", in{"pattern": "package", "output_mode": "content"}))
	got := p.results(id, 4)
	if !strings.Contains(got[0].Content, "package unsaved") || strings.Contains(got[0].Content, "package main") || !strings.Contains(got[0].Content, "has not saved") || got[0].IsError {
		t.Errorf("the model read %q", got[0].Content)
	}
	for _, r := range got[1:3] {
		if !r.IsError || !strings.Contains(r.Content, "unsaved changes") || !strings.Contains(r.Content, "save the file") {
			t.Errorf("a change of the file: %q", r.Content)
		}
	}
	if !strings.Contains(got[3].Content, "package main") {
		t.Errorf("a search found %q; it searches the disk", got[3].Content)
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "package main\n" {
		t.Errorf("the file is %q, %v", b, err)
	}
	if got := d.asksFor(); !slices.Equal(got, []string{file}) {
		t.Errorf("the editor was asked for %q", got)
	}

	show("package main\n")
	d.readsWhatIsSaved(p, made.SessionId)
	d.isNotAskedOutside(made.SessionId, file)
}

// readsWhatIsSaved checks that what is saved, and what only line ends tell apart, is read from the disk and may be
// changed, also while the editor does not show a change yet.
func (d *editor) readsWhatIsSaved(p *process, id acp.SessionId) {
	d.t.Helper()
	d.ask(id, calls(d.t, "Read", in{"file_path": "crlf.txt"}, "Edit", in{"file_path": "main.go", "old_string": "main", "new_string": "other"},
		"Write", in{"file_path": "fresh.go", "content": "package fresh\n"}))
	for _, r := range p.results(holdfast.SessionID(id), 3) {
		if r.IsError || strings.Contains(r.Content, "editor") {
			d.t.Errorf("a file without unsaved changes: %q", r.Content)
		}
	}
	// The editor shows the change a moment later.
	behind := atomic.Int32{}
	d.mu.Lock()
	d.lend = func(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
		if behind.Add(1) < 3 {
			return acp.ReadTextFileResponse{Content: "package main\n"}, nil
		}
		return acp.ReadTextFileResponse{Content: "package other\n"}, nil
	}
	d.mu.Unlock()
	d.ask(id, calls(d.t, "Edit", in{"file_path": "main.go", "old_string": "other", "new_string": "third"}))
	if r := p.results(holdfast.SessionID(id), 1)[0]; r.IsError {
		d.t.Errorf("an editor that is behind: %q", r.Content)
	}
	d.asksFor()
}

// isNotAskedOutside checks that the editor is asked for no file outside of the directory, nor for one that a rule hides.
func (d *editor) isNotAskedOutside(id acp.SessionId, file string) {
	d.t.Helper()
	d.ask(id, calls(d.t, "Bash", in{"command": "ln -s /etc/hostname out; ln -s main.go link; echo x > /tmp/x"}, "Read", in{"file_path": "secret.txt"},
		"Read", in{"file_path": "/etc/passwd"}, "Read", in{"file_path": "out"}, "Read", in{"file_path": "/tmp/x"}, "Read", in{"file_path": "none"},
		"Edit", in{"file_path": ".git/config", "old_string": "a", "new_string": "b"}))
	if got := d.asksFor(); len(got) > 0 {
		d.t.Errorf("the editor was asked for %q", got)
	}
	d.ask(id, calls(d.t, "Read", in{"file_path": "link"}))
	if got := d.asksFor(); !slices.Equal(got, []string{file}) {
		d.t.Errorf("for a symlink in the directory the editor was asked for %q", got)
	}
}

// TestACPEditorsThatDoNotAnswer: an editor that hangs, that answers garbage or too much, or that goes away costs a
// bounded time; then the model reads the disk, and is told so if the editor may show another text.
func TestACPEditorsThatDoNotAnswer(t *testing.T) {
	dir := project(t)
	p := launchOn(t, filepath.Join(testkit.BaseDir(t), "data"), "local", holdfast.Untrusted)
	settle(t, dir)
	hung := make(chan struct{})
	t.Cleanup(func() { close(hung) })
	for _, c := range []struct {
		name string
		lend func(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error)
		note string
	}{
		{"too much", func(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
			return acp.ReadTextFileResponse{Content: strings.Repeat("x", 1<<20+1)}, nil
		}, "is not known"},
		{"no text", func(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
			return acp.ReadTextFileResponse{Content: "a\x00b"}, nil
		}, "is not known"},
		{"refuses", func(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
			return acp.ReadTextFileResponse{}, errors.New("no such buffer")
		}, ""},
		{"hangs", func(context.Context, acp.ReadTextFileRequest) (acp.ReadTextFileResponse, error) {
			<-hung
			return acp.ReadTextFileResponse{}, errors.New("late")
		}, "no answer"},
	} {
		d := p.editLending(c.lend, "--mode", "bypassPermissions")
		made, err := d.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
		if err != nil {
			t.Fatal(err)
		}
		id := holdfast.SessionID(made.SessionId)
		read := calls(t, "Read", in{"file_path": "main.go"}, "Read", in{"file_path": "main.go"})
		d.ask(made.SessionId, read)
		for _, r := range p.results(id, 2) {
			if r.IsError || !strings.Contains(r.Content, "package main") || strings.Contains(r.Content, "editor") != (c.note != "") || !strings.Contains(r.Content, c.note) {
				t.Errorf("%s: the model read %q", c.name, r.Content)
			}
		}
		if n := len(d.asksFor()); c.name == "hangs" && n > 1 {
			t.Errorf("an editor that hangs was asked %d times", n)
		}
		d.ask(made.SessionId, calls(t, "Edit", in{"file_path": "main.go", "old_string": "main", "new_string": "main1"}, "Edit", in{"file_path": "main.go", "old_string": "main1", "new_string": "main"}))
		for _, r := range p.results(id, 2) {
			if r.IsError || !strings.Contains(r.Content, c.note) {
				t.Errorf("%s: an edit without an answer: %q", c.name, r.Content)
			}
		}
		d.kill()
		sent, err := p.Send(t.Context(), id, holdfast.SendMessage{Text: read})
		if err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, "the turn ends without the editor", func() bool {
			turn, err := p.Turn(t.Context(), id, sent.Turn.ID)
			return err == nil && turn.Status == holdfast.TurnCompleted
		})
		for _, r := range p.results(id, 2) {
			if r.IsError || strings.Contains(r.Content, "editor") || !strings.Contains(r.Content, "package main") {
				t.Errorf("%s: without the editor the model read %q", c.name, r.Content)
			}
		}
	}
}
