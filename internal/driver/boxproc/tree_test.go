//go:build linux

package boxproc_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
)

// tree starts a subreaper with a child and a grandchild, one of them in a session
// of its own, and gives the environment entry that all three bear.
func tree(t *testing.T, d *boxproc.Dir) (*boxproc.Boot, string) {
	t.Helper()
	entry := fmt.Sprintf("BOXPROC_TREE=%d-%d", os.Getpid(), time.Now().UnixNano())
	p, _, err := d.Start(t.Context(), boxproc.Record{Box: box}, boxproc.Launch{
		Path: "/proc/self/exe", Argv: []string{"boxd"},
		Env: []string{"PATH=/usr/bin:/bin", roleEnv + "=reaper", entry}, Prepare: prepare(), Now: time.Now(),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := boxproc.KillBearers(ctx, entry); err != nil {
			t.Error(err)
		}
		p.Close()
	})
	wait(t, "three processes", func() bool { return len(bearers(t, entry)) == 3 })
	return p, entry
}

// playReaper is the reaper of a shell and its sleeping child.
func playReaper() int {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return 7
	}
	if err := exec.Command("/bin/sh", "-c", "setsid sleep 600 & wait").Run(); err != nil {
		return 8
	}
	return 0
}

func bearers(t *testing.T, entry string) []int {
	t.Helper()
	pids, err := boxproc.Bearers(entry)
	if err != nil {
		t.Fatal(err)
	}
	return pids
}

func wait(t *testing.T, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("not in 20 s: %s", what)
		}
		<-tick.C
	}
}

func TestKillTreeEndsAllBelow(t *testing.T) {
	p, entry := tree(t, open(t))
	if err := p.KillTree(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if left := bearers(t, entry); len(left) != 0 {
		t.Fatalf("left %v", left)
	}
	// Of an ended process nothing is left to kill.
	if err := p.KillTree(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestKillBearersEndsOrphans(t *testing.T) {
	p, entry := tree(t, open(t))
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := bearers(t, entry); len(left) == 0 {
		t.Fatal("nothing outlived the process: the test is void")
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	// The first round is made in any case; it may have been enough.
	if err := boxproc.KillBearers(ended, entry); err != nil && !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatal(err)
	}
	if err := boxproc.KillBearers(t.Context(), entry); err != nil {
		t.Fatal(err)
	}
	if left := bearers(t, entry); len(left) != 0 {
		t.Fatalf("left %v", left)
	}
}

func TestKillEndsWithContext(t *testing.T) {
	p, _ := tree(t, open(t))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Wait(ended); !holdfast.IsKind(err, holdfast.KindUnavailable) {
		t.Fatalf("wait: %v", err)
	}
}
