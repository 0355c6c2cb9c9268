package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
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
	"github.com/holdfast-run/holdfast/internal/testkit/powercut"
)

// status is the status of a GET without a key.
func (p *process) status(path string) int {
	p.t.Helper()
	resp, err := http.Get(p.url + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode
}

// stop ends the server in order.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if st := p.wait(); st.ExitStatus() != 0 {
		p.t.Errorf("the server ended with %v\n%s", st, p.log.String())
	}
}

// queue sends a message that waits behind a running turn, and returns its turn.
func (p *process) queue(id holdfast.SessionID) holdfast.TurnID {
	p.t.Helper()
	sent, err := p.Send(p.t.Context(), id, holdfast.SendMessage{
		Text: `<script>[{"tool":"Bash","input":{"command":"echo queued >> queued.txt"}},{"say":"done"}]</script>`,
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return sent.Turn.ID
}

func (p *process) turnStatus(id holdfast.SessionID, turn holdfast.TurnID) holdfast.TurnStatus {
	p.t.Helper()
	got, err := p.Turn(p.t.Context(), id, turn)
	if err != nil {
		p.t.Fatal(err)
	}
	return got.Status
}

// boxes are those that the server has.
func (p *process) boxes() []holdfast.Container {
	p.t.Helper()
	list, err := p.Containers(p.t.Context())
	if err != nil || len(list) == 0 {
		p.t.Fatalf("%+v, %v", list, err)
	}
	return list
}

// count counts the events of a type.
func (p *process) count(id holdfast.SessionID, of holdfast.EventType) (n int) {
	p.t.Helper()
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		if ev.Type == of {
			n++
		}
	}
	return n
}

// TestHZ20_CopyStartsNothing: a server on a copy of a data directory whose boxes run
// warns, shows the sessions, refuses work, and touches nothing of the original, whose
// tool ends undisturbed. The copy's queued turn runs once the copy is accepted, and
// from then on it is a server like any other (I-36).
func TestHZ20_CopyStartsNothing(t *testing.T) {
	for driver, trust := range map[string]holdfast.Trust{"host": holdfast.Trusted, "local": holdfast.Untrusted} {
		t.Run(driver, func(t *testing.T) {
			base := testkit.BaseDir(t)
			data, copied := filepath.Join(base, "data"), filepath.Join(base, "copy")
			t.Cleanup(func() { sweep(t, data) })
			p := launchOn(t, data, driver, trust)
			id := p.session()
			first := p.gated(id)
			second := p.queue(id)
			boxes := p.boxes()
			if out, err := exec.Command("cp", "-a", data, copied).CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}

			c := launchOn(t, copied, driver, trust)
			if !strings.Contains(c.log.String(), "is a copy of another server's") || !strings.Contains(c.log.String(), "--accept-copy") {
				t.Errorf("the copy does not warn:\n%s", c.log.String())
			}
			if got := c.status("/readyz"); got != http.StatusServiceUnavailable {
				t.Errorf("readyz of the copy: %d", got)
			}
			if got := c.status("/healthz"); got != http.StatusOK {
				t.Errorf("healthz of the copy: %d", got)
			}
			_, err := c.Send(t.Context(), id, holdfast.SendMessage{Text: "hello"})
			if !holdfast.IsKind(err, holdfast.KindConflict) || !strings.Contains(holdfast.HintOf(err), "serve --accept-copy --data '"+copied+"'") {
				t.Errorf("a message to the copy: %v, hint %q", err, holdfast.HintOf(err))
			}
			if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, ""); !holdfast.IsKind(err, holdfast.KindConflict) {
				t.Errorf("a session of the copy: %v", err)
			}
			if n := c.count(id, holdfast.EventToolStarted); n != 1 {
				t.Errorf("the copy shows %d started tools", n)
			}
			if now := p.boxes(); len(boxes) != 1 || boxes[0].PID == 0 || now[0].PID != boxes[0].PID || now[0].Boot != boxes[0].Boot || now[0].State != boxes[0].State {
				t.Errorf("the original has the boxes %+v, it had %+v", now, boxes)
			}

			p.put(id, "go")
			testkit.Eventually(t, "the original's turns end", func() bool { return p.ends(id, second) == 1 })
			if got := p.turnStatus(id, first); got != holdfast.TurnCompleted {
				t.Errorf("the original's turn is %s", got)
			}
			if lost, log := p.count(id, holdfast.EventBoxLost), p.file(id, "log.txt"); lost != 0 || log != "line\n" {
				t.Errorf("the original lost %d boxes, its tool left %q", lost, log)
			}
			if got := c.turnStatus(id, second); got != holdfast.TurnQueued {
				t.Errorf("the copy's queued turn is %s", got)
			}
			c.stop()

			t.Cleanup(func() { sweep(t, copied) })
			c = launchOn(t, copied, driver, trust, "--accept-copy")
			testkit.Eventually(t, "the copy's queued turn ends", func() bool { return c.ends(id, second) == 1 })
			if got := c.file(id, "queued.txt"); got != "queued\n" {
				t.Errorf("the copy's turn left %q", got)
			}
			if c.owner() == p.owner() {
				t.Error("the copy has the original's owner id")
			}
			c.stop()
			c = launchOn(t, copied, driver, trust)
			if got := c.status("/readyz"); got != http.StatusOK {
				t.Errorf("readyz of the accepted copy: %d", got)
			}
			c.stop()
			if got := p.file(id, "queued.txt"); got != "queued\n" {
				t.Errorf("the original has %q", got)
			}
			p.stop()
		})
	}
}

