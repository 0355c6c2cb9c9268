package check

import (
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
	"pgregory.net/rapid"

	"github.com/holdfast-run/holdfast/sandbox/check/usage"
)

// plainCall is a simple command of a row whose words are all plain text.
type plainCall struct {
	from, to int
	words    []string
}

// plainCalls returns the commands of a line whose programs have a table.
func plainCalls(t testing.TB, line string) []plainCall {
	f, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil {
		return nil
	}
	a := &analyzer{out: &Analysis{}, outer: -1, cwds: []string{"/project"}, assigned: map[string]bool{}, text: map[string]bool{}}
	var out []plainCall
	syntax.Walk(f, func(n syntax.Node) bool {
		c, ok := n.(*syntax.CallExpr)
		if !ok || len(c.Args) < 2 {
			return true
		}
		p := plainCall{from: int(c.Args[0].Pos().Offset()), to: int(c.Args[len(c.Args)-1].End().Offset())}
		for _, w := range c.Args {
			r := a.reduce(w)
			if r.kind != literal {
				return true
			}
			p.words = append(p.words, r.text)
		}
		if tableOf(baseName(p.words[0])) != nil {
			out = append(out, p)
		}
		return true
	})
	return out
}

// written writes a word in one of the ways a shell accepts.
func written(t *rapid.T, w string) string {
	plain := w != "" && strings.IndexFunc(w, func(r rune) bool {
		return !(r == '-' || r == '/' || r == '.' || r == '_' || r == '=' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9')
	}) < 0
	single := "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	switch rapid.IntRange(0, 3).Draw(t, "quoting") {
	case 0:
		if plain && !strings.Contains(w, "=") {
			return w
		}
	case 1:
		if plain && len(w) > 1 {
			return "'" + w[:1] + "''" + w[1:] + "'"
		}
	case 2:
		return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "$", `\$`, "`", "\\`").Replace(w) + `"`
	}
	return single
}

// varied rewrites a command with the same meaning: it shortens options, puts them into
// clusters or behind the rest, attaches or separates their values, and puts harmless
// ones in front.
func varied(t *rapid.T, words []string) []string {
	p := tableOf(baseName(words[0]))
	args := make([]usage.Word, len(words)-1)
	for i, w := range words[1:] {
		args[i].Text = w
	}
	line := p.Read(args)
	table := p
	if line.Sub >= 0 {
		if table = p.Subs[args[line.Sub].Text]; table == nil {
			return words
		}
	}
	out := slices.Clone(words)
	options := slices.DeleteFunc(slices.Clone(line.Uses), func(u usage.Use) bool {
		return u.Option == "" || u.Option == "+" || u.Option == "-#" || u.Word < 0 || u.At <= line.Sub || p.Old && !strings.HasPrefix(words[u.At+1], "-")
	})
	if len(options) > 0 {
		u := rapid.SampledFrom(options).Draw(t, "option")
		value := words[u.Word+1][u.From:]
		var instead []string
		switch single := len(u.Option) == 2; {
		case slices.ContainsFunc(table.Options, func(o usage.Option) bool { return o.Name == u.Option && (o.Prefix || o.Values > 1) }):
			instead = words[u.At+1 : u.Word+2]
		case single && strings.HasPrefix(words[u.At+1], "--"), table.Single || p.Single:
			instead = words[u.At+1 : u.Word+2]
		case single:
			// The letters before it in its cluster stay.
			letters := words[u.At+1]
			if end := len(letters) - 1; u.Word == u.At {
				letters = letters[1 : u.From-1]
			} else {
				letters = letters[1:end]
			}
			instead = short(t, table, letters, u.Option, value)
		default:
			instead = long(t, table, u.Option, value)
		}
		rest := out[u.Word+2:]
		if apart := line.Command < 0 && len(line.Execs) == 0 && !p.First && !table.First && !p.Old && !slices.Contains(words, "--"); apart && rapid.Bool().Draw(t, "last") {
			out = slices.Concat(out[:u.At+1], rest, instead)
		} else {
			out = slices.Concat(out[:u.At+1], instead, rest)
		}
	}
	// Flags of git config select the action.
	modes := line.Sub >= 0 && args[line.Sub].Text == "config"
	if flags := harmlessFlags(table); len(flags) > 0 && !p.Old && !modes && rapid.Bool().Draw(t, "more") {
		at := line.Sub + 2
		out = slices.Insert(out, at, rapid.SampledFrom(flags).Draw(t, "flag"))
	}
	return out
}

