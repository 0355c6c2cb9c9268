package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// talkative is a server whose sessions work on this host, and the variables that lead to it.
func talkative(t *testing.T) (*process, map[string]string) {
	t.Helper()
	data := testkit.BaseDir(t)
	p := launch(t, data)
	return p, map[string]string{"HOLDFAST_URL": p.url, "HOLDFAST_HOME": data, "XDG_STATE_HOME": t.TempDir(), "HOME": t.TempDir()}
}

// steps is a message that the scripted model obeys.
func steps(list string) string { return `<script>[` + list + `]</script>` }

// from is what a terminal shows from a text on.
func from(all, begin string) string {
	_, rest, _ := strings.Cut(all, begin)
	return begin + rest
}

// TestScreenEdits: the keys of the editor, the history, the search, and an editor of the
// user's; each message arrives as it was written.
//
// FH-24, FH-26.
func TestScreenEdits(t *testing.T) {
	p, vars := talkative(t)
	editor := filepath.Join(t.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\nprintf 'from the editor\\nand \\033[31mmore\\n' >>\"$1\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	vars["EDITOR"] = editor
	s := onTmux(t, 80, 24, vars)
	s.sees(`your first message makes a session`)
	if page, err := p.Sessions(t.Context(), holdfast.SessionFilter{}); err != nil || len(page.Sessions) != 0 {
		t.Fatalf("an empty chat made %d sessions, %v", len(page.Sessions), err)
	}

	s.types("two words")
	s.keys("Home")
	s.types("A ")
	s.keys("End", "C-Left", "Left", "BSpace")
	s.types("O")
	s.keys("End", "Enter")
	id := s.session()
	p.hears(id, "A twO words")

	// Wide and combining characters are each one step and one removal.
	s.types("日本e\u0301語x")
	s.keys("Left", "Left", "Left", "BSpace", "Enter")
	p.hears(id, "日e\u0301語x")

	// Lines: Alt-Enter, and a backslash at the end.
	s.types("one")
	s.keys("M-Enter")
	s.types(`two\`)
	s.keys("Enter")
	s.types("three")
	s.sees(`> one\n  two\n  three`)
	s.keys("Enter")
	p.hears(id, "one\ntwo\nthree")

	// The history: up past the lines of a message, and back to what was being written.
	s.types("draft")
	s.keys("Up")
	s.sees(`> one\n  two\n  three`)
	s.keys("Up", "Up", "Up")
	s.sees(`> 日e\x{301}語x\n`)
	s.keys("Down", "Down", "Down", "Down")
	s.sees(`> draft\n`)
	s.keys("C-u", "C-r")
	s.types("two")
	s.sees(`search: two`)
	s.keys("C-r", "Enter")
	p.hears(id, "A twO words")
	s.sees(`You have sent 4 messages`)

	s.types("before ")
	s.keys("C-e")
	s.sees(`> before from the editor\n  and \[31mmore`)
	s.keys("Enter")
	p.hears(id, "before from the editor\nand [31mmore")

	s.types("/mo")
	s.keys("Tab")
	s.sees(`/model  /mode`)
	s.types(" acc")
	s.keys("Tab")
	s.sees(`> /mode acceptEdits`)
	s.keys("Enter")
	s.sees(`mode acceptEdits\n`)
	s.types("not sent")
	s.keys("C-c", "C-c")
	s.sees(`left; to come back: holdfast chat ` + string(id))
	s.sees(`not sent:\n> not sent\nEXIT 130`)
}

// TestScreenPastes: a paste is one message whatever it holds, without what a terminal
// would obey, and a megabyte arrives whole.
//
// FH-25, FH-53.
func TestScreenPastes(t *testing.T) {
	p, vars := talkative(t)
	s := onTmux(t, 80, 24, vars)
	s.sees(`your first message makes a session`)
	s.paste("first\n\x1b]0;title\x07second\x01\n\tthird\n/quit\n")
	s.sees(`> first\n.*second\n\s+third\n /quit`)
	s.keys("Enter")
	id := s.session()
	testkit.Eventually(t, "the message is there", func() bool { return len(p.said(id)) == 1 })
	if got := p.said(id)[0]; strings.ContainsAny(got, "\x00\x01\x07\x1b\r") || !strings.HasPrefix(got, "first\n") || !strings.HasSuffix(got, "second\n\tthird\n/quit") {
		t.Errorf("%q", got)
	}
	big := strings.Repeat("a line of a long paste, with words\n", 30_000)
	s.paste(big)
	s.sees(`\[pasted: 30001 lines, 1.0 MiB\]`)
	s.types(" and a word")
	s.keys("Enter")
	p.hears(id, strings.TrimSpace(big+" and a word"))
	s.ever(`… 29989 more lines`)
}

// TestScreenAsks: a call is shown whole before it is decided, a change in lines; each
// answer does what it says, and what is not an answer is none.
//
// FH-28, FH-29.
func TestScreenAsks(t *testing.T) {
	p, vars := talkative(t)
	s := onTmux(t, 76, 30, vars, "--trust", "trusted", "--mode", "default")
	s.sees(`your first message makes a session`)
	s.paste(steps(`{"tool":"Write","input":{"file_path":"a.txt","content":"one\ntwo\nthree\n"}},{"tool":"Edit","input":{"file_path":"a.txt","old_string":"one\ntwo","new_string":"one\n2\u001b[2J"}},{"say":"over"}`))
	s.keys("Enter")
	id := s.session()
	s.sees(`Write wants to run: a.txt\n\s*\+ one\n\s*\+ two\n\s*\+ three\nasked because`)
	s.types("maybe")
	s.keys("Enter")
	s.sees(`a question is open`)
	s.types("y")
	s.keys("Enter")
	s.sees(`Edit wants to run: a.txt\n\s*one\n\s*- two\n\s*\+ 2\\u001b\[2J\nasked because[^§]*\n\?\s*\ny once`)
	s.golden("asks.txt", from(s.all(), "→ Write"))
	s.types("n not like this")
	s.keys("Enter")
	s.sees(`the user denied it: not like this[^§]*over\n>`)

	// The rule is edited, and counts in this session.
	s.enter(steps(`{"tool":"Bash","input":{"command":"touch b"}},{"say":"over b"}`))
	s.sees(`s and w would grant Bash\(touch b\)`)
	s.types("e")
	s.keys("Enter")
	s.sees(`\? s Bash\(touch b\)\n`)
	s.keys("BSpace", "BSpace")
	s.types("*)")
	s.keys("Enter")
	s.sees(`in this session: Bash\(touch \*\)[^§]*over b\n>`)
	s.enter(steps(`{"tool":"Bash","input":{"command":"touch c"}},{"say":"over c"}`))
	s.sees(`← Bash ok[^§]*over c\n>`)

	// All of a long input goes by, and what was being written comes back.
	s.enter(steps(`{"delay_ms":1000,"tool":"Bash","input":{"command":"true # ` + strings.Repeat("word ", 900) + `end-of-it"}},{"say":"over d"}`))
	s.types("half a mess")
	s.sees(`y once`)
	s.ever(`word end-of-it\n`)
	if n := strings.Count(strings.ReplaceAll(s.all(), "\n", " "), "word "); n < 2*900 { // of the message and of the question
		t.Errorf("%d words are shown of the input", n)
	}
	s.types("y")
	s.keys("Enter")
	s.sees(`> half a mess\n`)
	testkit.Eventually(t, "the file is there", func() bool { return p.file(id, "c") == "" })
}

// TestScreenComesBack: another chat shows the last turns, the running tool and the open
// question; --continue finds the session, --resume offers it.
//
// FH-33.
func TestScreenComesBack(t *testing.T) {
	p, vars := talkative(t)
	first := onTmux(t, 80, 24, vars, "--trust", "trusted", "--mode", "default", "--title", "back and forth")
	first.sees(`your first message makes a session`)
	for _, m := range []string{"alpha", "beta", "gamma"} {
		first.enter(m)
		first.sees(`The last was: "` + m + `"`)
	}
	first.enter(steps(`{"tool":"Bash","input":{"command":"echo printed; until [ -e go ]; do sleep 0.05; done"}},{"say":"through"}`))
	id := first.session()
	first.sees(`y once`)
	first.keys("C-d")
	first.sees(`left; the turn goes on: holdfast chat ` + string(id))

	again := onTmux(t, 80, 40, vars, "--continue")
	again.sees(`> beta\n[^§]*> gamma\n[^§]*Bash wants to run: echo printed[^§]*y once`)
	if strings.Contains(again.all(), "> alpha\n") {
		t.Error("more than the last turns are shown")
	}
	again.types("y")
	again.keys("Enter")
	again.sees(`• Bash echo printed; [^\n]*[0-9]+s\n  printed\n>`)
	again.golden("running.txt", from(again.all(), "> beta"))

	third := onTmux(t, 80, 40, vars, "--resume")
	third.sees(`> [0-9a-f]{8}  back and forth  active`)
	third.types("forth")
	third.keys("Enter")
	third.sees(`> gamma\n[^§]*• Bash echo printed`)
	if _, err := p.WriteFile(t.Context(), id, "go", strings.NewReader(""), 0); err != nil {
		t.Fatal(err)
	}
	third.sees(`← Bash ok[^§]*through\n>`)
	again.sees(`← Bash ok[^§]*through\n>`)
	third.keys("Up", "Up", "Up", "Up", "Up", "Up")
	third.sees(`> alpha\n`)
}

// TestScreenOutlivesTheServer: a server is killed in the middle of a tool; what is sent
// meanwhile waits and arrives once; Ctrl-C ends the turn, a second one leaves.
func TestScreenOutlivesTheServer(t *testing.T) {
	data := testkit.BaseDir(t)
	t.Cleanup(func() { sweep(t, data) })
	p := launch(t, data)
	f := newFront(t)
	f.to.Store(&p.url)
	vars := map[string]string{"HOLDFAST_URL": f.url, "HOLDFAST_HOME": data, "XDG_STATE_HOME": t.TempDir()}
	s := onTmux(t, 100, 30, vars, "--trust", "trusted", "--mode", "bypassPermissions")
	s.sees(`your first message makes a session`)
	s.enter(steps(`{"tool":"Bash","input":{"command":"echo line >> log.txt; until [ -e go ]; do sleep 0.05; done"}},{"say":"through"}`))
	id := s.session()
	s.ever(`trusted: its tools run as the server's user`)
	s.sees(`• Bash echo line`)
	testkit.Eventually(t, "the tool has begun", func() bool { return p.file(id, "log.txt") == "line\n" })
	p.signal(syscall.SIGKILL)
	p.wait()
	s.sees(`the server went away; waiting for it`)
	s.enter("are you there")
	s.sees(`not sent yet: [^§]*it goes out when the server is back`)
	s.sees(`on its way: are you there\n>[^§]*server away`)
	p = launch(t, data)
	f.to.Store(&p.url)
	s.ever(`the server is back`)
	if _, err := p.WriteFile(t.Context(), id, "go", strings.NewReader(""), 0); err != nil {
		t.Fatal(err)
	}
	s.sees(`through[^§]*> are you there\nYou have sent 2 messages[^§]*ready`)
	if got := p.file(id, "log.txt"); got != "line\n" {
		t.Errorf("the tool ran more than once: %q", got)
	}

	s.enter(steps(`{"stall_ms":600000}`))
	testkit.Eventually(t, "the turn runs", func() bool { return p.runs(id) })
	s.enter("next")
	s.sees(`waits: next\n>`)
	s.keys("C-c")
	s.sees(`interrupting; Ctrl-C again leaves[^§]*the turn was interrupted[^§]*> next\nYou have sent 4 messages[^§]*ready`)
	s.keys("C-c")
	s.sees(`nothing runs\nCtrl-C again or /quit leaves`)
	s.keys("C-c")
	s.sees(`left; to come back: holdfast chat ` + string(id) + `\nEXIT 130`)
	if n := strings.Count(s.all(), "You have sent 2 messages"); n != 1 {
		t.Errorf("an answer is shown %d times", n)
	}
}

// TestScreenSizes: twenty columns hold everything, a resize in the middle of an answer
// loses none of it, and without colour nothing is coloured.
//
// FH-53.
func TestScreenSizes(t *testing.T) {
	_, vars := talkative(t)
	start := onTmux(t, 20, 24, vars)
	start.sees(`your first message`)
	start.types("/help")
	start.keys("M-Enter")
	start.types("wide 日本語日本語 wraps")
	start.sees(`wraps`)
	start.golden("start.txt", start.shown())
	start.keys("C-u", "BSpace", "Enter")
	start.sees(`//TEXT send a message that begins with a slash\n>\nready`)
	start.golden("help.txt", from(start.all(), "> /help"))

	const said = `## Title\nSome **bold** words and ` + "`code`" + `, wide 日本語 too.\n- an item\n- another one\n` + "```sh\\necho hi\\n```" + `\nthe end.`
	narrow := onTmux(t, 20, 30, vars)
	narrow.sees(`your first message`)
	narrow.enter(steps(`{"say":"` + said + `"}`))
	narrow.sees(`the end.\n>\nready · [0-9.]+k tokens`)
	narrow.golden("narrow.txt", from(narrow.all(), "> <script>"))

	wide := onTmux(t, 80, 24, vars)
	wide.sees(`your first message`)
	wide.enter(steps(`{"say":"` + strings.Repeat("word ", 200) + `end.","chunks":60,"delay_ms":100}`))
	for _, size := range []string{"50", "30", "100", "80"} {
		wide.tmux("resize-window", "-x", size, "-y", "20")
	}
	wide.types("typed meanwhile")
	wide.sees(`word end.\n> typed meanwhile\nready`)
	if flat := strings.Join(strings.Fields(wide.all()), " "); !strings.Contains(flat, strings.Repeat("word ", 200)+"end.") {
		t.Error("the answer is not whole")
	}

	for name, set := range map[string]string{"colour.txt": "", "plain.txt": "1"} {
		vars["NO_COLOR"] = set
		s := onTmux(t, 60, 24, vars)
		s.sees(`your first message`)
		s.paste(steps(`{"say":"` + said + `"}`))
		s.keys("Enter")
		s.sees(`the end.\n>\nready · [0-9.]+k tokens`)
		got := s.tmux("capture-pane", "-p", "-e")
		if colours := regexp.MustCompile(`\x1b\[[0-9;]*m`).FindString(got); (colours == "") != (set != "") {
			t.Errorf("NO_COLOR=%s: %q", set, colours)
		}
		s.golden(name, from(s.all(), "> <script>"))
	}
}

// TestScreenShrinks: what the search found goes with all of its lines.
//
// FH-53.
func TestScreenShrinks(t *testing.T) {
	_, vars := talkative(t)
	s := onTmux(t, 80, 24, vars)
	s.sees(`your first message`)
	s.types("one")
	s.keys("M-Enter")
	s.types("two")
	s.keys("M-Enter")
	s.enter("three words")
	s.sees(`You have sent 1 message[^§]*>\nready`)
	s.types("kept")
	s.keys("C-r")
	s.types("wor")
	s.sees(`> one\n  two\n  three words\nsearch: wor`)
	s.keys("C-g")
	s.sees(`> kept\nready`)
	if n := strings.Count(s.all(), "> one"); n != 1 { // the message that was sent
		t.Errorf("a row that is gone still stands on the screen:\n%s", s.shown())
	}
}

// TestScreenFolds: thinking is folded, /verbose shows it and all output, /quiet shows no
// tools; the commands answer, and what changes elsewhere shows below.
//
// FH-28, FH-31, FH-32.
func TestScreenFolds(t *testing.T) {
	p, vars := talkative(t)
	s := onTmux(t, 90, 40, vars, "--trust", "trusted", "--mode", "bypassPermissions")
	s.sees(`your first message`)
	const tool = `{"think":"a long thought","tool":"Bash","input":{"command":"seq 100 120"}},{"say":"over"}`
	s.enter(steps(tool))
	s.sees(`∴ thought, 14 characters[^§]*→ Bash seq 100 120\n[^§]*← Bash ok[^§]*15 lines before\n\s*115\n[^§]*120\nover\n>`)
	id := s.session()
	s.enter("/verbose")
	s.sees(`shown whole; /verbose again folds them`)
	s.enter(steps(tool))
	s.sees(`∴ a long thought\n[^§]*← Bash ok[^\n]*\n\s*100\n\s*101\n[^§]*120\nover\n>`)
	s.enter("/quiet")
	s.sees(`tools are not shown`)
	s.enter(steps(tool))
	s.sees(`</script>\nover\n>`)
	s.enter("/cost")
	s.sees(`the session: 6 model calls, [0-9]+ tokens, cost 0.0000 usd`)
	s.enter("/files")
	s.sees(`MODE SIZE MODIFIED NAME`)
	s.enter("/sessions")
	s.sees(`\* ` + string(id[28:]) + ` active`)
	s.enter("/status")
	s.sees(`status active\n[^§]*nothing runs\n>`)
	mode := string(holdfast.ModePlan)
	if _, err := p.UpdateSession(t.Context(), id, holdfast.UpdateSession{Mode: &mode}); err != nil {
		t.Fatal(err)
	}
	s.sees(`ready · [0-9.k]+ tokens · \$0.00 · plan · scripted`)
}

// TestScreenGoes: the terminal is closed under the chat: it ends, and says to nobody that
// it waits.
func TestScreenGoes(t *testing.T) {
	_, vars := talkative(t)
	s := onTmux(t, 80, 24, vars)
	s.sees(`your first message`)
	s.enter("hello")
	s.sees(`You have sent 1 messages`)
	pid := s.child()
	s.tmux("kill-server")
	testkit.Eventually(t, "the chat ends", func() bool { return syscall.Kill(pid, 0) != nil })
}
