package config

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

var update = flag.Bool("update", false, "rewrite docs/config.md")

func lookup(vars ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(vars); i += 2 {
			if vars[i] == name {
				return vars[i+1]
			}
		}
		return ""
	}
}

func write(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestDefaultsAreValid(t *testing.T) {
	got, err := Load(Source{Getenv: lookup("HOME", "/home/u")})
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.Data = "/home/u/.holdfast"
	if d := gocmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
	if got.Limits.Box() != sandbox.DefaultLimits() {
		t.Errorf("limits %+v differ from those of the sandbox", got.Limits.Box())
	}
	if got.DefaultTrust != holdfast.Untrusted || !strings.HasPrefix(got.Listen, "127.0.0.1:") {
		t.Errorf("the defaults are not the safe ones: %+v", got)
	}
	for _, s := range settings {
		c := Defaults()
		if err := s.setText(&c, s.text(&c)); err != nil && !s.tree {
			t.Errorf("%s: its own default %q is refused: %v", s.Name, s.text(&c), err)
		}
		if s.text(&c) != s.Default {
			t.Errorf("%s: the default is shown as %s and not as its tag says, %s", s.Name, s.text(&c), s.Default)
		}
	}
}

// TestTags: each setting has a name and a meaning, and a check of its values that exists.
func TestTags(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range settings {
		if s.Name == "" || seen[s.Name] || s.Doc == "" {
			t.Errorf("%q: without a name, the name of another, or without a meaning", s.Name)
		}
		seen[s.Name] = true
		switch is := s.typ.Kind(); {
		case s.tree || is == reflect.String && s.oneof != nil:
		case is == reflect.String || s.list:
			if kinds[s.Values] == nil {
				t.Errorf("%s: there is no check of the kind %q", s.Name, s.Values)
			}
		case s.min == "" || s.max == "":
			t.Errorf("%s: a number without bounds", s.Name)
		}
	}
}

// TestBounds: the bounds of a number are allowed, and what lies beyond them is not.
func TestBounds(t *testing.T) {
	for _, s := range settings {
		c := Defaults()
		if s.min == "" {
			continue
		}
		for _, text := range []string{s.min, s.max} {
			if err := s.setText(&c, text); err != nil {
				t.Errorf("%s: its own bound %s is refused: %v", s.Name, text, err)
			}
		}
		for _, text := range []string{"-1", "x", "", "NaN", "1e300", "99999999999999999999", "9223372036854775807h", "8EiB", "3000000h", "4000000TiB", "-1ns"} {
			if s.setText(&c, text) == nil {
				t.Errorf("%s: %q is allowed", s.Name, text)
			}
		}
	}
}

// TestTreesNeedAFile: a tree in a variable or a flag is refused and not ignored.
func TestTreesNeedAFile(t *testing.T) {
	for _, name := range []string{"hooks", "webhooks", "acp"} {
		variable := "HOLDFAST_" + strings.ToUpper(name)
		for origin, src := range map[string]Source{
			variable:    {Getenv: lookup("HOME", "/h", variable, "{}")},
			"--" + name: {Getenv: lookup("HOME", "/h"), Flags: map[string]string{name: ""}},
		} {
			_, err := Load(src)
			if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), origin+" is not allowed: write "+name+" as YAML into a file") {
				t.Errorf("%s: %v", origin, err)
			}
		}
	}
}