// harmlessFlags are options of a table without a value or a special meaning.
func harmlessFlags(p *usage.Program) []string {
	var out []string
	for _, o := range p.Options {
		if o.Kind == usage.Text && o.Values == 0 && !o.Optional && !o.Prefix && !strings.ContainsAny(o.Name, "?#") {
			out = append(out, o.Name)
		}
	}
	return out
}

func takesOptional(p *usage.Program, name string) bool {
	return slices.ContainsFunc(p.Options, func(o usage.Option) bool { return o.Name == name && o.Optional })
}

func short(t *rapid.T, p *usage.Program, before, name, value string) []string {
	for _, f := range harmlessFlags(p) {
		if len(f) == 2 && f[0] == '-' && rapid.IntRange(0, 9).Draw(t, "in front") == 0 {
			before += f[1:]
		}
	}
	if takesOptional(p, name) || value != "" && rapid.Bool().Draw(t, "attached") {
		return []string{"-" + before + name[1:] + value}
	}
	return []string{"-" + before + name[1:], value}
}

func long(t *rapid.T, p *usage.Program, name, value string) []string {
	cut := name
	if len(name) > 4 {
		cut = name[:rapid.IntRange(4, len(name)).Draw(t, "letters")]
	}
	// A shortened name that equals another option's full name means that option.
	if slices.ContainsFunc(p.Options, func(o usage.Option) bool { return o.Name == cut }) {
		cut = name
	}
	if takesOptional(p, name) || rapid.Bool().Draw(t, "equals") {
		return []string{cut + "=" + value}
	}
	return []string{cut, value}
}

// A denied line is denied in every form: every row of the corpus that names an option,
// in the ways its program reads it.
func TestDeniedRowsAreDeniedInEveryForm(t *testing.T) {
	type row struct {
		vector
		calls []plainCall
		check *Checker
	}
	var rows []row
	for _, v := range vectorsOf(t, "sandbox-checker-cases-2.jsonl") {
		if v.Allow || v.Kind != "command" || len(v.Setup) > 0 {
			continue
		}
		calls := plainCalls(t, v.Input)
		if len(calls) == 0 {
			continue
		}
		v = v.prepare(t)
		s, err := ParseSettings(v.Settings)
		if err != nil {
			t.Fatal(err)
		}
		c, err := New(s, Options{Cwd: v.Cwd, Home: v.Home})
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row{v, calls, c})
	}
	if len(rows) < 80 {
		t.Fatalf("%d rows", len(rows))
	}
	seen := map[string]bool{}
	rapid.Check(t, func(t *rapid.T) {
		r := rapid.SampledFrom(rows).Draw(t, "row")
		c := rapid.SampledFrom(r.calls).Draw(t, "call")
		words := varied(t, c.words)
		var text []string
		for i, w := range words {
			if i == 0 {
				text = append(text, w)
				continue
			}
			text = append(text, written(t, w))
		}
		line := r.Input[:c.from] + strings.Join(text, " ") + r.Input[c.to:]
		seen[line] = true
		if v := r.check.Command(line); v.Allowed {
			t.Fatalf("%s: %q is denied, and %q is not", r.ID, r.Input, line)
		}
	})
	t.Logf("%d rows, %d lines", len(rows), len(seen))
}
