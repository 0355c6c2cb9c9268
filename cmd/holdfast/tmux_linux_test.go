package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// tmuxPane is a chat in a terminal of tmux, which draws what a person would see.
type tmuxPane struct {
	t      *testing.T
	socket string
}

// onTmux starts a chat of so many columns and rows. When it ends, its exit code is shown.
func onTmux(t *testing.T, cols, rows int, vars map[string]string, args ...string) *tmuxPane {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is missing, so nothing shows what chat draws: apt-get install tmux")
	}
	p := &tmuxPane{t: t, socket: filepath.Join(t.TempDir(), "s")}
	words := []string{"exec env"}
	for k, v := range vars {
		words = append(words, shellQuote(k+"="+v))
	}
	inner := "holdfast chat"
	for _, a := range args {
		inner += " " + shellQuote(a)
	}
	words = append(words, "sh -c", shellQuote(inner+"; echo EXIT $?; exec sleep 600"))
	p.tmux("-f", "/dev/null", "new-session", "-d", "-x", fmt.Sprint(cols), "-y", fmt.Sprint(rows), strings.Join(words, " "))
	t.Cleanup(func() { _ = exec.Command("tmux", "-S", p.socket, "kill-server").Run() }) // gone already, perhaps
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the terminal:\n%s", p.all())
		}
	})
	return p
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func (p *tmuxPane) tmux(args ...string) string {
	p.t.Helper()
	cmd := exec.Command("tmux", append([]string{"-u", "-S", p.socket}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		p.t.Errorf("tmux %s: %v %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// keys presses keys by tmux's names, types types a text.
func (p *tmuxPane) keys(names ...string) {
	p.t.Helper()
	p.tmux(append([]string{"send-keys"}, names...)...)
}

func (p *tmuxPane) types(text string) {
	p.t.Helper()
	p.tmux("send-keys", "-l", "--", text)
}

// enter types a text and presses Enter.
func (p *tmuxPane) enter(text string) {
	p.t.Helper()
	p.types(text)
	p.sees(regexp.QuoteMeta(text[max(0, len(text)-8):]))
	p.keys("Enter")
}

// paste pastes as a terminal does: between the marks of a paste.
func (p *tmuxPane) paste(text string) {
	p.t.Helper()
	file := filepath.Join(p.t.TempDir(), "paste")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.tmux("load-buffer", file)
	p.tmux("paste-buffer", "-p")
}

// shown is the screen, all the screen with what scrolled away, each without the blanks at
// the ends of lines.
func (p *tmuxPane) shown() string { return trimmed(p.tmux("capture-pane", "-p")) }

func (p *tmuxPane) all() string { return trimmed(p.tmux("capture-pane", "-p", "-S", "-", "-E", "-")) }

func trimmed(s string) string {
	var b strings.Builder
	for l := range strings.Lines(strings.TrimRight(s, "\n ")) {
		b.WriteString(strings.TrimRight(l, " \n") + "\n")
	}
	return b.String()
}

// flowing is a pattern whose blanks are also ends of rows.
func flowing(want string) *regexp.Regexp {
	return regexp.MustCompile(strings.ReplaceAll(want, " ", `\s+`))
}

// sees waits until the screen shows a text, ever until it was shown at all.
func (p *tmuxPane) sees(want string) {
	p.t.Helper()
	re := flowing(want)
	testkit.Eventually(p.t, "the screen shows "+want, func() bool { return re.MatchString(p.shown()) })
}

func (p *tmuxPane) ever(want string) {
	p.t.Helper()
	re := flowing(want)
	testkit.Eventually(p.t, "the terminal has shown "+want, func() bool { return re.MatchString(p.all()) })
}

// session is the id that the chat says.
func (p *tmuxPane) session() holdfast.SessionID {
	p.t.Helper()
	re := regexp.MustCompile(`session ([0-9a-f-]{36})`)
	p.ever(re.String())
	return holdfast.SessionID(re.FindStringSubmatch(strings.ReplaceAll(p.all(), "\n", " "))[1])
}

// What differs from run to run on a golden screen.
var masks = []struct {
	re *regexp.Regexp
	by string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "SESSION"},
	{regexp.MustCompile(`[0-9.]+k? tokens`), "N tokens"},
	{regexp.MustCompile(`(, | in )[0-9.]+ m?s`), "${1}N s"},
	{regexp.MustCompile(`(?m)(^| )[0-9]+s( ·|$)`), "${1}Ns$2"},
}

// golden compares the screen with a file; go test -update writes it.
func (p *tmuxPane) golden(name string, got string) {
	p.t.Helper()
	for _, m := range masks {
		got = m.re.ReplaceAllString(got, m.by)
	}
	file := filepath.Join("testdata", "screens", name)
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			p.t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		p.t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		p.t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

// said are the messages of the user in a session's log.
func (p *process) said(id holdfast.SessionID) (out []string) {
	p.t.Helper()
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		var m holdfast.UserMessage
		if ev.Type != holdfast.EventMessageUser {
			continue
		}
		if err := ev.Decode(&m); err != nil {
			p.t.Fatal(err)
		}
		out = append(out, m.Text())
	}
	return out
}

// hears waits until a session's last message reads so.
func (p *process) hears(id holdfast.SessionID, want string) {
	p.t.Helper()
	testkit.Eventually(p.t, fmt.Sprintf("the session has the message %.80q", want), func() bool {
		all := p.said(id)
		return len(all) > 0 && all[len(all)-1] == want
	})
}

// child is the chat's process.
func (p *tmuxPane) child() int {
	p.t.Helper()
	shell := strings.TrimSpace(p.tmux("display-message", "-p", "#{pane_pid}"))
	raw, err := os.ReadFile("/proc/" + shell + "/task/" + shell + "/children")
	if err != nil {
		p.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(raw))[0])
	if err != nil {
		p.t.Fatal(err)
	}
	return pid
}
