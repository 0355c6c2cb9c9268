package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// acknowledged is what a server has said to be stored of a session.
type acknowledged struct {
	id holdfast.SessionID
	// events are the events that were read, with their numbers.
	events map[int64]string
	// files are the content of the file log at checkpoints; last is that at the newest one.
	files map[holdfast.CheckpointID]string
	last  string
}

// have reads what is stored of a session now.
func (p *process) have(id holdfast.SessionID) acknowledged {
	p.t.Helper()
	a := acknowledged{id: id, events: map[int64]string{}, files: map[holdfast.CheckpointID]string{}}
	var newest int64
	for ev, err := range p.AllEvents(p.t.Context(), id, 0) {
		if err != nil {
			p.t.Fatal(err)
		}
		a.events[ev.Seq] = fmt.Sprintf("%s %s %s", ev.Type, ev.Turn, ev.Data)
		if ev.Type != holdfast.EventSnapshotTaken {
			continue
		}
		taken := payload[holdfast.SnapshotTaken](p.t, ev)
		text := p.at(id, taken.Checkpoint)
		if a.files[taken.Checkpoint] = text; taken.Seq >= newest {
			newest, a.last = taken.Seq, text
		}
	}
	return a
}

// at returns the file log of a session at a checkpoint, or now for "".
func (p *process) at(id holdfast.SessionID, checkpoint holdfast.CheckpointID) string {
	p.t.Helper()
	f, err := p.ReadFileAt(p.t.Context(), id, checkpoint, "log")
	if err != nil {
		p.t.Fatalf("session %s at %s: %v", id, checkpoint, err)
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(text)
}

// busy keeps sessions busy with turns that write files, until stop is called. A server that dies
// ends the load too.
func busy(c *client.Client, ids []holdfast.SessionID) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for _, id := range ids {
		all.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				text := fmt.Sprintf(`<script>[{"tool":"Bash","input":{"command":"echo %d >> log; head -c 3000 /dev/urandom > file-%d"}},{"say":"ok"}]</script>`, n, n%10)
				sent, err := c.Send(ctx, id, holdfast.SendMessage{Text: text})
				for err == nil && !sent.Turn.Status.Terminal() {
					sent.Turn, err = c.Turn(ctx, id, sent.Turn.ID)
				}
				if err != nil {
					return
				}
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// backsUp runs holdfast backup and returns its error.
func (p *process) backsUp(file string, args ...string) error {
	vars := map[string]string{"HOLDFAST_HOME": p.data, "HOLDFAST_URL": p.url}
	var out, errs bytes.Buffer
	if code := run(p.t.Context(), append([]string{"backup", file}, args...), func(k string) string { return vars[k] }, strings.NewReader(""), &out, &errs); code != 0 {
		return errors.New(errs.String())
	}
	return nil
}

// restores runs holdfast restore, and returns a server on the new directory.
func restores(t *testing.T, file string) *process {
	t.Helper()
	dir := filepath.Join(testkit.BaseDir(t), "restored")
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"restore", file, "--data", dir, "--new-keys"}, func(string) string { return "" }, strings.NewReader(""), &out, &errs); code != 0 {
		t.Fatalf("restore: %s", errs.String())
	}
	return launchOn(t, dir, "local", holdfast.Untrusted, "--accept-copy")
}

// TestBackup: backups of a server under load, which is killed meanwhile in every other round, restored
// elsewhere, have every event and every file that was acknowledged before they began. A killed server leaves no
// backup.
func TestBackup(t *testing.T) { backups(t, 2) }

// TestBackupOften is TestBackup with more rounds.
func TestBackupOften(t *testing.T) {
	testkit.Long(t)
	backups(t, 20)
}

func backups(t *testing.T, rounds int) {
	p := local(t, filepath.Join(testkit.BaseDir(t), "data"))
	cut := 0
	for n := range rounds {
		file := filepath.Join(t.TempDir(), "backup")
		ids := []holdfast.SessionID{p.session(), p.session(), p.session()}
		for _, id := range ids {
			if _, err := p.Exec(t.Context(), id, holdfast.ExecRequest{Command: "echo begin > log"}); err != nil {
				t.Fatal(err)
			}
		}
		stop := busy(p.Client, ids)
		testkit.Eventually(t, "each session has a checkpoint under load", func() bool {
			return !slices.ContainsFunc(ids, func(id holdfast.SessionID) bool {
				page, err := p.Checkpoints(t.Context(), id, "", 0)
				return err != nil || len(page.Checkpoints) == 0
			})
		})
		if n%2 == 1 {
			killed := make(chan struct{})
			after := time.Duration(rand.IntN(60)) * time.Millisecond
			go func() {
				defer close(killed)
				<-time.After(after)
				p.kill()
			}()
			err := p.backsUp(file)
			<-killed
			stop()
			if _, missing := os.Lstat(file); (err == nil) == (missing != nil) {
				t.Errorf("the server was killed after %s: %v, and the file: %v", after, err, missing)
			}
			if err != nil {
				cut++
			}
			p = local(t, p.data)
			stop = busy(p.Client, ids)
			file += "-2"
		}
		var before []acknowledged
		for _, id := range ids {
			before = append(before, p.have(id))
		}
		if err := p.backsUp(file); err != nil {
			t.Fatal(err)
		}
		stop()
		there := restores(t, file)
		for _, a := range before {
			there.lacksNothing(a)
		}
		there.kill()
	}
	t.Logf("%d of %d rounds cut a backup off", cut, rounds)
}

// lacksNothing checks that a restored server has all that was acknowledged of a session, and goes on with it.
func (p *process) lacksNothing(a acknowledged) {
	p.t.Helper()
	now := p.have(a.id)
	for seq, want := range a.events {
		if got := now.events[seq]; got != want {
			p.t.Errorf("session %s: event %d is %q, was %q", a.id, seq, got, want)
		}
	}
	for cp, want := range a.files {
		if got := now.files[cp]; got != want {
			p.t.Errorf("session %s: the log at checkpoint %s is %q, was %q", a.id, cp, got, want)
		}
	}
	if got := p.at(a.id, ""); !strings.HasPrefix(got, a.last) {
		p.t.Errorf("session %s: the log is %q, was %q", a.id, got, a.last)
	}
	sent, err := p.Send(p.t.Context(), a.id, holdfast.SendMessage{Text: `<script>[{"tool":"Bash","input":{"command":"tail -1 log"}},{"say":"on"}]</script>`})
	if err != nil {
		p.t.Fatal(err)
	}
	if got := p.ended(a.id, sent.Turn.ID); got.Status != holdfast.TurnCompleted {
		p.t.Errorf("session %s: the next turn: %+v", a.id, got)
	}
}

// TestBackupInTheFirstTurn: a session whose first turn runs has files, and no checkpoint yet. Its backup is restored all
// the same, with its log.
func TestBackupInTheFirstTurn(t *testing.T) {
	p := local(t, filepath.Join(testkit.BaseDir(t), "data"))
	id := p.session()
	p.gated(id)
	home := t.TempDir()
	file := filepath.Join(home, "backup")
	if _, notes := p.cli(home, "backup", file); !strings.Contains(notes, "no files of session "+string(id)+" are in the backup") || strings.Contains(notes, "may be newer") {
		t.Errorf("said %q", notes)
	}
	p.put(id, "go")
	there := restores(t, file)
	if s, err := there.Session(t.Context(), id); err != nil || s.LastSeq < 3 {
		t.Errorf("%+v, %v", s, err)
	}
	there.kill()
}
