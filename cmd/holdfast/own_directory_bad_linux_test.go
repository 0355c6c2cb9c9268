package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/coder/acp-go-sdk"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// TestTwoEditorsOnOneDirectory: two editors open one directory, each with a session of its own, and their turns edit it at the same
// time. Each edit of a file of one's own is there; of two edits of the same words of a file one succeeds, and the other one
// says that the words are gone.
func TestTwoEditorsOnOneDirectory(t *testing.T) {
	dir := project(t)
	p := launchOn(t, filepath.Join(testkit.BaseDir(t), "data"), "local", holdfast.Untrusted)
	var editors []*editor
	var ids []acp.SessionId
	for range 2 {
		d := p.editHere("--mode", "bypassPermissions")
		made, err := d.conn.NewSession(t.Context(), acp.NewSessionRequest{Cwd: dir, McpServers: []acp.McpServer{}})
		if err != nil {
			t.Fatalf("%v\n%s", err, d.errs.String())
		}
		editors, ids = append(editors, d), append(ids, made.SessionId)
	}
	ended := make(chan struct{}, 2)
	for i, d := range editors {
		go func() {
			defer func() { ended <- struct{}{} }()
			d.ask(ids[i], fmt.Sprintf(`<script>[
				{"tool":"Bash","input":{"command":"for n in 1 2 3 4 5; do echo %d >> of-%d; done"}},
				{"tool":"Read","input":{"file_path":"main.go"}},
				{"tool":"Edit","input":{"file_path":"main.go","old_string":"package main","new_string":"package p%d"}},
				{"say":"done"}]</script>`, i, i, i))
		}()
	}
	for range editors {
		<-ended
	}
	won := -1
	for i := range editors {
		if b, err := os.ReadFile(filepath.Join(dir, fmt.Sprint("of-", i))); err != nil || string(b) != strings.Repeat(fmt.Sprintln(i), 5) {
			t.Errorf("the file of editor %d is %q, %v", i, b, err)
		}
		results := p.results(holdfast.SessionID(ids[i]), 3)
		if edit := results[2]; !edit.IsError {
			if won >= 0 {
				t.Error("both edits of the same words succeeded")
			}
			won = i
		} else if !strings.Contains(edit.Content, "main.go") {
			t.Errorf("the refused edit says %q", edit.Content)
		}
	}
	if b, err := os.ReadFile(filepath.Join(dir, "main.go")); err != nil || won < 0 || string(b) != fmt.Sprintf("package p%d\n", won) {
		t.Errorf("main.go is %q, %v; the edit of %d succeeded", b, err, won)
	}
}

// TestOwnDirectoryOnAFullDisk: the disk of a directory of the user's own fills in the middle of a turn. The tools say so, what was
// there stays as it was, the turn ends, and the next one works again once there is space. The server's own disk has space.
func TestOwnDirectoryOnAFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can mount a small disk")
	}
	dir := project(t)
	if err := syscall.Mount("small", dir, "tmpfs", 0, "size=1m,mode=755,uid=1000,gid=1000"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	p := launchOn(t, filepath.Join(testkit.BaseDir(t), "data"), "local", holdfast.Untrusted)
	ses, err := p.CreateSession(t.Context(), holdfast.CreateSession{Dir: dir, Mode: string(holdfast.ModeBypassPermissions)}, "")
	if err != nil {
		t.Fatal(err)
	}
	const whole = "the text of a file that stays as it is\n"
	p.say(ses.ID, `<script>[{"tool":"Bash","input":{"command":"printf 'the text of a file that stays as it is\\n' > kept"}},{"say":"done"}]</script>`)
	turn := p.say(ses.ID, `<script>[
		{"tool":"Bash","input":{"command":"head -c 4000000 /dev/zero > filler; true"}},
		{"tool":"Write","input":{"file_path":"kept","content":"`+strings.Repeat("x", 20_000)+`"}},
		{"tool":"Bash","input":{"command":"echo more > other"}},
		{"say":"ended"}]</script>`)
	if turn.Status != holdfast.TurnCompleted || turn.Result != "ended" {
		t.Errorf("the turn on a full disk: %+v", turn)
	}
	results := p.results(ses.ID, 4)
	if write := results[2]; !write.IsError || !strings.Contains(write.Content, "space") {
		t.Errorf("the file tool says %+v", write)
	}
	if more := results[3]; more.Outcome != holdfast.ExitExit || !strings.Contains(more.Content, "No space left") {
		t.Errorf("the command says %+v", more)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(b) != whole {
		t.Errorf("the file is %q, %v", b, err)
	}
	if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
		t.Fatal(err)
	}
	p.say(ses.ID, `<script>[{"tool":"Bash","input":{"command":"echo after > other"}},{"say":"done"}]</script>`)
	if b, err := os.ReadFile(filepath.Join(dir, "other")); err != nil || string(b) != "after\n" {
		t.Errorf("with space again: %q, %v", b, err)
	}
	for ev, err := range p.AllEvents(t.Context(), ses.ID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if ev.Type == holdfast.EventSnapshotFailed {
			t.Errorf("%s", ev.Data)
		}
	}
}