func TestPrecedence(t *testing.T) {
	file := write(t, "listen: 127.0.0.1:1\ndriver: host\nlimits:\n  memory: 64MiB\n  pids: 99\nmax_boxes: 5\n")
	got, err := Load(Source{
		File: file,
		Getenv: lookup("HOME", "/h", "HOLDFAST_LISTEN", "127.0.0.1:2", "HOLDFAST_MAX_BOXES", "6",
			"HOLDFAST_LIMITS_PIDS", "100"),
		Flags: map[string]string{"listen": "127.0.0.1:3", "data": "/flag"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := Defaults()
	want.Listen, want.Data = "127.0.0.1:3", "/flag" // flags
	want.MaxBoxes, want.Limits.Pids = 6, 100        // environment
	want.Driver, want.Limits.Memory = "host", 64<<20
	if d := gocmp.Diff(want, got); d != "" {
		t.Fatal(d)
	}
}

func TestDataDir(t *testing.T) {
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		env  []string
		want string
	}{
		"home variable":       {[]string{"HOLDFAST_HOME", "/a/b/../c", "XDG_DATA_HOME", "/x", "HOME", "/h"}, "/a/c"},
		"wins over data":      {[]string{"HOLDFAST_HOME", "/a", "HOLDFAST_DATA", "/b"}, "/a"},
		"data variable":       {[]string{"HOLDFAST_DATA", "/b", "HOME", "/h"}, "/b"},
		"relative":            {[]string{"HOLDFAST_HOME", "here"}, filepath.Join(wd, "here")},
		"tilde":               {[]string{"HOLDFAST_HOME", "~/x", "HOME", "/h"}, "/h/x"},
		"xdg":                 {[]string{"XDG_DATA_HOME", "/x", "HOME", "/h"}, "/x/holdfast"},
		"relative xdg":        {[]string{"XDG_DATA_HOME", "x", "HOME", "/h"}, "/h/.holdfast"},
		"home":                {[]string{"HOME", "/h"}, "/h/.holdfast"},
		"other keys are deaf": {[]string{"HOME", "/h", "HOLDFAST_DRIVER", "nonsense"}, "/h/.holdfast"},
	} {
		if got, err := DataDir(lookup(c.env...)); err != nil || got != c.want {
			t.Errorf("%s: %q, %v; want %q", name, got, err, c.want)
		}
	}
	_, err = DataDir(lookup())
	if !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(holdfast.HintOf(err), "HOLDFAST_HOME") {
		t.Errorf("without any home: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	for text, want := range map[string][]string{
		"lissten: x":                              {`"lissten" in `, ", line 1", "did you mean listen?"},
		"limits:\n  memroy: 1GiB":                 {`"limits.memroy" in `, ", line 2", "did you mean limits.memory?"},
		"memory: 1GiB":                            {`"memory"`, "did you mean limits.memory?"},
		"limits:\n  a:\n    b: 1":                 {`"limits.a"`},
		"zzzzzzzzzzzzzzzzzzz: 1":                  {`"zzzzzzzzzzzzzzzzzzz"`, "docs/config.md"},
		"driver: ''":                              {"driver in", `""`, "use local or host"},
		"default_trust: sandboxed":                {`"sandboxed"`, "untrusted or trusted"},
		"limits:\n  memory: 4G":                   {`"4G"`, "512MiB"},
		"limits:\n  memory: 1KiB":                 {`"1KiB"`, "at least 16MiB"},
		"limits:\n  cpus: 0":                      {`"0"`, "from 0.01"},
		"limits:\n  cpus: .nan":                   {"limits.cpus"},
		"limits: 4GiB":                            {`"limits"`},
		"freeze_after: 0s":                        {`"0s"`, "never"},
		"freeze_after: -3m":                       {`"-3m"`},
		"freeze_after: 3":                         {`"3"`, "15m"},
		"turn_silence: never":                     {`"never"`, "at least 1s"},
		"orphan_after: 1ms":                       {`"1ms"`, "or never"},
		"drain_timeout: never":                    {`"never"`},
		"max_boxes: 0":                            {`"0"`, "from 1 to"},
		"max_boxes: 1.5":                          {`"1.5"`},
		"uid_base: 0":                             {`"0"`},
		"listen: localhost":                       {`"localhost"`, "127.0.0.1:4100"},
		"listen: h:99999":                         {`"h:99999"`},
		"listen:":                                 {"listen in", "line 1: no value"},
		"limits:":                                 {"limits in", "no value"},
		"driver: host\n\n# x\nlimits:\n  pids: x": {"limits.pids in", ", line 5: "},
		"listen: [a, b]":                          {"listen in", `"a,b"`, "one value"},
		"hosts: a:80":                             {`"a:80"`, "without a port"},
		"hosts: [a, 'b c']":                       {`"a,b c"`},
		"hosts: [a, '']":                          {`"a,"`},
		"origins: example":                        {`"example"`, "https://"},
		"origins: https://a/b":                    {`"https://a/b"`},
		"snapshots: {exclude: [a, '[b']}":         {`"a,[b"`, "node_modules"},
		"snapshots: {exclude: /abs}":              {`"/abs"`, "in the workspace"},
		"root_dir: rel/ative":                     {`"rel/ative"`, "absolute"},
		"default_model: ' '":                      {`" "`},
		"on_start: maybe":                         {`"maybe"`, "adopt or stop"},
		"driver: host\ndriver: local":             {"already defined"},
		"- a\n- b":                                {"is not a configuration"},
		"a: [":                                    {"is not a configuration"},
		"freeze_after: 1h":                        {"freeze_after", "stop_after"},
		"limits:\n  nofile_hard: 100":             {"limits.nofile_soft", "limits.nofile_hard"},
		"anthropic: {thinking: 15361}":            {"anthropic.thinking", "max_tokens", "16385"},
		"data: \"a\\0b\"":                         {"data in"},
		"limits:\n  mode: whatever":               {"required or best-effort"},
		"listen: 127.0.0.1:1\n\tdriver: x":        {"is not a configuration"},
	} {
		_, err := Load(Source{File: write(t, text), Getenv: lookup("HOME", "/h")})
		if !holdfast.IsKind(err, holdfast.KindInvalid) || holdfast.HintOf(err) == "" {
			t.Errorf("%q: %v (%s, hint %q)", text, err, holdfast.KindOf(err), holdfast.HintOf(err))
			continue
		}
		for _, w := range want {
			if whole := err.Error() + " hint: " + holdfast.HintOf(err); !strings.Contains(whole, w) {
				t.Errorf("%q: %q does not hold %q", text, whole, w)
			}
		}
	}
}

func TestRefusalsNameTheirSource(t *testing.T) {
	for _, c := range []struct {
		src  Source
		want string
	}{
		{Source{Getenv: lookup("HOME", "/h", "HOLDFAST_MAX_TURNS", "many")}, `HOLDFAST_MAX_TURNS: "many"`},
		{Source{Getenv: lookup("HOME", "/h"), Flags: map[string]string{"log_level": "lowd"}}, `--log_level: "lowd"`},
		{Source{Getenv: lookup("HOME", "/h"), Flags: map[string]string{"drivr": "x"}}, `"drivr"`},
	} {
		if _, err := Load(c.src); !holdfast.IsKind(err, holdfast.KindInvalid) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v; want %s", err, c.want)
		}
	}
}

func TestFiles(t *testing.T) {
	env := lookup("HOME", "/h")
	if _, err := Load(Source{File: "/does/not/exist", Getenv: env}); !holdfast.IsKind(err, holdfast.KindNotFound) {
		t.Errorf("a missing file: %v", err)
	}
	if _, err := Load(Source{File: t.TempDir(), Getenv: env}); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("a directory: %v", err)
	}
	if _, err := Load(Source{File: write(t, strings.Repeat("# long\n", maxFile/7+2)), Getenv: env}); !holdfast.IsKind(err, holdfast.KindTooLarge) {
		t.Errorf("a huge file: %v", err)
	}
	for _, text := range []string{"", "\n\n", "# only a comment\n", "---\n"} {
		if _, err := Load(Source{File: write(t, text), Getenv: env}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	if c, err := Load(Source{File: write(t, "stop_after: never\nfreeze_after: 3h\n"), Getenv: env}); err != nil || c.StopAfter != 0 || c.FreezeAfter != 3*time.Hour {
		t.Errorf("never: %+v, %v", c, err)
	}
}

func TestLists(t *testing.T) {
	want := []string{"a.example", "b.example"}
	for _, text := range []string{"hosts: a.example, b.example", "hosts: [a.example, b.example]", "hosts:\n- a.example\n- b.example\n"} {
		c, err := Load(Source{File: write(t, text), Getenv: lookup("HOME", "/h", "HOLDFAST_ORIGINS", "https://a.example:8443")})
		if err != nil || !slices.Equal(c.Hosts, want) || !slices.Equal(c.Origins, []string{"https://a.example:8443"}) {
			t.Errorf("%q: %q, %q, %v", text, c.Hosts, c.Origins, err)
		}
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]Size{
		"0": 0, "4096": 4096, "1KiB": 1024, "512MiB": 512 << 20, "1.5 GiB": 3 << 29, " 2TiB ": 2 << 40,
		"10GB": 1e10, "3MB": 3e6, "7kB": 7000, "12B": 12,
	} {
		if got, err := ParseSize(in); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", in, got, err, want)
		}
	}
	for _, in := range []string{"", "x", "4G", "4g", "-1", "1e3", "NaN", "9999999999TiB", "1.5", "GiB", "1 2KiB", "0x10", "+1", "1KiBKiB", "inf"} {
		if got, err := ParseSize(in); err == nil {
			t.Errorf("%q is taken as %d", in, got)
		}
	}
	for in, want := range map[Size]string{0: "0B", 1: "1B", 1 << 10: "1KiB", 3 << 29: "1536MiB", 1 << 40: "1TiB", 1000: "1000B"} {
		if in.String() != want {
			t.Errorf("%d renders as %s", in, in)
		}
	}
}

// TestEffectiveHidesSecrets: settings whose errors do not show the value are not shown.
func TestEffectiveHidesSecrets(t *testing.T) {
	const canary = "canary-1234"
	file := write(t, "max_turns: 4\nacp: {x: {command: [agent], env: {KEY: "+canary+"}}}\n")
	all, err := Effective(Source{File: file, Getenv: lookup("HOME", "/home/u", "HOLDFAST_MAX_TURNS", "5")})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != len(Keys()) {
		t.Errorf("%d of %d settings", len(all), len(Keys()))
	}
	for _, v := range all {
		if strings.Contains(v.Value, canary) || v.Name == "acp" && (v.Value != "***" || v.From != file) {
			t.Errorf("%+v", v)
		}
	}
}

func TestDocumentIsCurrent(t *testing.T) {
	const name = "../../docs/config.md"
	want := document()
	if *update {
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := gocmp.Diff(want, string(got)); d != "" {
		t.Fatalf("docs/config.md is out of date; run: go test ./internal/config -update\n%s", d)
	}
	// The example in the document is a configuration and says the defaults.
	_, rest, _ := strings.Cut(want, "```yaml\n")
	example, _, _ := strings.Cut(rest, "```")
	c, err := Load(Source{File: write(t, example), Getenv: lookup("HOME", "/h")})
	if err != nil {
		t.Fatal(err)
	}
	defaults := Defaults()
	defaults.Data = "/h/.holdfast"
	if d := gocmp.Diff(defaults, c); d != "" {
		t.Errorf("the example differs from the defaults:\n%s", d)
	}
}

func FuzzParseSize(f *testing.F) {
	for _, s := range []string{"1GiB", "1.5MiB", "4096", "-1B", "9223372036854775807", "0.0000001TiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseSize(s)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", s, n)
		}
		if again, err := ParseSize(n.String()); err != nil || again != n {
			t.Fatalf("%q is %d, which renders as %s and reads as %d, %v", s, n, n, again, err)
		}
	})
}

