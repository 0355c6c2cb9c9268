package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// stopper stops a server where a session passes a point, until its process ends.
type stopper struct {
	path string
	mu   sync.Mutex
	want string
	hit  chan struct{}
}

func newStopper(t *testing.T, path string) *stopper {
	t.Helper()
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	s := &stopper{path: path}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(conn)
		}
	}()
	return s
}

func (s *stopper) serve(conn net.Conn) {
	defer conn.Close()
	text := bufio.NewReader(conn)
	got, err := text.ReadString('\n')
	if err != nil {
		return
	}
	s.mu.Lock()
	stop := s.want != "" && got == s.want+"\n"
	if stop {
		s.want = ""
		close(s.hit)
	}
	s.mu.Unlock()
	if stop {
		// Until the server is gone.
		_, _ = text.ReadByte()
		return
	}
	_, _ = conn.Write([]byte{1})
}

// arm makes a session stop at a point; the channel is closed once it stands there.
func (s *stopper) arm(id holdfast.SessionID, point string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.want, s.hit = string(id)+" "+point, make(chan struct{})
	return s.hit
}

// kills is how often a server is killed at each place: 5, and 50 in make test-long.
func kills(t *testing.T) int {
	t.Helper()
	text := os.Getenv("HOLDFAST_APPROVAL_KILLS")
	if text == "" {
		return 5
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("HOLDFAST_APPROVAL_KILLS is %q", text)
	}
	return n
}

// guarded is a server whose sessions ask for commands, over the local driver.
func guarded(t *testing.T, data, points string) *process {
	t.Helper()
	return launchOn(t, data, "local", holdfast.Untrusted, "--kill-points", points)
}

// asked sends a message whose tool has to be allowed, and waits until it is asked
// for.
func (p *process) asked() (holdfast.SessionID, holdfast.TurnID, holdfast.Approval) {
	p.t.Helper()
	s, err := p.CreateSession(p.t.Context(), holdfast.CreateSession{Mode: "default"}, "")
	if err != nil {
		p.t.Fatal(err)
	}
	sent, err := p.Send(p.t.Context(), s.ID, holdfast.SendMessage{
		Text: `<script>[{"tool":"Bash","input":{"command":"echo line >> log.txt"}},{"say":"through"}]</script>`,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return s.ID, sent.Turn.ID, p.open(s.ID)
}

// open is the open question of a session.
func (p *process) open(id holdfast.SessionID) (a holdfast.Approval) {
	p.t.Helper()
	testkit.Eventually(p.t, "the tool is asked for", func() bool {
		page, err := p.Approvals(p.t.Context(), holdfast.ApprovalFilter{Session: string(id)})
		if err != nil {
			p.t.Fatal(err)
		}
		if len(page.Approvals) == 0 {
			return false
		}
		a = page.Approvals[0]
		return len(page.Approvals) == 1
	})
	return a
}

func (p *process) decide(a holdfast.Approval, decision string) {
	p.t.Helper()
	if _, err := p.AnswerApproval(p.t.Context(), a.ID, holdfast.AnswerApproval{Decision: decision}); err != nil {
		p.t.Fatal(err)
	}
}

// ran checks that the tool ran once after an allow, and not after a deny, and that
// it was asked for and decided once.
func (p *process) ran(what string, id holdfast.SessionID, turn holdfast.TurnID, decision string) {
	p.t.Helper()
	got, want := p.ended(id, turn), ""
	if decision == "allow" {
		want = "line\n"
	}
	if log := p.file(id, "log.txt"); log != want || got.Result != "through" {
		p.t.Errorf("%s, %s: the tool left %q, the turn is %s %q", what, decision, log, got.Status, got.Result)
	}
	events, err := p.Events(p.t.Context(), id, holdfast.EventFilter{Limit: 1000})
	if err != nil {
		p.t.Fatal(err)
	}
	n := map[holdfast.EventType]int{}
	for _, ev := range events {
		n[ev.Type]++
	}
	if n[holdfast.EventApprovalAsked] != 1 || n[holdfast.EventApprovalAnswered] != 1 || n[holdfast.EventToolAllowed]+n[holdfast.EventToolDenied] != 1 || n[holdfast.EventToolUnknown] != 0 {
		p.t.Errorf("%s, %s: %v", what, decision, n)
	}
}

// TestHZ15_ApprovalsOutliveKills: a real server over real boxes is killed between
// the question and its answer, and between the answer and the tool's start: before
// the verdict is recorded, and after that and the intent. The tool runs exactly
// once after an allow and never after a deny.
func TestHZ15_ApprovalsOutliveKills(t *testing.T) {
	data := testkit.BaseDir(t)
	points := newStopper(t, filepath.Join(data, "points"))
	p := guarded(t, data, points.path)
	again := func() {
		t.Helper()
		p.kill()
		p = guarded(t, data, points.path)
	}
	for i := range kills(t) {
		decision := []string{"allow", "deny"}[i%2]

		id, turn, a := p.asked()
		again()
		if now := p.open(id); now.ID != a.ID {
			t.Fatalf("round %d: %s was asked again as %s", i, a.ID, now.ID)
		}
		p.decide(a, decision)
		p.ran(fmt.Sprintf("round %d, killed before the answer", i), id, turn, decision)

		point := "answered"
		if i%4 == 2 {
			point = "intent"
		}
		id, turn, a = p.asked()
		hit := points.arm(id, point)
		p.decide(a, decision)
		select {
		case <-hit:
		case <-time.After(30 * time.Second):
			t.Fatalf("round %d: the turn never came to %s", i, point)
		}
		again()
		p.ran(fmt.Sprintf("round %d, killed at %s", i, point), id, turn, decision)
	}
	p.signal(syscall.SIGTERM)
	p.wait()
}

// TestChatAsks: a chat on a terminal asks in place what a tool needs, shows nothing
// that moves the cursor, and takes no other line for an answer.
func TestChatAsks(t *testing.T) {
	data := testkit.BaseDir(t)
	p := launch(t, data)
	c := lineChat(t, map[string]string{"HOLDFAST_URL": p.url, "HOLDFAST_HOME": data}, "--trust", "trusted", "--mode", "default")
	c.sees(0, `your first message makes a session[^>]*> `)
	const ask = `y once, s session, w workspace, n deny \[reason\] > `
	bash := func(command string) string {
		return `<script>[{"tool":"Bash","input":{"command":"` + command + `"}},{"say":"over"}]</script>` + "\n"
	}
	c.types(bash(`echo \\u001b[2Jhello`), `Bash wants to run: [^§]*asked because permission mode default[^§]*`+ask)
	if strings.Contains(c.seen.String(), "\x1b[2J") {
		t.Error("the call cleared the screen")
	}
	c.types("what is this\n", `a question is open: y allows it once[^§]*`+ask)
	c.types("y\n", `allowed by owner[^§]*over[^>]*> `)
	c.types(bash("touch a"), `s and w would grant Bash\(touch a\)[^§]*`+ask)
	c.types("n not now\n", `denied by owner[^§]*the user denied it: not now[^§]*over[^>]*> `)
	c.types(bash("touch b"), ask)
	c.types("s\n", `in this session: Bash\(touch b\)[^§]*over[^>]*> `)
	c.types(bash("touch b"), `← Bash ok[^§]*over[^>]*> `)
	c.types("/quit\n", `left`)
	p.signal(syscall.SIGTERM)
	p.wait()
}
