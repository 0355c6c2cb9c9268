package acpserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/plain"
	"github.com/holdfast-run/holdfast/policy"
)

// site is a view of a session that works in a directory of the editor's machine.
func site() *view {
	return &view{place: "/home/me/site", known: []policy.Tool{
		{Name: "NotebookEdit", Class: policy.ClassEdits, Subject: policy.SubjectPath, Field: "notebook_path"},
	}}
}

func command(t testing.TB, fields map[string]any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// texts returns the text and the path of the difference in the content of a call.
func texts(all []acp.ToolCallContent) (words, diff string) {
	for _, c := range all {
		if c.Content != nil {
			words += c.Content.Content.Text.Text
		}
		if c.Diff != nil {
			diff += c.Diff.Path
		}
	}
	return words, diff
}

// TestAnEditorShowsWhatIsJudged: title, file and difference come from the field that the policy judges, in a question
// and before, whatever other fields the model adds.
func TestAnEditorShowsWhatIsJudged(t *testing.T) {
	for _, c := range []struct{ tool, input, title, file, diff string }{
		{"Write", `{"file_path":"/workspace/a.sh","content":"x"}`, "Write /workspace/a.sh", "a.sh", "a.sh"},
		{"Write", `{"file_path":"/workspace/a.sh","path":"/../b.md","content":"x"}`, "Write /workspace/a.sh", "a.sh", "a.sh"},
		{"Write", `{"file_path":"/workspace/a.sh","notebook_path":"/../b.md","content":"x"}`, "Write /workspace/a.sh", "a.sh", "a.sh"},
		{"Write", `{"file_path":"/home/u/.bashrc","content":"x","command":"ls -la"}`, "Write /home/u/.bashrc", "", ""},
		{"Write", `{"file_path":"a.sh","content":"x","FILE_PATH":"b.md"}`, "Write a.sh", "a.sh", "a.sh"},
		{"Write", `{"file_path":"b.md","file_path":"a.sh","content":"x"}`, "Write a.sh", "a.sh", "a.sh"},
		{"Write", `{"path":"b.md","content":"x"}`, `Write {"path":"b.md","content":"x"}`, "", ""},
		{"Write", `{"file_path":7,"path":"b.md","content":"x"}`, `Write {"file_path":7,"path":"b.md","content":"x"}`, "", ""},
		{"Edit", `{"file_path":"a.sh","old_string":"x","new_string":"y","pattern":"b"}`, "Edit a.sh", "a.sh", "a.sh"},
		{"Edit", `{"file_path":"a.sh","Old_String":"x","new_string":"y"}`, "Edit a.sh", "a.sh", ""},
		{"Read", `{"file_path":"a.sh","url":"http://x","offset":4}`, "Read a.sh", "a.sh", ""},
		{"NotebookEdit", `{"notebook_path":"a.ipynb","file_path":"b.md"}`, "NotebookEdit a.ipynb", "a.ipynb", ""},
		{"Grep", `{"pattern":"secret","path":"src"}`, `Grep secret {"path":"src"}`, "src", ""},
		{"Bash", `{"command":"id","file_path":"b.md","pattern":"b"}`, "Bash id", "", ""},
		{"Bash", `{"command":"ls\nid","description":"List files"}`, `Bash ls\nid`, "", ""},
		{"WebFetch", `{"url":"http://evil.test","command":"ls"}`, "WebFetch http://evil.test", "", ""},
		{"Task", `{"subagent_type":"reviewer","description":"ls"}`, "Task reviewer", "", ""},
		{"TodoWrite", `{"todos":[],"command":"ls"}`, "TodoWrite", "", ""},
		{"mcp__x__y", `{"command":"ls","target":"b"}`, `mcp__x__y {"command":"ls","target":"b"}`, "", ""},
		{"write", `{"file_path":"b.md","content":"x"}`, `write {"file_path":"b.md","content":"x"}`, "", ""},
		{"Bash", `{"command":"ls \u202e\u001b[8m \u0007"}`, `Bash ls \u202e\u001b[8m \u0007`, "", ""},
		{"Bash", ``, "Bash", "", ""},
	} {
		if c.file != "" {
			c.file = "/home/me/site/" + c.file
		}
		if c.diff != "" {
			c.diff = "/home/me/site/" + c.diff
		}
		check := func(how, title string, where []acp.ToolCallLocation, all []acp.ToolCallContent) {
			t.Helper()
			file := ""
			for _, l := range where {
				file += l.Path
			}
			if _, diff := texts(all); title != c.title || file != c.file || diff != c.diff {
				t.Errorf("%s %s of %s: %q, file %q, difference of %q", how, c.tool, c.input, title, file, diff)
			}
		}
		v := site()
		u, _ := v.asking(holdfast.Approval{ToolUseID: "a", Tool: c.tool, Input: json.RawMessage(c.input)})
		check("a question for", *u.Title, u.Locations, u.Content)
		d := holdfast.ToolRequested{ToolUseID: "a", Name: c.tool, Input: json.RawMessage(c.input)}
		s := v.requested(d)[0].ToolCall
		check("the request of", s.Title, s.Locations, s.Content)
	}
}

// TestAQuestionHasTheWholeCall: nothing of what runs is out of sight, however it is padded; a call that is too long to be
// shown can only be rejected in the editor.
func TestAQuestionHasTheWholeCall(t *testing.T) {
	pad, long := strings.Repeat(" ", 600), strings.Repeat("x", 70_000)
	for name, c := range map[string]struct {
		tool   string
		fields map[string]any
		whole  bool
		want   []string
	}{
		"short": {"Bash", map[string]any{"command": "ls"}, true, []string{"Bash wants to run: ls\nasked because"}},
		"blanks": {
			"Bash",
			map[string]any{"command": "ls -la " + pad + "; echo PWNED > pwned"},
			true,
			[]string{"ls -la[601 blanks]; echo PWNED > pwned"},
		},
		"many blanks": {
			"Bash",
			map[string]any{"command": "ls" + strings.Repeat(" ", 70_000) + "; id"},
			true,
			[]string{"ls[70000 blanks]; id", "input of 70020 bytes is left out here; to see it: holdfast approvals show q1"},
		},
		"line breaks":   {"Bash", map[string]any{"command": "ls" + strings.Repeat("\n", 600) + "id"}, true, []string{"\n  ls\n  [599 empty lines]\n  id\n"}},
		"control":       {"Bash", map[string]any{"command": "ls \x1b[8m\u202eid"}, true, []string{`ls \u001b[8m\u202eid`}},
		"code fence":    {"Bash", map[string]any{"command": "ls\n```\n<!--\nid"}, true, []string{"````\nBash", "\n  ```\n  <!--\n  id\n"}},
		"no sandbox":    {"Bash", map[string]any{"command": "ls", "dangerouslyDisableSandbox": true}, true, []string{`{"dangerouslyDisableSandbox":true}`}},
		"a description": {"Bash", map[string]any{"command": "ls; id", "description": long}, false, []string{"ls; id", "input of 70037 bytes"}},
		"a command":     {"Bash", map[string]any{"command": "ls; " + long + "; id"}, false, []string{"4096 of 70027 bytes", "holdfast approvals show q1"}},
		"other fields":  {"Write", map[string]any{"file_path": "a", "content": "x", "z": long}, false, []string{"holdfast approvals show q1"}},
		"a path":        {"Write", map[string]any{"file_path": long, "content": "x"}, false, []string{"holdfast approvals show q1"}},
		"mcp":           {"mcp__x__y", map[string]any{"a": long}, false, []string{"holdfast approvals show q1"}},
		"a new file": {
			"Write",
			map[string]any{"file_path": "a", "content": long},
			true,
			[]string{"run: a\n  [70003 bytes of the change", "input of 70030 bytes is left out here; to see it: holdfast approvals show q1"},
		},
		"hidden in a file": {"Write", map[string]any{"file_path": "a", "content": "ls" + pad + "; id"}, true, []string{"\n+ ls[600 blanks]; id"}},
		"a hidden name":    {"Write", map[string]any{"file_path": "a\u202eb", "content": "y"}, true, []string{`run: a\u202eb`, "\n+ y", "hidden characters"}},
	} {
		u, whole := site().asking(holdfast.Approval{ID: "q1", Tool: c.tool, Input: command(t, c.fields), Suggestions: []string{"Bash(x)"}})
		words, _ := texts(u.Content)
		for _, want := range c.want {
			if !strings.Contains(words, want) {
				t.Errorf("%s: %q lacks %q", name, words[:min(len(words), 500)], want)
			}
		}
		if whole != c.whole {
			t.Errorf("%s: whole is %t", name, whole)
		}
		if (u.RawInput == nil) != strings.Contains(words, "bytes is left out here") {
			t.Errorf("%s: input %.40s with the text %.500q", name, u.RawInput, words)
		}
		for _, o := range options(holdfast.Approval{Suggestions: []string{"Bash(x)"}}, whole) {
			if o.OptionId == allowOnce || o.OptionId == allowAlways {
				if !whole {
					t.Errorf("%s: offered %s", name, o.Name)
				}
			}
		}
	}
}

// TestATitleSaysThatItIsCut: its end is the number of characters that are missing.
func TestATitleSaysThatItIsCut(t *testing.T) {
	for n, want := range map[int]string{115: "", 116: "… [1 more characters]", 600: "… [485 more characters]"} {
		c := site().call("Bash", command(t, map[string]any{"command": strings.Repeat("é", n)}))
		if got := c.title(); got != "Bash "+strings.Repeat("é", min(n, 115))+want {
			t.Errorf("%d: %q", n, got)
		}
	}
	c := site().call("Bash", command(t, map[string]any{"command": "ls -la" + strings.Repeat(" ", 600) + "; echo PWNED > pwned"}))
	if got := c.title(); got != "Bash ls -la[600 blanks]; echo PWNED > pwned" {
		t.Errorf("%q", got)
	}
}

// TestALongCallIsNotAllowedInTheEditor: also not by an editor that answers with an option that it was not offered.
func TestALongCallIsNotAllowedInTheEditor(t *testing.T) {
	for _, choice := range []acp.PermissionOptionId{allowOnce, allowAlways} {
		t.Run(string(choice), func(t *testing.T) {
			d := newDesk(t)
			d.choice = choice
			got := d.ask(t, "")
			<-d.log.sends
			d.log.happens(t, 2, holdfast.EventApprovalAsked, holdfast.Approval{
				ID: "q1", ToolUseID: "a", Tool: "Bash", State: holdfast.ApprovalPending, Suggestions: []string{"Bash(x)"},
				Input: command(t, map[string]any{"command": "ls", "description": strings.Repeat("x", 70_000)}),
			})
			req := <-d.asked
			if len(req.Options) != 2 || req.Options[0].OptionId != rejectOnce || req.Options[1].OptionId != rejectAlways {
				t.Errorf("%+v", req.Options)
			}
			// The question stays open for other clients, one of which answers it.
			d.log.happens(t, 3, holdfast.EventApprovalAnswered, holdfast.ApprovalAnswered{ID: "q1", State: holdfast.ApprovalAllowed})
			d.log.happens(t, 4, holdfast.EventTurnCompleted, holdfast.TurnEnded{})
			if got := <-got; got.err != nil {
				t.Error(got.err)
			}
			d.log.mu.Lock()
			defer d.log.mu.Unlock()
			if len(d.log.answers) != 0 {
				t.Errorf("answered %+v", d.log.answers)
			}
		})
	}
}

func TestOptionsSpellOutTheirRules(t *testing.T) {
	all := options(holdfast.Approval{Suggestions: []string{"Bash(a\u202eb\x1b[8m)", "Bash(c" + strings.Repeat(" ", 50) + "d)"}}, true)
	if got := all[1].Name; got != `Allow in this session: Bash(a\u202eb\u001b[8m), Bash(c[50 blanks]d)` {
		t.Errorf("%q", got)
	}
}

// TestARewrittenCallReplacesTheShownOne: nothing of the earlier input stays, and what is left out is counted.
func TestARewrittenCallReplacesTheShownOne(t *testing.T) {
	for _, n := range []int{1, 70_000} {
		v := site()
		v.requested(holdfast.ToolRequested{ToolUseID: "a", Name: "Write", Input: command(t, map[string]any{"file_path": "a", "content": "x"})})
		in := command(t, map[string]any{"file_path": "b", "content": strings.Repeat("y", n)})
		u := v.updates(event(t, holdfast.EventToolAllowed, holdfast.ToolDecision{ToolUseID: "a", Input: in}))[0].ToolCallUpdate
		words, diff := texts(u.Content)
		if *u.Title != "Write b" || u.Locations[0].Path != "/home/me/site/b" || u.RawInput == nil || !strings.Contains(words, "was changed") {
			t.Errorf("%d: %+v", n, u)
		}
		note := fmt.Sprintf("input of %d bytes is left out here", len(in))
		if big := n > 1; strings.Contains(words, note) != big || (diff == "") != big {
			t.Errorf("%d: %q, difference of %q", n, words, diff)
		}
		end := v.updates(event(t, holdfast.EventToolFinished, holdfast.ToolFinished{ToolUseID: "a", Content: "ok", Outcome: holdfast.ExitOK}))[0]
		if _, after := texts(end.ToolCallUpdate.Content); after != diff {
			t.Errorf("%d: at its end the difference of %q", n, after)
		}
	}
}

// TestARequestCountsWhatIsLeftOut: also before anybody is asked.
func TestARequestCountsWhatIsLeftOut(t *testing.T) {
	in := command(t, map[string]any{"file_path": "b", "content": strings.Repeat("y", 70_000)})
	s := site().requested(holdfast.ToolRequested{ToolUseID: "a", Name: "Write", Input: in})[0].ToolCall
	if words, _ := texts(s.Content); s.RawInput != nil || !strings.Contains(words, fmt.Sprintf("input of %d bytes is left out", len(in))) {
		t.Errorf("%.20s with %q", s.RawInput, words)
	}
}

// FuzzQuestion: whatever the model runs, a person who can allow it reads all of it, and nothing in the text is invisible.
func FuzzQuestion(f *testing.F) {
	for _, s := range []string{"ls", "ls" + strings.Repeat(" ", 100) + "; id", "a\nb\n\n\n\n\n\nc", "```\n", "\u202e\x1b[8m", "\xff"} {
		f.Add("Bash", s)
		f.Add("Write", s)
		f.Add("mcp__a__b", s)
	}
	f.Fuzz(func(t *testing.T, tool, s string) {
		input := command(t, map[string]any{"command": s, "file_path": s, "content": s})
		u, whole := site().asking(holdfast.Approval{ID: "q1", Tool: tool, Input: input, Reason: s})
		words, _ := texts(u.Content)
		if whole {
			rest := words
			for _, word := range strings.Fields(strings.ToValidUTF8(plain.OneLine(s), "\uFFFD")) {
				if tool != "Bash" || strings.Contains(s, "\n") || strings.Contains(plain.OneLine(s), "blanks]") {
					break
				}
				_, after, ok := strings.Cut(rest, word)
				if !ok {
					t.Fatalf("%q lacks %q of %q", words, word, s)
				}
				rest = after
			}
		}
		for _, line := range append(strings.Split(words, "\n"), *u.Title) {
			if plain.OneLine(line) != line {
				t.Fatalf("%q %q: the line %q", tool, s, line)
			}
		}
	})
}
