package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// hostGit runs the git of the host in a directory, as its owner.
func hostGit(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "safe.directory=*", "-c", "user.name=user", "-c", "user.email=user@example.com"}, args...)...)
	var st syscall.Stat_t
	if err := syscall.Lstat(dir, &st); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 && st.Uid != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: st.Uid, Gid: st.Gid}}
	}
	cmd.Env = append(cmd.Environ(), "HOME=/nonexistent")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %v: %v: %s", args, err, out)
	}
	return string(out)
}

// fileOf returns the path of a file that the agent does not touch.
func fileOf(dir string, i int) string {
	return filepath.Join(dir, fmt.Sprintf("d%d", i%7), fmt.Sprintf("f%d", i))
}

// door is a way in which a user talks with a session in a directory of their own.
type door struct {
	// id is the session, known once the first turn has ended.
	id func() holdfast.SessionID
	// say sends a text, waits for the answer, and fails the test if the answer is not said. begin sends a text and returns a
	// function that does the rest.
	say   func(p *process, text, said string)
	begin func(p *process, text, said string) (end func())
}

// doors are the Go client, an editor that speaks the Agent Client Protocol, and a chat.
var doors = map[string]func(t *testing.T, p *process, dir string) door{
	"client": func(t *testing.T, p *process, dir string) door {
		ses, err := p.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir, Mode: string(holdfast.ModeBypassPermissions)}, "")
		if err != nil {
			t.Fatal(err)
		}
		return door{func() holdfast.SessionID { return ses.ID }, func(p *process, text, said string) {
			if turn := p.say(ses.ID, text); turn.Status != holdfast.TurnCompleted || turn.Result != said {
				t.Fatalf("%+v, want %s", turn, said)
			}
		}, func(p *process, text, _ string) func() {
			if _, err := p.Send(t.Context(), ses.ID, holdfast.SendMessage{Text: text}); err != nil {
				t.Fatal(err)
			}
			return func() {} // the next turn waits for it
		}}
	},
	"editor": func(t *testing.T, p *process, dir string) door {
		d := p.editHere("--mode", "bypassPermissions")
		made, err := d.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
		if err != nil {
			t.Fatalf("%v\n%s", err, d.errs.String())
		}
		turns := int64(0)
		begin := func(p *process, text, said string) func() {
			ended := d.asks(made.SessionId, text)
			turns++
			testkit.Eventually(t, "the server has the message", func() bool {
				list, err := p.Turns(t.Context(), holdfast.SessionID(made.SessionId), turns-1, 1)
				return err == nil && len(list) == 1
			})
			return func() {
				if res := <-ended; res.StopReason != acp.StopReasonEndTurn {
					t.Errorf("%s: %+v", said, res)
				}
				d.sees(said)
			}
		}
		return door{func() holdfast.SessionID { return holdfast.SessionID(made.SessionId) }, func(p *process, text, said string) { begin(p, text, said)() }, begin}
	},
	"chat": func(t *testing.T, p *process, dir string) door {
		c := lineChat(t, map[string]string{"HOLDFAST_URL": p.url, "HOLDFAST_HOME": p.data}, "--dir", dir, "--mode", "bypassPermissions")
		c.sees(0, `> `)
		begin := func(_ *process, text, said string) func() {
			before := len(c.plain())
			c.types(text+"\n", "")
			return func() { c.sees(before, `(?m)^\W*`+said+`\b`) }
		}
		return door{func() holdfast.SessionID {
			return holdfast.SessionID(regexp.MustCompile(`session ([0-9a-f-]{36})`).FindStringSubmatch(c.plain())[1])
		}, func(p *process, text, said string) { begin(p, text, said)() }, begin}
	},
}

// TestOwnDirectoryUnderKills: sessions edit a real repository of a user, whose git works in it meanwhile, while the server and
// the box are killed: each acknowledged edit is there once, and inode, owner, mode and content of what nobody edited stay. The
// client, the editor or the chat is the same one all the time.
func TestOwnDirectoryUnderKills(t *testing.T) {
	testkit.Long(t)
	for name, open := range doors {
		t.Run("of a user/"+name, func(t *testing.T) {
			t.Parallel()
			dir := project(t)
			underKills(t, dir, open, func() { give(t, dir) })
		})
		t.Run("of root/"+name, func(t *testing.T) {
			t.Parallel()
			dir := project(t)
			underKills(t, dir, open, func() { giveRoot(t, dir) }, "--set", "allow_root_trees=true")
		})
	}
}

