package app_test

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
)

// TestWSR83_AgentDirsAreClosed: file tools and the files API refuse the directory in which an agent keeps its
// configuration, of a private session and of one in a workspace, in the box and in checkpoints. Commands use it.
func TestWSR83_AgentDirsAreClosed(t *testing.T) {
	cfg := settings(t, "local")
	cfg.ACP = config.ACPAgents{"mine": {Command: []string{"/usr/bin/true"}, State: ".mine"}}
	c, _ := serve(t, cfg)
	if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
		t.Fatal(err)
	}
	for _, workspace := range []string{"", "site"} {
		ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Workspace: workspace, Mode: string(holdfast.ModeBypassPermissions)}, "")
		if err != nil {
			t.Fatal(err)
		}
		end := turn(t, c, ses.ID, script(
			bashCall("mkdir -p ~/.claude ~/.mine ~/other; echo "+hidden+" | tee ~/.claude/settings.json ~/.mine/x; echo mine > ~/other/f; ln -sfn ~/.claude away"),
			`{"tool":"Read","input":{"file_path":"~/.claude/settings.json"}}`,
			`{"tool":"Write","input":{"file_path":"/home/agent/.mine/x","content":"{}"}}`,
			// The text of these calls shows nothing.
			`{"tool":"Read","input":{"file_path":"away/settings.json"}}`,
			`{"tool":"Grep","input":{"pattern":"`+hidden[:8]+`","path":"/home/agent","output_mode":"content"}}`,
		))
		if len(end.Denials) != 2 {
			t.Errorf("%q: denied are %+v, want the calls that name the directory", workspace, end.Denials)
		}
		var results []string
		list, err := c.Events(t.Context(), ses.ID, holdfast.EventFilter{Limit: 1000, Types: []holdfast.EventType{holdfast.EventToolFinished}})
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range list[1:] {
			var f holdfast.ToolFinished
			if err := ev.Decode(&f); err != nil {
				t.Fatal(err)
			}
			results = append(results, f.Content)
		}
		if len(results) != 2 || !strings.Contains(results[0], "/home/agent/.claude") || results[1] != "No matches found" {
			t.Errorf("%q: the tools found %q", workspace, results)
		}

		for _, at := range []holdfast.CheckpointID{"", newest(t, c, ses.ID)} {
			for _, name := range []string{"~/.claude/settings.json", "/home/agent/.mine/x", "away/settings.json"} {
				if text, err := readAt(t, c, ses.ID, at, name); !holdfast.IsKind(err, holdfast.KindDenied) || holdfast.HintOf(err) == "" || text != "" {
					t.Errorf("%q: get %s of %q: %q, %v", workspace, name, at, text, err)
				}
			}
			if _, err := c.ListFilesAt(t.Context(), ses.ID, at, "~/.claude"); !holdfast.IsKind(err, holdfast.KindDenied) {
				t.Errorf("%q: list of %q: %v", workspace, at, err)
			}
			home, err := c.ListFilesAt(t.Context(), ses.ID, at, "~")
			if err != nil || !slices.ContainsFunc(home.Entries, func(f holdfast.FileInfo) bool { return f.Path == "other" }) ||
				slices.ContainsFunc(home.Entries, func(f holdfast.FileInfo) bool { return f.Path == ".claude" || f.Path == ".mine" }) {
				t.Errorf("%q: the home of %q has %+v, %v", workspace, at, home.Entries, err)
			}
		}
		if _, err := c.WriteFile(t.Context(), ses.ID, "~/.claude/settings.json", strings.NewReader("{}"), 0); !holdfast.IsKind(err, holdfast.KindDenied) {
			t.Errorf("%q: put: %v", workspace, err)
		}
		if err := c.RemoveFile(t.Context(), ses.ID, "~/.claude", true); !holdfast.IsKind(err, holdfast.KindDenied) {
			t.Errorf("%q: rm: %v", workspace, err)
		}
		if _, err := c.WriteTree(t.Context(), ses.ID, holdfast.CopyTo{Path: "~"}, tarOf(t, entry{name: ".claude/x", data: "{}"})); !holdfast.IsKind(err, holdfast.KindDenied) {
			t.Errorf("%q: cp to the home: %v", workspace, err)
		}
		r, err := c.ReadTree(t.Context(), ses.ID, "~")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil || strings.Contains(string(text), hidden) || !strings.Contains(string(text), "other/f") {
			t.Errorf("%q: the copy of the home has the directory: %v", workspace, err)
		}
		if _, out := run(t, c, ses.ID, "cat ~/.claude/settings.json"); strings.TrimSpace(out) != hidden {
			t.Errorf("%q: a command reads %q", workspace, out)
		}
	}
}
