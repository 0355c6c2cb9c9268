package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/policy"
)

// calledBack is a machine whose policy asks a callback.
func calledBack(t *testing.T, answer func(command string) policy.Decision) *machine {
	t.Helper()
	base, err := policy.New(policy.Config{Callback: policy.Func(func(_ context.Context, req policy.Request) (policy.Decision, error) {
		return answer(string(req.Input)), nil
	})})
	if err != nil {
		t.Fatal(err)
	}
	return newMachine(t, func(m *machine) {
		m.set = func(c *engine.Config) { c.Policy, c.Turns.ApprovalTimeout = base, time.Millisecond }
	})
}

func wants(u ...policy.Update) policy.Decision {
	d := policy.Allow()
	d.Updates = u
	return d
}

func rulesOf(to policy.Destination, typ policy.UpdateType, behavior string, rules ...string) policy.Update {
	return policy.Update{Type: typ, Destination: to, Behavior: behavior, Rules: rules}
}

// changes are what a session's log says of its rules.
func (w *world) changes(id holdfast.SessionID) []string {
	var out []string
	for _, c := range datas[holdfast.RulesChanged](w, id, holdfast.EventRulesChanged) {
		for _, r := range c.Changes {
			s := fmt.Sprintf("%s %s %s %s", c.By, r.Scope, r.Behavior, r.Rule)
			if r.Removed {
				s += " removed"
			}
			out = append(out, s)
		}
	}
	return out
}

// TestSDKP18_UpdatesOfADecision: what a decision brings with its verdict is kept with
// the session or the workspace, is in force for the next call of the same message,
// outlives a restart, and where it is not made the log says so.
func TestSDKP18_UpdatesOfADecision(t *testing.T) {
	m := calledBack(t, func(input string) policy.Decision {
		switch {
		case strings.Contains(input, "first"):
			return wants(
				rulesOf(policy.ToSession, policy.AddRules, "deny", "Bash(rm *)", "Read"),
				rulesOf(policy.ToSession, policy.RemoveRules, "deny", "Read"),
				rulesOf(policy.ToLocal, policy.AddRules, "ask", "Bash(git push *)"),
				rulesOf(policy.ToCLI, policy.ReplaceRules, "allow", "Bash(ls *)"),
				rulesOf(policy.ToUser, policy.AddRules, "allow", "Bash"),
				rulesOf(policy.ToSession, policy.AddRules, "allow", "Bash("),
				policy.Update{Type: policy.AddDirectories, Destination: policy.ToSession, Directories: []string{"/etc"}},
			)
		case strings.Contains(input, "second"):
			return wants(policy.Update{Type: policy.SetMode, Destination: policy.ToSession, Mode: holdfast.ModeDontAsk})
		}
		return policy.Decision{}
	})
	id := m.create(holdfast.CreateSession{})
	m.run(id, script(step{"tools": []step{bash("echo first"), bash("rm -f x")}}, bash("git push x"), bash("echo second"), bash("make"), say("done")))
	want := []string{
		"policy session deny Bash(rm *)", "policy session deny Read", "policy session deny Read removed",
		"policy workspace ask Bash(git push *)", "policy session allow Bash(ls *)",
	}
	if got := m.changes(id); !slices.Equal(got, want) {
		t.Errorf("changed %q, want %q", got, want)
	}
	var by []string
	for _, d := range datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied) {
		by = append(by, d.By+" "+d.Rule)
	}
	if want := []string{"deny rule Bash(rm *)", "approval ", "mode "}; !slices.Equal(by, want) {
		t.Errorf("denied by %q, want %q\n%s", by, want, m.dump(id))
	}
	said := 0
	for _, n := range datas[holdfast.Notice](m.world, id, holdfast.EventNotice) {
		if n.Code == "permissions.refused" {
			said++
		}
	}
	if said != 3 {
		t.Errorf("%d refusals were told\n%s", said, m.dump(id))
	}
	m.restart()
	if s, err := m.Session(t.Context(), id); err != nil || s.Mode != holdfast.ModeDontAsk {
		t.Errorf("%+v, %v", s, err)
	}
	m.run(id, script(bash("rm -f y"), bash("ls -l"), say("done")))
	if n := m.count(id, holdfast.EventToolDenied); n != 4 {
		t.Errorf("%d denials\n%s", n, m.dump(id))
	}
}

// TestSDKP18_AnInterruptEndsTheTurn: after the denial, which is recorded.
func TestSDKP18_AnInterruptEndsTheTurn(t *testing.T) {
	m := calledBack(t, func(string) policy.Decision {
		d := policy.Deny("enough")
		d.Interrupt = true
		return d
	})
	id := m.create(holdfast.CreateSession{})
	turn := m.run(id, script(bash(touch), say("done")))
	d := datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied)
	if turn.Status != holdfast.TurnInterrupted || len(d) != 1 || d[0].Reason != "enough" || m.lines(id, "lines") != 0 {
		t.Errorf("%+v\n%s", turn, m.dump(id))
	}
	m.sound(id)
}