// underKills makes a repository in a directory and then gives it to its owner. args are those of the server.
func underKills(t *testing.T, dir string, open func(*testing.T, *process, string) door, own func(), args ...string) {
	t.Helper()
	serve := func(data string, more ...string) *process {
		return launchOn(t, data, "local", holdfast.Untrusted, append(more, args...)...)
	}
	for i := range 200 {
		path := fileOf(dir, i)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(fmt.Sprintln("file", i)), os.FileMode(0o600+i%8)); err != nil {
			t.Fatal(err)
		}
	}
	own()
	hostGit(t, dir, "init", "-q")
	hostGit(t, dir, "add", "-A")
	hostGit(t, dir, "commit", "-qm", "all")
	was := map[string]syscall.Stat_t{}
	look := func(path string) (st syscall.Stat_t) {
		if err := syscall.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		st.Atim, st.Blocks = syscall.Timespec{}, 0
		return st
	}
	for i := range 200 {
		was[fileOf(dir, i)] = look(fileOf(dir, i))
	}
	p := serve(filepath.Join(testkit.BaseDir(t), "data"))
	at := strings.TrimPrefix(p.url, "http://")
	d := open(t, p, dir)
	for n := range 20 {
		command := fmt.Sprintf("echo line %d >> log; echo %d > edited; sleep 0.0%d", n, n, n%5)
		d.say(p, fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":%q}},{"tool":"Write","input":{"file_path":"written","content":"%d"}},{"say":"done%d"}]</script>`, command, n, n), fmt.Sprint("done", n))
		// The next turn begins, and is cut off.
		end := d.begin(p, fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":"true"}},{"say":"cut%d"}]</script>`, n), fmt.Sprint("cut", n))
		if n%2 == 0 {
			p.kill()
			p = serve(p.data, "--listen", at)
		} else {
			p.killBox(d.id())
		}
		end()
		hostGit(t, dir, "status", "--short")
		if n%5 == 4 {
			hostGit(t, dir, "add", "log")
			hostGit(t, dir, "commit", "-qm", fmt.Sprint("log ", n))
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	unknown := unknownCalls(t, p, d.id())
	mostAreKnown(t, unknown)
	for n := range 20 {
		// A killed box may still take the next command before it dies. The log then has the command's outcome as unknown, and
		// the server does not repeat the command.
		known := !slices.ContainsFunc(unknown, func(in string) bool { return strings.Contains(in, fmt.Sprintf("echo line %d ", n)) })
		if got := strings.Count(string(b), fmt.Sprintf("line %d\n", n)); got > 1 || got == 0 && known {
			t.Errorf("line %d is there %d times, its outcome is known: %v", n, got, known)
		}
	}
	for path, st := range was {
		if now := look(path); now != st {
			t.Errorf("%s changed: %+v, was %+v", path, now, st)
		}
	}
	for _, name := range []string{"log", "edited", "written"} {
		if st := look(filepath.Join(dir, name)); st.Uid != look(dir).Uid {
			t.Errorf("%s belongs to uid %d", name, st.Uid)
		}
	}
	if out := hostGit(t, dir, "fsck", "--strict"); strings.Contains(out, "error") {
		t.Errorf("git fsck: %s", out)
	}
}

// mostAreKnown checks how many calls of a session have an unknown outcome. Ten boxes are killed in a turn whose command is
// `true`, and each may take the outcome of that command with it.
func mostAreKnown(t *testing.T, unknown []string) {
	t.Helper()
	cut := 0
	for _, in := range unknown {
		if strings.Contains(in, `"true"`) {
			cut++
		}
	}
	if cut > 10 || len(unknown)-cut > 5 {
		t.Errorf("the outcome of %d commands is unknown: %q", len(unknown), unknown)
	}
}

// unknownCalls returns the inputs of the session's calls whose outcome is unknown.
func unknownCalls(t *testing.T, p *process, id holdfast.SessionID) (out []string) {
	t.Helper()
	list, err := p.Events(t.Context(), id, holdfast.EventFilter{
		Limit: 1000, Types: []holdfast.EventType{holdfast.EventToolRequested, holdfast.EventToolUnknown},
	})
	if err != nil {
		t.Fatal(err)
	}
	inputs := map[string]string{}
	for _, ev := range list {
		var asked holdfast.ToolRequested
		var lost holdfast.ToolUnknown
		switch {
		case ev.Type == holdfast.EventToolRequested && ev.Decode(&asked) == nil:
			inputs[asked.ToolUseID] = string(asked.Input)
		case ev.Type == holdfast.EventToolUnknown && ev.Decode(&lost) == nil:
			out = append(out, inputs[lost.ToolUseID])
		}
	}
	return out
}
