package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/plain"
	"github.com/holdfast-run/holdfast/internal/testkit"
	table "github.com/holdfast-run/holdfast/sandbox/sandboxtest/escape"
)

// hostile changes the title of a terminal, clears it, and reorders the line. It is
// a valid name of a file.
const hostile = "a\x1b]0;pwned\x07\x1b[2J\r\u009b31m\u202eb"

// spelt is how it is shown.
const spelt = `a\u001b]0;pwned\u0007\u001b[2J\r\u009b31m\u202eb`

// control is the first character of a text that a terminal would obey.
func control(s string) string {
	for _, r := range s {
		if r != '\n' && r != '\t' && (unicode.IsControl(r) || plain.Reorders(r)) {
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
	id, _, _ := strings.Cut(out, "\n")
	made := fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":"mkdir d; touch d/%s; touch %s; ls"}},{"say":%s}]</script>`, bash(hostile), bash(hostile), quoted(hostile))
	if code, out := cli("send", id, made); code != 0 {
		t.Fatal(out)
	}
	if _, err := os.Lstat(filepath.Join(data, "sessions", id, "workspace", hostile)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{URL: vars["HOLDFAST_URL"], Token: strings.TrimSpace(string(must(os.ReadFile(filepath.Join(data, "token")))))})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	names := fmt.Sprint(must(os.ReadDir(filepath.Join(data, "sessions", id, "workspace"))))
	title := func() string { return must(c.Session(t.Context(), holdfast.SessionID(id))).Title }
	var rows []table.Row
	for _, one := range []struct {
		id, does string
		args     []string
		code     int
		shown    string
		// naive is what a program prints that takes a text as it is.
		naive func() string
	}{
		{"term-files-ls", "a file's name in `files ls`", []string{"files", "ls", id, "."}, 0, spelt, func() string { return names }},
		{"term-files-ls-json", "the same with `--json`", []string{"files", "ls", id, ".", "--json"}, 0, spelt, func() string {
			return fmt.Sprint(must(c.ListFiles(t.Context(), holdfast.SessionID(id), ".")))
		}},
		{"term-error", "a file's name in an error", []string{"files", "cat", id, hostile + "/x"}, 3, strconv.QuoteToASCII(hostile + "/x"), func() string {
			_, err := os.Open(hostile + "/x")
			return fmt.Sprint(err)
		}},
		{"term-rename", "a title in `session rename`", []string{"session", "rename", id, hostile}, 0, spelt, title},
		{"term-session-show", "the same in `session show`", []string{"session", "show", id}, 0, spelt, title},
		{"term-session-list", "and in the list, cut", []string{"session", "list"}, 0, spelt[:30], title},
		{"term-events", "a name and an answer in `session events`", []string{"session", "events", id}, 0, spelt, happened(t, c, id)},
		{"term-events-json", "the same with `--json`", []string{"session", "events", id, "--json"}, 0, spelt, happened(t, c, id)},
		{"term-transcript", "the same in `session transcript`", []string{"session", "transcript", id}, 0, spelt, happened(t, c, id)},
		{"term-files-rm", "a file's name in `files rm`", []string{"files", "rm", id, hostile}, 0, "removed " + spelt, func() string { return names }},
	} {
		code, out := cli(one.args...)
		if code != one.code {
			t.Errorf("%s: code %d\n%s", one.id, code, out)
		}
		rows = append(rows, termRow(t, one.id, one.does, out, out, one.shown, one.naive()))
	}
	rows = append(rows, questionRows(t, vars, c)...)
	table.Check(t, filepath.Join("..", "..", "docs", "security", "escapes.md"), "command line, any user", rows, *update)
}

// questionRows are those of a call that somebody is to decide on: what is hidden in
// it has to be seen.
func questionRows(t *testing.T, vars map[string]string, c *client.Client) []table.Row {
	t.Helper()
	const call, shown = "ls \u009d; id > pwned; true #\u009c \x1b]0;pwned\x07-la", `ls \u009d; id > pwned; true #\u009c \u001b]0;pwned\u0007-la`
	cli := func(args ...string) string {
		code, out, errs := runCLI(t, vars, "", args...)
		if code != 0 {
			t.Errorf("%v: code %d\n%s", args, code, errs)
		}
		return out + errs
	}
	id, _, _ := strings.Cut(cli("session", "create", "--mode", "default"), "\n")
	cli("send", id, "--no-wait", `<script>[{"tool":"Bash","input":{"command":`+quoted(call)+`}}]</script>`)
	var asked holdfast.Approval
	testkit.Eventually(t, "the call is asked for", func() bool {
		page, err := c.Approvals(t.Context(), holdfast.ApprovalFilter{Session: id})
		if err != nil || len(page.Approvals) == 0 {
			return false
		}
		asked = page.Approvals[0]
		return true
	})
	var input struct{ Command string }
	if err := json.Unmarshal(asked.Input, &input); err != nil {
		t.Fatal(err)
	}
	var rows []table.Row
	for _, one := range []struct {
		id, does string
		args     []string
	}{
		{"term-approvals-list", "a call that waits for an answer in `approvals list`", []string{"approvals", "list", "--session", id}},
		{"term-approvals-show", "the same in `approvals show`", []string{"approvals", "show", string(asked.ID)}},
	} {
		out := cli(one.args...)
		rows = append(rows, termRow(t, one.id, one.does, out, out, shown, input.Command))
	}
	talk := lineChat(t, vars, id)
	talk.sees(0, `wants to run: [^§]*n deny \[reason\] > `)
	// The chat moves its own cursor: what the call says must not be among that.
	own := talk.seen.String()
	if !strings.Contains(own, "\x1b]0;pwned") {
		own = strings.NewReplacer("\r", "", "\x1b", "").Replace(own)
	}
	rows = append(rows, termRow(t, "term-chat", "the same in `chat`, which asks for the answer", own, talk.plain(), shown, input.Command))
	cli("approvals", "deny", string(asked.ID))
	return rows
}

// termRow judges what a terminal gets: nothing that it obeys, and all of what is
// shown, harmless.
func termRow(t *testing.T, id, does, out, text, shown, naive string) table.Row {
	t.Helper()
	row := table.Row{
		ID: id, Group: "names meant for terminals", Attempt: does, Saw: "spelled out, no control character", Verdict: table.Held,
		Control: "printed as it is: " + control(naive),
	}
	switch got := control(out); {
	case got != "":
		row.Saw, row.Verdict = got, table.Escaped
		t.Errorf("%s: %s in %q", id, got, out)
	case !strings.Contains(text, shown):
		row.Saw, row.Verdict = "not shown", table.Escaped
		t.Errorf("%s: %s is not in %q", id, shown, text)
	case control(naive) == "":
		t.Errorf("%s: the control fails: nothing to obey in %q", id, naive)
	}
	return row
}

// happened is what happened in a session, its texts as they are.
func happened(t *testing.T, c *client.Client, id string) func() string {
	return func() string {
		t.Helper()
		var b strings.Builder
		for ev, err := range c.AllEvents(t.Context(), holdfast.SessionID(id), 0) {
			var data map[string]any
			if err := errors.Join(err, json.Unmarshal(ev.Data, &data)); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(&b, data)
		}
		return b.String()
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
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
