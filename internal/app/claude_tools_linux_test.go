//go:build linux

package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
)

// TestClaudeNotebookEditAndSkill: the real CLI edits a notebook and loads a skill;
// rules and settings apply to both by their registration, and a mode that does not
// allow them by itself says so.
func TestClaudeNotebookEditAndSkill(t *testing.T) {
	cfg := claudeSettings(t)
	cfg.Permissions.Deny = []string{"Edit(/workspace/fixed/**)", "Skill(init)"}
	sandboxFile(t, &cfg, `{"deniedWritePaths": ["/workspace/kept"]}`)
	c, _ := serve(t, cfg)
	const cells = `{"cells":[{"cell_type":"code","id":"a","source":["1"],"metadata":{},"outputs":[],"execution_count":null}],"metadata":{},"nbformat":4,"nbformat_minor":5}`
	files := []entry{{name: "CLAUDE.md", data: "x"}}
	for _, name := range []string{"a.ipynb", "fixed/a.ipynb", "kept/a.ipynb"} {
		files = append(files, entry{name: name, data: cells})
	}
	if _, err := c.DeployAgent(t.Context(), "notebooks", tarOf(t, files...)); err != nil {
		t.Fatal(err)
	}
	s := claudeSession(t, c, func(r *holdfast.CreateSession) { r.Agent = "notebooks" })
	edit := func(name string) string {
		return `{"tool":"Read","input":{"file_path":"/workspace/` + name + `"}},{"tool":"NotebookEdit","input":{"notebook_path":"/workspace/` + name + `","cell_id":"a","new_source":"6*7"}}`
	}
	end := turn(t, c, s.ID, scriptOf(`[`+edit("a.ipynb")+`,`+edit("fixed/a.ipynb")+`,`+edit("kept/a.ipynb")+`,{"say":"done"}]`))
	if end.Result != "done" {
		t.Fatalf("%+v", end)
	}
	read := func(name string) string {
		b, _ := os.ReadFile(filepath.Join(cfg.Data, "sessions", string(s.ID), "workspace", name))
		return string(b)
	}
	if !strings.Contains(read("a.ipynb"), "6*7") || strings.Contains(read("fixed/a.ipynb")+read("kept/a.ipynb"), "6*7") {
		t.Errorf("the notebooks are %s, %s and %s", read("a.ipynb"), read("fixed/a.ipynb"), read("kept/a.ipynb"))
	}
	turn(t, c, s.ID, scriptOf(`[{"tool":"Skill","input":{"skill":"init"}},{"say":"done"}]`))
	turn(t, c, s.ID, scriptOf(`[{"tool":"Skill","input":{"skill":"update-config"}},{"say":"done"}]`))
	denied := logged[holdfast.ToolDecision](t, c, s.ID, holdfast.EventToolDenied)
	var by []string
	for _, d := range denied {
		by = append(by, d.Tool+" "+d.By+" "+d.Rule)
	}
	if got := strings.Join(by, "; "); got != "NotebookEdit deny rule Edit(/workspace/fixed/**); NotebookEdit sandbox ; Skill deny rule Skill(init)" {
		t.Errorf("denied: %s", got)
	}
	loaded := false
	for _, f := range logged[holdfast.ToolFinished](t, c, s.ID, holdfast.EventToolFinished) {
		loaded = loaded || !f.IsError && strings.Contains(f.Content, "update-config")
	}
	if !loaded {
		t.Errorf("no skill was loaded: %+v", logged[holdfast.ToolFinished](t, c, s.ID, holdfast.EventToolFinished))
	}

	strict := claudeSession(t, c, func(r *holdfast.CreateSession) { r.Mode = string(holdfast.ModeDontAsk) })
	put(t, c, strict.ID, "a.ipynb", cells, 0)
	turn(t, c, strict.ID, scriptOf(`[{"tool":"Read","input":{"file_path":"/workspace/a.ipynb"}},{"tools":[{"tool":"NotebookEdit","input":{"notebook_path":"/workspace/a.ipynb","cell_id":"a","new_source":"1"}},{"tool":"Skill","input":{"skill":"update-config"}}]},{"say":"done"}]`))
	for _, d := range logged[holdfast.ToolDecision](t, c, strict.ID, holdfast.EventToolDenied) {
		if d.By != "mode" || !strings.Contains(d.Reason, "dontAsk allows only calls that a rule allows") {
			t.Errorf("%s is denied by %s: %s", d.Tool, d.By, d.Reason)
		}
	}
	if got := logged[holdfast.ToolDecision](t, c, strict.ID, holdfast.EventToolAllowed); len(got) != 1 || got[0].Tool != "Read" {
		t.Errorf("mode dontAsk allowed %+v", got)
	}
}