// TestMovedDirectoryKeepsItsBoxes: a server on a moved data directory is the same
// server: it adopts its boxes, and the tool that runs in one ends once (HZ-20).
func TestMovedDirectoryKeepsItsBoxes(t *testing.T) {
	base := testkit.BaseDir(t)
	data, moved := filepath.Join(base, "data"), filepath.Join(base, "moved")
	p := local(t, data)
	id := p.session()
	turn := p.gated(id)
	p.kill()
	if err := os.Rename(data, moved); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sweep(t, moved) })
	p = local(t, moved)
	p.put(id, "go")
	testkit.Eventually(t, "the turn ends", func() bool { return p.ends(id, turn) == 1 })
	if lost, log := p.count(id, holdfast.EventBoxLost), p.file(id, "log.txt"); lost != 0 || log != "line\n" || p.turnStatus(id, turn) != holdfast.TurnCompleted {
		t.Errorf("%d boxes were lost, the tool left %q", lost, log)
	}
	p.stop()
}

// TestHZ21_PowerCutAfterTheFirstStart: whenever the power is cut after the first start of
// a server, the next one starts, is not a copy, and has what was acknowledged. It runs on the
// machine that runs on, and harms no box there. $HOLDFAST_TEST_POWER_CUTS=N adds N cuts
// at random moments, one in each Nth of the time from 0.2 to 60 s after the start.
func TestHZ21_PowerCutAfterTheFirstStart(t *testing.T) {
	disk := powercut.New(t, powercut.MinSize)
	data := filepath.Join(disk.Dir(), "data")
	first := time.Now()
	p := launch(t, data)
	t.Cleanup(func() { sweep(t, data) })
	var known []holdfast.SessionID
	cut := func(when string) {
		t.Helper()
		at := time.Since(first)
		p.signal(syscall.SIGSTOP)
		after := disk.Cut(t)
		p.signal(syscall.SIGCONT)
		from := filepath.Join(after.Dir(), "data")
		begun := time.Now()
		n := launch(t, from)
		t.Logf("power cut %s, %.1f s after the first start: ready in %.2f s", when, at.Seconds(), time.Since(begun).Seconds())
		if got := n.status("/readyz"); got != http.StatusOK {
			t.Errorf("%s: readyz %d\n%s", when, got, n.log.String())
		}
		for _, id := range known {
			if _, err := n.Session(t.Context(), id); err != nil {
				t.Errorf("%s: session %s: %v", when, id, err)
			}
		}
		n.session()
		n.stop()
		sweep(t, from)
	}
	cut("at the start")
	id := p.session()
	known = append(known, id)
	cut("after a session")
	turn := p.gated(id)
	cut("in a turn")
	more, _ := strconv.Atoi(os.Getenv("HOLDFAST_TEST_POWER_CUTS"))
	for i := range more {
		at := time.Duration(200+(float64(i)+rand.Float64())/float64(more)*59_800) * time.Millisecond
		<-time.After(time.Until(first.Add(at)))
		known = append(known, p.session())
		cut(fmt.Sprintf("%d of %d", i+1, more))
	}
	p.put(id, "go")
	testkit.Eventually(t, "the turn ends", func() bool { return p.ends(id, turn) == 1 })
	if lost, log := p.count(id, holdfast.EventBoxLost), p.file(id, "log.txt"); lost != 0 || log != "line\n" || p.turnStatus(id, turn) != holdfast.TurnCompleted {
		t.Errorf("%d boxes were lost, the tool left %q", lost, log)
	}
	p.stop()
}
