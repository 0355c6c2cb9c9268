package policy_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox/check"
)

// layersOf is an engine with allow, ask and granted rules.
func layersOf(t testing.TB, allow, asks, granted []string) *policy.Engine {
	set, err := policy.ParseRules(allow, asks, nil)
	if err != nil {
		t.Fatal(err)
	}
	grants, err := policy.ParseRules(granted, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.New(policy.Config{Rules: set, Granted: grants.Allow})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// askedFor is the call of a command, and how an engine decides it without a person.
func askedFor(t testing.TB, e *policy.Engine, command string) (policy.Request, policy.Decision) {
	input, err := json.Marshal(map[string]string{"command": command})
	if err != nil {
		t.Fatal(err)
	}
	req := policy.Request{Mode: holdfast.ModeDefault, Tool: "Bash", Input: input}
	d, _, err := e.Rehearse(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return req, d
}

// TestSuggestionsLeaveOutWhatIsAllowed: a part that a grant covers needs no rule. One that
// an allow rule covers needs none either if only the mode asks; if an ask rule does, the
// allow rule lifts nothing.
func TestSuggestionsLeaveOutWhatIsAllowed(t *testing.T) {
	const command = `touch y && echo "made it" && id`
	for _, c := range []struct {
		allow, asks, granted []string
		command, want        string
	}{
		{nil, nil, nil, "touch y && echo made", "Bash(touch y), Bash(echo made)"},
		{[]string{"Bash(echo *)"}, nil, nil, command, "Bash(touch y), Bash(id)"},
		{[]string{"Bash(echo *)"}, nil, []string{"Bash(id)"}, command, "Bash(touch y)"},
		{nil, nil, []string{"Bash(echo *)", "Bash(id)"}, command, "Bash(touch y)"},
		{[]string{"Bash(echo *)"}, []string{"Bash(touch *)"}, nil, "touch y && echo made", "Bash(touch y), Bash(echo made)"},
		{[]string{"Bash(*)"}, []string{"Bash(touch *)"}, nil, "touch y && echo made", "Bash(touch y), Bash(echo made)"},
		{[]string{"Bash(*)"}, []string{"Bash(touch *)"}, nil, command, ""},
	} {
		e := layersOf(t, c.allow, c.asks, c.granted)
		req, d := askedFor(t, e, c.command)
		got := e.Suggest(t.Context(), req, d)
		if d.Verdict != policy.Asked || strings.Join(got, ", ") != c.want {
			t.Errorf("%v %v %v %s: %s by %s, suggests %q, want %s", c.allow, c.asks, c.granted, c.command, d.Verdict, d.By, got, c.want)
		}
		if c.want == "" {
			continue
		}
		if _, d := askedFor(t, layersOf(t, c.allow, c.asks, append(got, c.granted...)), c.command); d.Verdict != policy.Allowed || d.By != "granted rule" {
			t.Errorf("%v %v %v %s: %s by %s with what was suggested", c.allow, c.asks, c.granted, c.command, d.Verdict, d.By)
		}
	}
}

// plainParts are commands that read as themselves; of odd ones a rule says less than they do.
var (
	plainParts = []string{"touch y", "echo made", "git status", "ls -l a", "make", "./run.sh x", "wc -l", "go vet ./..."}
	odd        = []string{`touch "y "`, "touch y y", "touch", "echo $X", "echo $(id)", "id", "touch y > z", "X=1 make -j", "git push", "ls *", "sh -c 'touch z'", "env rm y"}
	joints     = []string{" && ", " || ", "; ", " | ", "\n", " & ", " |& "}
)

// compose joins commands in a way that the test draws.
func compose(t *rapid.T, parts []string) string {
	var b strings.Builder
	for i, part := range parts {
		joint := ""
		if i > 0 {
			joint = rapid.SampledFrom(joints).Draw(t, "joint")
			b.WriteString(joint)
		}
		if !strings.Contains(strings.ReplaceAll(joint, "||", ""), "|") && rapid.Bool().Draw(t, "negated") {
			b.WriteString("! ")
		}
		switch rapid.IntRange(0, 4).Draw(t, "around") {
		case 0:
			part = "(" + part + ")"
		case 1:
			part = "{ " + part + "; }"
		case 2:
			part += " 2>/dev/null"
		}
		b.WriteString(part)
	}
	return b.String()
}

// TestSuggestedRulesAllowExactlyTheirParts: the rules that are suggested for a compound
// command let it pass, each of them is needed, and together they let nothing pass that
// has any other part.
//
// FH-30.
func TestSuggestedRulesAllowExactlyTheirParts(t *testing.T) {
	var corpus []string
	for _, file := range []string{"lines-npm.jsonl", "lines-make.jsonl"} {
		for _, l := range everydayLines(t, file) {
			corpus = append(corpus, l.Line)
		}
	}
	none := layersOf(t, nil, nil, nil)
	rapid.Check(t, func(rt *rapid.T) {
		parts := rapid.SliceOfNDistinct(rapid.SampledFrom(plainParts), 1, 8, rapid.ID).Draw(rt, "parts")
		command := compose(rt, parts)
		req, d := askedFor(t, none, command)
		got := none.Suggest(t.Context(), req, d)
		var want []string
		for _, part := range parts {
			want = append(want, "Bash("+part+")")
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("%q: suggests %q, want %q", command, got, want)
		}
		passes := func(rules []string, command string) bool {
			_, d := askedFor(t, layersOf(t, nil, nil, rules), command)
			return d.Verdict == policy.Allowed
		}
		if again := compose(rt, rapid.Permutation(parts).Draw(rt, "order")); !passes(got, command) || !passes(got, again) {
			rt.Fatalf("%q: %q do not let it pass, or not %q", command, got, again)
		}
		for i := range got {
			if passes(slices.Delete(slices.Clone(got), i, i+1), command) {
				rt.Fatalf("%q: %q is not needed", command, got[i])
			}
		}
		others := append(slices.Clone(odd), rapid.SampledFrom(corpus).Draw(rt, "corpus"))
		for _, part := range plainParts {
			if !slices.Contains(parts, part) {
				others = append(others, part)
			}
		}
		other := rapid.SampledFrom(others).Draw(rt, "other")
		for _, c := range []string{other, compose(rt, append(slices.Clone(parts), other)), compose(rt, append([]string{other}, parts...))} {
			if passes(got, c) {
				rt.Fatalf("%q let %q pass, which has the part %q", got, c, other)
			}
		}
	})
}

// TestSuggestionsForEverydayLines: of lines that people wrote, too, the suggested rules
// let the line pass, and of the others only those that have no other command.
//
// FH-30.
func TestSuggestionsForEverydayLines(t *testing.T) {
	none := layersOf(t, nil, nil, nil)
	var lines []string
	for _, file := range []string{"lines-npm.jsonl", "lines-make.jsonl"} {
		for _, l := range everydayLines(t, file) {
			lines = append(lines, l.Line)
		}
	}
	compound := 0
	for i, line := range lines {
		req, d := askedFor(t, none, line)
		rules := none.Suggest(t.Context(), req, d)
		if len(rules) == 0 {
			continue
		}
		if len(rules) > 1 {
			compound++
		}
		e := layersOf(t, nil, nil, rules)
		if _, d := askedFor(t, e, line); d.Verdict != policy.Allowed {
			t.Errorf("%q: %q do not let it pass", line, rules)
		}
		// A sample of the others: all pairs take minutes.
		for j := i % 17; j < len(lines); j += 17 {
			if _, d := askedFor(t, e, lines[j]); d.Verdict == policy.Allowed && !within(t, lines[j], rules) {
				t.Errorf("%q of %q let %q pass", rules, line, lines[j])
			}
		}
	}
	if compound < 5 {
		t.Errorf("%d compound lines have suggestions", compound)
	}
}

// within reports whether each command of a line is the text of a rule.
func within(t *testing.T, line string, rules []string) bool {
	an, err := check.Analyze(line, "/workspace", "/home/agent")
	if err != nil {
		t.Fatal(err)
	}
	return !slices.ContainsFunc(an.Commands, func(c check.Command) bool {
		return !c.Lent && !slices.Contains(rules, "Bash("+strings.Join(append([]string{c.Name}, c.Args...), " ")+")")
	})
}