func FuzzLoad(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nlimits:\n  memory: 1GiB\n")
	f.Add("limits: {cpus: 1, mode: best-effort}\n# x\n")
	f.Add("a: &a [*a]\n")
	f.Fuzz(func(t *testing.T, text string) {
		doc, err := parseYAML([]byte(text))
		c, none := Defaults(), func(string) string { return "" }
		l := layer{values: map[string]any{}, yaml: true, origin: variable}
		if err != nil || flatten(l.values, "", doc, none) != nil || l.apply(&c, map[string]string{}) != nil || finish(&c, lookup("HOME", "/h")) != nil {
			return
		}
		// What was accepted can be written down and read back.
		flags := map[string]string{}
		for _, s := range settings {
			if !s.tree {
				flags[s.Name] = s.text(&c)
			}
		}
		c.Hooks, c.Webhooks, c.ACP = nil, nil, nil
		again, err := Load(Source{Getenv: lookup("HOME", "/h"), Flags: flags})
		if err != nil || fmt.Sprint(again) != fmt.Sprint(c) {
			t.Fatalf("%q gives\n%+v\nwhich reads back as\n%+v, %v", text, c, again, err)
		}
	})
}

// TestQuestionsStayOpen: an answer may take days, so no time denies a question unless the owner sets one.
func TestQuestionsStayOpen(t *testing.T) {
	if d := Defaults().ApprovalTimeout; d != 0 {
		t.Errorf("a question is denied after %s", d)
	}
}
