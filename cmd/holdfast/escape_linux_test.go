package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	table "github.com/holdfast-run/holdfast/sandbox/sandboxtest/escape"
)

// hostile changes the title of a terminal, clears it, and reorders the line. It is
// a valid name of a file.
const hostile = "a\x1b]0;pwned\x07\x1b[2J\r\u009b31m\u202eb"

// control is the first character of a text that a terminal would obey.
func control(s string) string {
	for _, r := range s {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || reorders(r)) {
			return fmt.Sprintf("%U", r)
		}
	}
	return ""
}

// TestI16_NamesMeantForTerminals: what an agent names and says does nothing to the
// terminal of who looks at it.
func TestI16_NamesMeantForTerminals(t *testing.T) {
	vars := serveWith(t, "local")
	data := vars["HOLDFAST_HOME"]
	cli := func(args ...string) (int, string) {
		code, out, errs := runCLI(t, vars, "", args...)
		return code, out + errs
	}
	_, out := cli("session", "create", "--title", "t")
	id := strings.TrimSpace(out)
	made := fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":"mkdir d; touch d/%s; touch %s; ls"}},{"say":%s}]</script>`, bash(hostile), bash(hostile), quoted(hostile))
	if code, out := cli("send", id, made); code != 0 {
		t.Fatal(out)
	}
	if _, err := os.Lstat(filepath.Join(data, "sessions", id, "workspace", hostile)); err != nil {
		t.Fatal(err)
	}
	var rows []table.Row
	for _, c := range []struct {
		id, does string
		args     []string
		code     int
	}{
		{"term-files-ls", "a file's name in `files ls`", []string{"files", "ls", id, "."}, 0},
		{"term-files-ls-json", "the same with `--json`", []string{"files", "ls", id, ".", "--json"}, 0},
		{"term-error", "a file's name in an error", []string{"files", "cat", id, hostile + "/x"}, -1},
		{"term-rename", "a title in `session show`", []string{"session", "rename", id, hostile}, -1},
		{"term-session-show", "the session afterwards", []string{"session", "show", id}, 0},
		{"term-session-list", "and in the list", []string{"session", "list"}, 0},
		{"term-events", "a name and an answer in `session events`", []string{"session", "events", id}, 0},
		{"term-events-json", "the same with `--json`", []string{"session", "events", id, "--json"}, 0},
		{"term-transcript", "the same in `session transcript`", []string{"session", "transcript", id}, 0},
		{"term-files-rm", "a file's name in `files rm`", []string{"files", "rm", id, hostile}, 0},
	} {
		code, out := cli(c.args...)
		if code != c.code && c.code >= 0 {
			t.Errorf("%s: code %d\n%s", c.id, code, out)
		}
		row := table.Row{ID: c.id, Group: "names meant for terminals", Attempt: c.does, Saw: "no control character", Verdict: table.Held, Control: "the name itself: " + control(hostile)}
		if got := control(out); got != "" {
			row.Saw, row.Verdict = got, table.Escaped
			t.Errorf("%s: %s in %q", c.id, got, out)
		}
		rows = append(rows, row)
	}
	table.Check(t, filepath.Join("..", "..", "docs", "security", "escapes.md"), "command line, any user", rows, *update)
}

// bash and quoted write the hostile text in the shell's and in JSON's words, the
// former inside of the latter.
func bash(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		fmt.Fprintf(&b, `\\x%02x`, c)
	}
	return "$'" + b.String() + "'"
}

func quoted(s string) string {
	var b strings.Builder
	for _, r := range s {
		fmt.Fprintf(&b, `\u%04x`, r)
	}
	return `"` + b.String() + `"`
}
