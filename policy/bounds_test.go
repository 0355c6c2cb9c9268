package policy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

func mustRules(t testing.TB, allow, ask, deny []string) RuleSet {
	t.Helper()
	s, err := ParseRules(allow, ask, deny)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustEngine(t testing.TB, cfg Config) *Engine {
	t.Helper()
	e, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func input(t testing.TB, fields map[string]string) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestACallThatTakesTooLongIsDenied: the loops over rules and commands look at the
// time, and a call that is not decided in time is denied, even if the mode allows
// everything.
func TestACallThatTakesTooLongIsDenied(t *testing.T) {
	var denies []string
	for i := range 30_000 {
		denies = append(denies, fmt.Sprintf("Bash(*x%d*y*z)", i))
	}
	e := mustEngine(t, Config{Rules: mustRules(t, nil, nil, denies)})
	req := Request{Mode: holdfast.ModeBypassPermissions, Tool: "Bash", Input: input(t, map[string]string{"command": strings.Repeat("echo a\n", 9000)})}
	d, trace, err := e.Explain(t.Context(), req)
	if err != nil || d.Verdict != Denied || !strings.Contains(d.Reason, "too long to judge") || trace[len(trace)-1].Stage != "bounds" {
		t.Errorf("%+v, %v\n%s", d, err, trace)
	}
}

// TestJudgingEndsWithItsContext: an interrupted turn gets no verdict.
func TestJudgingEndsWithItsContext(t *testing.T) {
	why := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	e := mustEngine(t, Config{Rules: mustRules(t, nil, nil, []string{"Bash(curl *)"})})
	_, err := e.Decide(ctx, Request{Mode: holdfast.ModeBypassPermissions, Tool: "Bash", Input: input(t, map[string]string{"command": strings.Repeat("echo a\n", 9000)})})
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

// TestNoTimeIsADenialInEveryStage: a call whose analysis ran out of time is denied. It
// is not taken for a command that merely matches no rule.
func TestNoTimeIsADenialInEveryStage(t *testing.T) {
	text := input(t, map[string]string{"command": strings.Repeat("git status\n", 3000)})
	for name, s := range map[string]RuleSet{
		"allow": mustRules(t, []string{"Bash(git *)"}, nil, nil), "ask": mustRules(t, nil, []string{"Bash(curl *)"}, nil), "deny": mustRules(t, nil, nil, []string{"Bash(curl *)"}),
	} {
		c := newCall(t.Context(), Request{Tool: "Bash", Input: text}, nil)
		c.clock.left = -time.Second
		d, err := c.judged(new(Trace), func() Decision {
			for _, stage := range []func(*call) Decision{s.denies, s.asks, s.allows} {
				if d := stage(c); d.Verdict != NoOpinion {
					return d
				}
			}
			return Decision{Verdict: Allowed}
		})
		if err != nil || d.Verdict != Denied || d.By != "bounds" {
			t.Errorf("%s: %+v, %v", name, d, err)
		}
	}
	e := mustEngine(t, Config{Sandbox: &check.Settings{DeniedCommands: []string{"curl"}}})
	c := newCall(t.Context(), Request{Tool: "Bash", Input: text}, nil)
	c.clock.left = -time.Second
	d, err := c.judged(new(Trace), func() Decision { return e.fixed(c, new(Trace)) })
	if err != nil || d.Verdict != Denied {
		t.Errorf("sandbox: %+v, %v", d, err)
	}
}

// TestManyDoubleStarsAreLinear counts how often a segment of a pattern is compared with
// one of a path: no more often than there are pairs of them.
func TestManyDoubleStarsAreLinear(t *testing.T) {
	for _, text := range []string{"**/a/**/b/**/c", strings.Repeat("**/a/", 40) + "b", strings.Repeat("**/", 40) + "b", strings.Repeat("a/**/a/", 20) + "b"} {
		pattern, p := strings.Split(text, "/"), slices.Repeat([]string{"a"}, 300)
		steps, most := 0, len(pattern)*len(p)
		matched := segmentsBy(pattern, p, func(pattern, name string) bool {
			if steps++; steps > 10*most {
				t.Fatalf("%s: over %d steps", text, 10*most)
			}
			return segment(pattern, name)
		})
		if matched || steps > most {
			t.Errorf("%s: matched %t, %d steps", text, matched, steps)
		}
	}
}

// TestLongPathsAreDenied: the pattern of the review meets the longest permitted paths,
// and longer ones.
func TestLongPathsAreDenied(t *testing.T) {
	e := mustEngine(t, Config{Rules: mustRules(t, nil, nil, []string{"Read(**/a/**/b/**/c)", "Read(" + strings.Repeat("**/a/", 40) + "b)"})})
	for _, n := range []int{50_000, 100_000, 5_000_000} {
		req := Request{Mode: holdfast.ModeBypassPermissions, Tool: "Read", ReadOnly: true, Input: input(t, map[string]string{"file_path": strings.Repeat("/a", n)})}
		if d, err := e.Decide(t.Context(), req); err != nil || d.Verdict != Denied || !strings.Contains(d.Reason, "a system can open") {
			t.Errorf("%d segments: %+v, %v", n, d, err)
		}
	}
	req := Request{Mode: holdfast.ModeBypassPermissions, Tool: "Read", ReadOnly: true, Input: input(t, map[string]string{"file_path": strings.Repeat("/a", 2000)})}
	if d, err := e.Decide(t.Context(), req); err != nil || d.Verdict != Allowed {
		t.Errorf("%+v, %v", d, err)
	}
}

// slowSegments is the reference for segments: it tries everything.
func slowSegments(pattern, p []string) bool {
	switch {
	case len(pattern) == 0:
		return len(p) == 0
	case pattern[0] == "**":
		return slowSegments(pattern[1:], p) || len(p) > 0 && slowSegments(pattern, p[1:])
	}
	return len(p) > 0 && segment(pattern[0], p[0]) && slowSegments(pattern[1:], p[1:])
}

func FuzzSegments(f *testing.F) {
	f.Add("/**/a/**/b", "/x/a/y/a/b")
	f.Add("**/**", "/")
	f.Add("/a*/**/[b-c]/**", "/ab/b/c/d")
	f.Fuzz(func(t *testing.T, pattern, p string) {
		if len(pattern) > 24 || len(p) > 24 {
			t.Skip()
		}
		a, b := strings.Split(pattern, "/"), strings.Split(p, "/")
		if got, want := segments(a, b), slowSegments(a, b); got != want {
			t.Errorf("%q, %q: %t", pattern, p, got)
		}
	})
}

// TestInputsAreBounded: too large an input is denied before anything reads it.
func TestInputsAreBounded(t *testing.T) {
	e := mustEngine(t, Config{})
	req := Request{Mode: holdfast.ModeBypassPermissions, Tool: "Write", Input: input(t, map[string]string{"file_path": "a", "content": strings.Repeat("a", maxInput)})}
	if d, err := e.Decide(t.Context(), req); err != nil || d.Verdict != Denied || !strings.Contains(d.Reason, "are judged") {
		t.Errorf("%+v, %v", d, err)
	}
}

// FuzzJudge runs whole decisions: for any rules and input there is a verdict, and no
// allow rule lifts a denial.
func FuzzJudge(f *testing.F) {
	f.Add("Bash", `{"command":"git push && curl x"}`, "Bash(git *)", "Bash(curl *)", "curl", "/etc/", uint16(1), uint8(0))
	f.Add("Bash", `{"command":"((((((((`, "Bash(**)", "Bash(a:*)", "", "", uint16(2000), uint8(4))
	f.Add("Read", `{"file_path":"/a/a/a`, "Read(**/a/**)", "Read(**/a/**/b/**/c)", "", "/a/", uint16(1500), uint8(1))
	f.Add("Write", `{"content":{"a":[[[[`, "Edit(/x/**)", "Write(~/**)", "", "~/", uint16(3000), uint8(2))
	f.Add("mcp__a__b", `[`, "mcp__a", "mcp__a__*", "", "", uint16(20000), uint8(3))
	modes := []holdfast.Mode{holdfast.ModeDefault, holdfast.ModeAcceptEdits, holdfast.ModeBypassPermissions, holdfast.ModeDontAsk, holdfast.ModeAuto}
	f.Fuzz(func(t *testing.T, tool, raw, allow, deny, command, denied string, repeat uint16, mode uint8) {
		if len(raw)*int(repeat) > 1<<20 {
			t.Skip()
		}
		// The last character, repeated, makes deep inputs.
		if raw != "" {
			raw += strings.Repeat(raw[len(raw)-1:], int(repeat))
		}
		var cfg Config
		if r, err := ParseRule(allow); err == nil {
			cfg.Rules.Allow = []Rule{r}
		}
		s := check.Settings{}
		if command != "" {
			s.DeniedCommands = []string{command}
		}
		if denied != "" {
			s.DeniedPaths = []string{denied}
		}
		cfg.Sandbox = &s
		without, err := New(cfg)
		if err != nil {
			t.Skip()
		}
		m := modes[int(mode)%len(modes)]
		for _, in := range []string{raw, raw + `"}`} {
			req := Request{Mode: m, Tool: tool, ReadOnly: Reads(tool), Input: json.RawMessage(in)}
			d, err := without.Decide(t.Context(), req)
			if err != nil || d.Verdict != Allowed && d.Verdict != Denied {
				t.Errorf("%+v, %v", d, err)
			}
			r, err := ParseRule(deny)
			if err != nil {
				continue
			}
			with, err := without.With(Config{Rules: RuleSet{Deny: []Rule{r}}})
			if err != nil {
				t.Fatal(err)
			}
			if d2, _ := with.Decide(t.Context(), req); d.Verdict == Denied && d2.Verdict == Allowed {
				t.Errorf("a deny rule made an allowance of a denial: %+v, %+v", d, d2)
			}
		}
	})
}
