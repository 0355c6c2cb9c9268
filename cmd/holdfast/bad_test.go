package main

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// badLine is a command line that cannot work. Words that begin with $ stand for
// what the test makes: $ID an idle session, $ENDED one that is over, $SHORT what
// two ids begin with, $LONG 100,000 characters, $DIR an agent's folder, $EMPTY an
// empty one, $FILE a file of nonsense, $BUSY an address that is taken. What holds
// s3cret may not be said again.
type badLine struct {
	Args  []string          `json:"args"`
	Stdin string            `json:"stdin,omitempty"`
	Env   map[string]string `json:"env,omitempty"`
	Code  int               `json:"code"`
	Want  string            `json:"want"`
	Hint  string            `json:"hint,omitempty"`
}

// TestBadCommandLines: each ends with the exit code of its kind and one line
// that says what is wrong, and leaves nothing behind.
func TestBadCommandLines(t *testing.T) {
	vars := serveWith(t, "mem")
	words, here := badWords(t, vars)
	file, err := os.Open(filepath.Join("testdata", "badlines.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	state := t.TempDir()
	t.Chdir(here)
	n, tried := 0, map[string]int{}
	leaves := leafCommands(t)
	for scan := bufio.NewScanner(file); scan.Scan(); n++ {
		var c badLine
		if err := json.Unmarshal(scan.Bytes(), &c); err != nil {
			t.Fatalf("line %d: %v", n+1, err)
		}
		env := map[string]string{"HOME": here, "XDG_STATE_HOME": state}
		for k, v := range vars {
			env[k] = v
		}
		for k, v := range c.Env {
			env[k] = words.Replace(v)
		}
		var args []string
		for _, a := range c.Args {
			args = append(args, words.Replace(a))
		}
		for _, cmd := range leaves {
			if words := strings.Fields(cmd); len(c.Args) >= len(words) && slices.Equal(c.Args[:len(words)], words) {
				tried[cmd]++
			}
		}
		code, out, errs := runCLI(t, env, c.Stdin, args...)
		if problem := badAnswer(c, code, out, errs); problem != "" {
			t.Errorf("line %d, %s: %s\ncode %d, stdout %.200q\n%.600s", n+1, scan.Text(), problem, code, out, errs)
		}
	}
	for _, cmd := range leaves {
		if tried[cmd] < 3 {
			t.Errorf("%s: %d bad command lines, 3 asked", cmd, tried[cmd])
		}
	}
	if left, err := os.ReadDir(here); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestHintsAreForTheCommandLine: the hint for clients that send requests is replaced by one for people who type commands.
func TestHintsAreForTheCommandLine(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		p := problem.Of(holdfast.Errorf(holdfast.KindInvalid, "test", "this is wrong"))
		w.Header().Set("Content-Type", problem.MediaType)
		w.WriteHeader(p.GetStatus())
		_ = json.NewEncoder(w).Encode(p)
	}))
	defer srv.Close()
	code, out, errs := runCLI(t, map[string]string{"HOLDFAST_URL": srv.URL, "HOLDFAST_TOKEN": "t"}, "", "workspace", "list")
	if code != 2 || out != "" || errs != "holdfast: test: this is wrong\nhint: holdfast workspace list --help\n" {
		t.Errorf("%d %q %q", code, out, errs)
	}
}

func leafCommands(t *testing.T) (leaves []string) {
	t.Helper()
	for _, node := range commands(model(t)) {
		if len(node.Children) == 0 {
			leaves = append(leaves, commandOf(node))
		}
	}
	return leaves
}

// badAnswer says what is wrong with an answer to a bad command line.
func badAnswer(c badLine, code int, out, errs string) string {
	if asksJSON(c.Args) {
		var p holdfast.Problem
		if err := json.Unmarshal([]byte(errs), &p); err != nil || strings.Count(errs, "\n") != 1 || p.Kind == "" {
			return "no problem document"
		}
		errs = "holdfast: " + p.Detail + "\n"
		if p.Hint != "" {
			errs += "hint: " + p.Hint + "\n"
		}
	}
	lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
	switch {
	case code != c.Code:
		return "another exit code"
	case out != "":
		return "something on stdout"
	case !strings.HasPrefix(lines[0], "holdfast: ") || len(lines[0]) < len("holdfast: ")+8:
		return "no line that says what is wrong"
	case len(lines) > 2 || len(lines) == 2 && !strings.HasPrefix(lines[1], "hint: "):
		return "more than a line and a hint"
	case len(errs) > 1500:
		return "too long"
	case strings.Contains(errs, "s3cret"):
		return "what may be a secret is said again"
	case strings.Contains(errs, "goroutine ") || strings.Contains(errs, "panic"):
		return "a stack trace"
	case strings.ContainsFunc(strings.ReplaceAll(errs, "\n", ""), func(r rune) bool { return unicode.IsControl(r) || r >= 0x202a && r <= 0x202e }):
		return "control characters"
	case !strings.Contains(lines[0], c.Want):
		return "it does not say " + c.Want
	case !strings.Contains(strings.Join(lines[1:], ""), c.Hint):
		return "it does not hint at " + c.Hint
	}
	return ""
}

func badWords(t *testing.T, vars map[string]string) (words *strings.Replacer, here string) {
	t.Helper()
	make := func(args ...string) string {
		code, out, errs := runCLI(t, vars, "", args...)
		if code != 0 {
			t.Fatal(errs)
		}
		return strings.TrimSpace(out)
	}
	id, ended := make("session", "create"), make("session", "create")
	make("session", "end", ended)
	make("session", "create", "--id", "00000000-aaaa-4aaa-8aaa-000000000001")
	make("session", "create", "--id", "00000000-aaaa-4aaa-8aaa-000000000002")
	dir := t.TempDir()
	for _, d := range []string{"agent", "empty", "here"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"agent/CLAUDE.md": "Be brief.", "file": "\x1b[31m: [nonsense"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return strings.NewReplacer(
		"$ID", id, "$ENDED", ended, "$SHORT", "00000000-aaaa", "$LONG", strings.Repeat("long", 25_000),
		"$DIR", filepath.Join(dir, "agent"), "$EMPTY", filepath.Join(dir, "empty"), "$FILE", filepath.Join(dir, "file"),
		"$BUSY", strings.TrimPrefix(vars["HOLDFAST_URL"], "http://"),
	), filepath.Join(dir, "here")
}
