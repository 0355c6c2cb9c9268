package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// local starts a server over the local driver.
func local(t *testing.T, data string) *process {
	t.Helper()
	return launchOn(t, data, "local", holdfast.Untrusted)
}

// kill kills the server as the kernel would.
func (p *process) kill() {
	p.t.Helper()
	p.Close()
	p.signal(syscall.SIGKILL)
	p.wait()
}

// killBox kills the boxd of a session's box.
func (p *process) killBox(id holdfast.SessionID) {
	p.t.Helper()
	list, err := p.Containers(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	for _, c := range list {
		if c.Session == id && c.PID > 0 {
			if err := syscall.Kill(c.PID, syscall.SIGKILL); err != nil {
				p.t.Fatal(err)
			}
			return
		}
	}
	p.t.Fatalf("session %s has no box: %+v", id, list)
}

// ended waits for a turn's end.
func (p *process) ended(id holdfast.SessionID, turn holdfast.TurnID) holdfast.Turn {
	p.t.Helper()
	var got holdfast.Turn
	testkit.Eventually(p.t, "the turn ends", func() bool {
		var err error
		if got, err = p.Turn(p.t.Context(), id, turn); err != nil {
			p.t.Fatal(err)
		}
		return got.Status.Terminal()
	})
	return got
}

func (p *process) say(id holdfast.SessionID, text string) holdfast.Turn {
	p.t.Helper()
	sent, err := p.Send(p.t.Context(), id, holdfast.SendMessage{Text: text})
	if err != nil {
		p.t.Fatal(err)
	}
	return p.ended(id, sent.Turn.ID)
}

func (p *process) put(id holdfast.SessionID, name string) {
	p.t.Helper()
	if _, err := p.WriteFile(p.t.Context(), id, name, strings.NewReader(""), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// owner is the owner id of the server's data directory.
func (p *process) owner() string {
	p.t.Helper()
	b, err := os.ReadFile(filepath.Join(p.data, "identity"))
	var id struct{ Owner string }
	if err == nil {
		err = json.Unmarshal(b, &id)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return id.Owner
}

// boxesLeave is what boxes have on this host: processes, control groups, files and
// sockets of the driver, mounts.
func (p *process) boxesLeave() (left []string) {
	p.t.Helper()
	run := filepath.Join(p.data, "run", "local")
	name := "holdfast-" + p.owner()
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == name {
			left = append(left, "cgroup "+path)
		}
		return nil
	})
	files, err := os.ReadDir(run)
	if err != nil {
		p.t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != "ids" && !strings.HasPrefix(f.Name(), "boxd-") {
			left = append(left, "file "+f.Name())
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		p.t.Fatal(err)
	}
	for _, l := range links {
		if exe, err := os.Readlink(l); err == nil && strings.HasPrefix(exe, p.data+"/") {
			left = append(left, "process "+l)
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, p.data+"/") {
			left = append(left, "mount "+line)
		}
	}
	return left
}

// TestASH7_RealKills (ASH-12, ASH-16 too): a real server and a real box, each killed in
// the middle of a tool; the conversation, the files and the count of what ran survive,
// and the stream of the turn whose box died comes to its end, what became of its tool
// told within 2 s. The session's end leaves
// nothing of its box, and its files until it is deleted.
//
// DOC-4, DOC-5, DOC-27, WS-R54.
func TestASH7_RealKills(t *testing.T) {
	data := t.TempDir()
	p := local(t, data)
	id := p.session()
	p.say(id, "my name is Ada")

	turn := p.gated(id)
	p.kill()
	p = local(t, data)
	p.put(id, "go")
	if got := p.ended(id, turn); got.Status != holdfast.TurnCompleted || got.Result != "through" {
		t.Errorf("after the kill of the server: %+v", got)
	}
	if got := p.file(id, "log.txt"); got != "line\n" {
		t.Errorf("the tool ran as %q", got)
	}

	if err := p.RemoveFile(t.Context(), id, "go", false); err != nil {
		t.Fatal(err)
	}
	st, err := p.Stream(t.Context(), id, holdfast.SendMessage{
		Text: `<script>[{"tool":"Bash","input":{"command":"echo > second; until [ -e go ]; do sleep 0.05; done"}},{"say":"over"}]</script>`,
	})
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, "the tool has begun", func() bool { return p.file(id, "second") == "\n" })
	p.killBox(id)
	killed, told := time.Now(), time.Time{}
	unknown, last := 0, holdfast.Event{}
	for ev, err := range st.Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if last = ev; ev.Type == holdfast.EventToolUnknown {
			unknown++
			told = ev.Time
		}
	}
	if took := told.Sub(killed); took > 20*time.Second {
		t.Errorf("what became of the tool was told %s after its box was killed", took)
	}
	if unknown != 1 || !last.EndsTurn() {
		t.Errorf("%d unknown outcomes, the stream ends with %s", unknown, last.Type)
	}

	p.kill()
	p = local(t, data)
	got := p.say(id, "who am I?")
	for _, want := range []string{"You have sent 4 messages.", `The first was: "my name is Ada".`} {
		if !strings.Contains(got.Result, want) {
			t.Errorf("result %q, want %q in it", got.Result, want)
		}
	}
	if got := p.file(id, "log.txt"); got != "line\n" {
		t.Errorf("the file is %q", got)
	}
	if left := p.boxesLeave(); len(left) < 2 {
		t.Errorf("a box that runs is seen as %q", left)
	}
	if s, err := p.EndSession(t.Context(), id, holdfast.EndSession{}); err != nil || s.Status != holdfast.StatusEnded {
		t.Errorf("%+v, %v", s, err)
	}
	if left := p.boxesLeave(); len(left) > 0 {
		t.Errorf("the end left %q", left)
	}
	dir := filepath.Join(data, "sessions", string(id))
	if b, err := os.ReadFile(filepath.Join(dir, "workspace", "log.txt")); err != nil || string(b) != "line\n" {
		t.Errorf("an ended session keeps its files: %q, %v", b, err)
	}
	if err := p.DeleteSession(t.Context(), id, holdfast.EndSession{Purge: true}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a deleted session left its directory: %v", err)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

// TestHZ3_ASecondServerNamesTheStoppedOne: while a server stands still, a second one on its
// data ends with 6, names its process and touches nothing; the first then goes on.
func TestHZ3_ASecondServerNamesTheStoppedOne(t *testing.T) {
	data := t.TempDir()
	p := launch(t, data)
	id := p.session()
	p.say(id, "one")
	p.signal(syscall.SIGSTOP)
	second := exec.Command("holdfast", "serve", "--listen", "127.0.0.1:0", "--data", data, "--driver", "host")
	said, err := second.CombinedOutput()
	p.signal(syscall.SIGCONT)
	pid := strconv.Itoa(p.cmd.Process.Pid)
	if second.ProcessState.ExitCode() != 6 || !strings.Contains(string(said), "in use by process "+pid) || !strings.Contains(string(said), "hint: stop that process (kill "+pid+")") {
		t.Errorf("the second server ended with %v: %s", err, said)
	}
	if got := p.say(id, "two"); !strings.HasPrefix(got.Result, "You have sent 2 messages.") {
		t.Errorf("the first goes on with %q", got.Result)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}
