package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// model is the command line as kong sees it.
func model(t *testing.T) *kong.Node {
	t.Helper()
	parser, err := newParser(&cli{}, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	return parser.Model.Node
}

func TestCompletion(t *testing.T) {
	vars := serveWith(t, "mem")
	code, id, errs := runCLI(t, vars, "", "session", "create", "--title", "a \x1b[31mtitle\t2")
	if code != 0 {
		t.Fatal(errs)
	}
	id = strings.TrimSpace(id)
	if code, _, errs := runCLI(t, vars, "", "session", "create", "--id", "ffffffff-0000-7000-8000-000000000001", "--title", "second title"); code != 0 {
		t.Fatal(errs)
	}
	keyID := ""
	for _, line := range [][]string{
		{"session", "tag", id, "red", "green"},
		{"secret", "set", "mine"},
		{"key", "create", "--name", "a key", "--json"},
	} {
		code, out, errs := runCLI(t, vars, "value", line...)
		if code != 0 {
			t.Fatalf("%v: %s", line, errs)
		}
		var made struct{ Key struct{ ID string } }
		if err := json.Unmarshal([]byte(out), &made); err == nil {
			keyID = made.Key.ID
		}
	}
	for _, c := range []struct {
		words []string
		want  string // the candidates, separated by spaces
		help  string
	}{
		{[]string{"ses"}, "session", "Create, list, pause"},
		{[]string{"session", "re"}, "resume rewind release rename", ""},
		{[]string{"session", "new", "--tr"}, "--trust", ""},
		{[]string{"session", "create", "--trust", ""}, "untrusted trusted", ""},
		{[]string{"session", "create", "--trust=t"}, "--trust=trusted", ""},
		{[]string{"session", "create", "--trust", "=", "u"}, "untrusted", ""},
		{[]string{"--json", "session", "list", "-n", "3", "--status", "pa"}, "paused", ""},
		{[]string{"completion", ""}, "bash zsh fish", ""},
		{[]string{"session", "show", id[:5]}, id, `active a \u001b[31mtitle\t2`},
		{[]string{"session", "show", id, ""}, "", ""},
		{[]string{"session", "show", `Second\ t`}, "second title", "active "},
		{[]string{"box", "stop", "x", id[:5]}, id, ""},
		{[]string{"session", "create", "--agent", "d"}, "default", "version"},
		{[]string{"--url", "http://127.0.0.1:1", "session", "show", ""}, "", ""},
		{[]string{"session", "show", "x_"}, "", ""},
		{[]string{"agent", "deploy", ""}, ":files", ""},
		{[]string{"files", "put", "--mode", "06"}, "0644", ""},
		{[]string{"session", "update", "--mode", "pl"}, "plan", ""},
		{[]string{"send", "--", "--"}, "", ""},
		{[]string{"key", "revoke", ""}, keyID, "a key"},
		{[]string{"agent", "update", "d"}, "default", "version"},
		{[]string{"policy", "simulate", "--agent", ""}, ":files", ""},
		{[]string{"policy", "explain", "--session", id[:5]}, id, ""},
		{[]string{"session", "search", "--session", id[:5]}, id, ""},
		{[]string{"check", "path", "--settings", ""}, ":files", ""},
		{[]string{"secret", "rm", ""}, "mine", ""},
		{[]string{"session", "list", "--tag", ""}, "green red", ""},
		{[]string{"session", "create", "--runtime", "acp:o"}, "acp:opencode", ""},
		{[]string{"session", "create", "--model", "scr"}, "scripted", ""},
		{[]string{"key", "create", "--scope", ""}, "read write admin", ""},
		{[]string{"runtime", "install", "claude"}, "claude claude-code-acp", ""},
		{[]string{"session", "events", "--type", "turn.s"}, "turn.started", ""},
		{[]string{"serve", "--set", "limits.mo"}, "limits.mode=", ""},
		{[]string{"no", "such", "command", ""}, "", ""},
		{[]string{"__"}, "", ""},
	} {
		code, out, errs := runCLI(t, vars, "", append([]string{"__complete", "--"}, c.words...)...)
		var got []string
		for l := range strings.Lines(out) {
			value, _, _ := strings.Cut(strings.TrimSuffix(l, "\n"), "\t")
			got = append(got, value)
		}
		if code != 0 || errs != "" || strings.Join(got, " ") != c.want || !strings.Contains(out, c.help) || strings.Contains(out, "\x1b") {
			t.Errorf("%q: %d %q %q", c.words, code, out, errs)
		}
	}
	if _, out, _ := runCLI(t, vars, "", "__complete"); !strings.Contains(out, "serve\t") || strings.Contains(out, "__complete") {
		t.Errorf("nothing typed: %q", out)
	}
}

// TestCompletionKnowsItsCommands: what values are offered for exists.
func TestCompletionKnowsItsCommands(t *testing.T) {
	known := map[string]bool{}
	for _, node := range commands(model(t)) {
		for _, f := range node.Flags {
			known["--"+f.Name] = true
			known[commandOf(node)+" --"+f.Name] = true
		}
		for _, a := range node.Positional {
			known["<"+a.Name+">"] = true
			known[commandOf(node)+" <"+a.Name+">"] = true
		}
	}
	for name := range sources() {
		if !known[name] {
			t.Errorf("%s has values and is no flag or argument", name)
		}
	}
}

// freeValues are what nobody but the one who types can know, with why.
var freeValues = []string{
	// Ids that belong to a session.
	"session rewind --to", "session hold <checkpoint>", "session release <checkpoint>", "session fork --at", "session diff --from", "session diff --to", "files ls --at", "files cat --at", "files restore --at",
	// Addresses, names and words of one's own.
	"--url", "context add <name>", "context add <server>", "--listen", "--git", "--title", "--id", "--env", "--unset-env", "--idempotency-key", "--reason", "--rule", "--allow", "--ask", "--deny", "agent deploy --name", "agent update --description",
	"workspace create <slug>", "workspace update --revision", "key create --name", "session list --text", "session list --query", "session search <words>", "session rename <title>", "send <text>",
	"policy explain <input>", "approvals revoke <rule>", "check command <input>", "exec <cmd>", "--allow-net", "--deny-net", "audit verify --key", "audit verify --head",
	// Numbers and times.
	"--limit", "--cursor", "--after", "--tail", "--older", "--budget", "--turn-budget", "exec --timeout", "bench --runs", "torture --rounds", "torture --faults", "--sessions", "torture --seed", "bench --soak",
	// Paths in the box.
	"exec --cwd", "files ls <path>", "files cat <path>", "files put <path>", "files get <path>", "files rm <path>", "files restore <path>",
}

// TestCompletionKnowsItsValues: every argument and every flag that takes a value has
// where its values come from, and what names a file or a folder here has files.
//
// FH-38.
func TestCompletionKnowsItsValues(t *testing.T) {
	all, free := sources(), map[string]bool{}
	for _, name := range freeValues {
		free[name] = false
	}
	e := &env{ctx: t.Context(), getenv: func(string) string { return "" }}
	check := func(command, name string, v *kong.Value, placeholder string) {
		if v.Enum != "" || v.IsBool() {
			return
		}
		own := strings.TrimSpace(command + " " + name)
		for _, k := range []string{own, name} {
			if _, known := free[k]; known && all[own] == nil {
				free[k] = true
				return
			}
		}
		from := all[own]
		if from == nil {
			from = all[name]
		}
		switch {
		case from == nil:
			t.Errorf("%s has no values and is not among those that cannot have any", own)
		case name == "<id>" && all[own] == nil && !strings.Contains(strings.ToLower(v.Help), "session"):
			t.Errorf("%s gets the ids of sessions: %s", own, v.Help)
		case placeholder == "FILE" || placeholder == "DIR":
			if got := from(e, ""); len(got) != 1 || got[0].value != filesHere {
				t.Errorf("%s %s is not completed with files: %v", own, placeholder, got)
			}
		}
	}
	for _, node := range commands(model(t)) {
		for _, f := range node.Flags {
			if !f.Hidden {
				check(commandOf(node), "--"+f.Name, f.Value, f.PlaceHolder)
			}
		}
		for _, a := range node.Positional {
			check(commandOf(node), "<"+a.Name+">", a, "")
		}
	}
	for name, used := range free {
		if !used {
			t.Errorf("%s is no value of any command, or has a source", name)
		}
	}
}

// TestCompletionInShells sources the scripts in the shells that are here.
func TestCompletionInShells(t *testing.T) {
	for shell, script := range map[string]string{
		"bash": `source <(holdfast completion bash)
			COMP_WORDS=(holdfast session create --trust = t); COMP_CWORD=5; _holdfast; printf '%s\n' "${COMPREPLY[@]}"
			COMP_WORDS=(holdfast agent de); COMP_CWORD=2; _holdfast; printf '%s\n' "${COMPREPLY[@]}"
			complete -p holdfast`,
		"zsh": `compdef() { print compdef $* }; _describe() { print -l -- ${(P)3} }; _files() { print files }
			source <(holdfast completion zsh)
			words=(holdfast session create --trust=t); CURRENT=4; _holdfast
			words=(holdfast agent de); CURRENT=3; _holdfast
			words=(holdfast agent deploy ''); CURRENT=4; _holdfast`,
		"fish": `holdfast completion fish | source
			complete -C 'holdfast session create --trust=t'
			complete -C 'holdfast agent de'
			complete -C 'holdfast completion '`,
	} {
		t.Run(shell, func(t *testing.T) {
			path, err := exec.LookPath(shell)
			if err != nil {
				t.Skipf("%s is not installed", shell)
			}
			args := map[string][]string{"bash": {"--norc", "-c"}, "zsh": {"-f", "-c"}, "fish": {"--no-config", "-c"}}[shell]
			cmd := exec.Command(path, append(slices.Clone(args), script)...)
			cmd.Env = append(os.Environ(), "HOME="+t.TempDir(), "HOLDFAST_URL=http://127.0.0.1:1")
			out, err := cmd.CombinedOutput()
			want := map[string]string{
				"bash": "trusted\ndeploy\ndelete\ncomplete -F _holdfast holdfast\n",
				"zsh":  "compdef _holdfast holdfast\n--trust=trusted\ndeploy:Deploy a folder as the agent's next version.\ndelete:Delete an agent; sessions keep the version they have.\nfiles\n",
				"fish": "--trust=trusted\ndeploy\tDeploy a folder as the agent's next version.\ndelete\tDelete an agent; sessions keep the version they have.\nbash\nzsh\nfish\n",
			}[shell]
			if err != nil || string(out) != want {
				t.Errorf("%v: %s\nwant %s", err, fmt.Sprintf("%q", out), fmt.Sprintf("%q", want))
			}
		})
	}
}