// TestSuggestions: the rules that an answer would grant cover exactly the call; where
// rules cannot say that there are none.
func TestSuggestions(t *testing.T) {
	nine := "a1; a2; a3; a4; a5; a6; a7; a8; a9"
	for _, c := range []struct{ tool, input, want string }{
		{"Bash", `{"command":"git push origin main"}`, "Bash(git push origin main)"},
		{"Bash", `{"command":"a && b"}`, "Bash(a), Bash(b)"},
		{"Bash", `{"command":"touch y && echo made"}`, "Bash(touch y), Bash(echo made)"},
		{"Bash", `{"command":"touch y && touch y || touch x"}`, "Bash(touch y), Bash(touch x)"},
		{
			"Bash", `{"command":"touch y; (echo made | wc -l) & { ls; ! make; }\nid"}`,
			"Bash(touch y), Bash(echo made), Bash(wc -l), Bash(ls), Bash(make), Bash(id)",
		},
		{"Bash", `{"command":"touch y 2>/dev/null && make >&2"}`, "Bash(touch y), Bash(make)"},
		{"Bash", `{"command":"env touch y"}`, "Bash(env touch y), Bash(touch y)"},
		{"Bash", `{"command":"./run.sh && 'touch' \"y\""}`, "Bash(./run.sh), Bash(touch y)"},
		{
			"Bash", `{"command":"` + strings.TrimSuffix(nine, "; a9") + `"}`,
			"Bash(a1), Bash(a2), Bash(a3), Bash(a4), Bash(a5), Bash(a6), Bash(a7), Bash(a8)",
		},
		{"Bash", `{"command":"` + nine + `"}`, ""},
		{"Bash", `{"command":"touch y && echo ` + strings.Repeat("x", 300) + `"}`, ""},
		// What rules cannot tell from another call.
		{"Bash", `{"command":"touch y && echo hi > x"}`, ""},
		{"Bash", `{"command":"touch y && wc < x"}`, ""},
		{"Bash", `{"command":"touch y && psql <<X\ndrop\nX\n"}`, ""},
		{"Bash", `{"command":"touch y && psql <<<drop"}`, ""},
		{"Bash", `{"command":"touch y && make 2>log"}`, ""},
		{"Bash", `{"command":"touch y && make >&log"}`, ""},
		{"Bash", `{"command":"touch y && make {fd}>/dev/null"}`, ""},
		{"Bash", `{"command":"touch y && echo $(id)"}`, ""},
		{"Bash", "{\"command\":\"touch y && echo `id`\"}", ""},
		{"Bash", `{"command":"touch y && make <(id)"}`, ""},
		{"Bash", `{"command":"touch y && echo $X"}`, ""},
		{"Bash", `{"command":"X=1 make && touch y"}`, ""},
		{"Bash", `{"command":"X=1; touch y"}`, ""},
		{"Bash", `{"command":"export X=1; touch y"}`, ""},
		{"Bash", `{"command":"for i in 1 2; do touch y; done"}`, ""},
		{"Bash", `{"command":"if true; then touch y; fi"}`, ""},
		{"Bash", `{"command":"while true; do touch y; done"}`, ""},
		{"Bash", `{"command":"f() { touch y; }; f"}`, ""},
		{"Bash", `{"command":"[[ -f x ]] && touch y"}`, ""},
		{"Bash", `{"command":"time touch y"}`, ""},
		{"Bash", `{"command":"touch y && touch 'a b'"}`, ""},
		{"Bash", `{"command":"touch y && touch ''"}`, ""},
		{"Bash", `{"command":"touch y && echo 'a;id'"}`, ""},
		{"Bash", `{"command":"touch y && echo '$X'"}`, ""},
		{"Bash", `{"command":"touch y && echo '{a,b}'"}`, ""},
		{"Bash", `{"command":"touch y && echo '~'"}`, ""},
		{"Bash", `{"command":"touch y && sh -c 'id; ls'"}`, ""},
		{"Bash", `{"command":"touch y && rm *"}`, ""},
		{"Bash", `{"command":"cd x && ./run.sh"}`, ""},
		{"Bash", `{"command":"touch y && ("}`, ""},
		{"Bash", `{"command":"rm *"}`, ""},
		{"Bash", `{"command":"echo hi > x"}`, ""},
		{"Bash", `{"command":"echo $(id)"}`, ""},
		{"Bash", `{"command":"ls\u202e"}`, ""},
		{"Bash", `{}`, ""},
		{"Write", `{"file_path":"a.txt"}`, "Edit(./a.txt)"},
		{"Edit", `{"file_path":"/workspace/b/../c"}`, "Edit(/workspace/c)"},
		{"Edit", `{"file_path":"x*"}`, ""},
		{"Read", `{"file_path":"~/x"}`, "Read(~/x)"},
		{"WebFetch", `{"url":"https://example.com/x"}`, "WebFetch(domain:example.com)"},
		{"WebFetch", `{"url":"x"}`, ""},
		{"mcp__github__push", `{}`, "mcp__github__push"},
		{"Nope", `{}`, ""},
	} {
		got := new(policy.Engine).Suggest(t.Context(), policy.Request{Tool: c.tool, Input: []byte(c.input)}, policy.Decision{})
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%s %s: %q, want %q", c.tool, c.input, got, c.want)
		}
	}
}

// TestSDKP16_RewrittenInputMeetsTheSchema: an input that a callback rewrote is read
// like any input of the tool. If it does not fit the schema nothing runs, and the model
// reads why.
func TestSDKP16_RewrittenInputMeetsTheSchema(t *testing.T) {
	for name, input := range map[string]string{"type": `{"command":["touch made"]}`, "missing": `{"description":"touch made"}`, "no object": `"touch made"`} {
		t.Run(name, func(t *testing.T) {
			m := calledBack(t, func(string) policy.Decision { return policy.AllowInput(json.RawMessage(input)) })
			id := m.create(holdfast.CreateSession{})
			m.run(id, script(bash("touch made"), say("done")))
			f := datas[holdfast.ToolFinished](m.world, id, holdfast.EventToolFinished)
			denied := datas[holdfast.ToolDecision](m.world, id, holdfast.EventToolDenied)
			if len(f)+len(denied) != 1 || len(f) == 1 && (!f[0].IsError || f[0].Content == "") {
				t.Errorf("finished %+v, denied %+v\n%s", f, denied, m.dump(id))
			}
			if m.exec(id, "ls made").ExitCode == 0 {
				t.Error("something ran")
			}
		})
	}
}
