package db

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

// TestHZ3_ALockThatADeadServerLeftIsWaitedFor: a server that is killed while it
// starts a process leaves its descriptors to the child for a moment.
func TestHZ3_ALockThatADeadServerLeftIsWaitedFor(t *testing.T) {
	dir := t.TempDir()
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	held, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "lock")
	if err := os.WriteFile(name, []byte(strconv.Itoa(dead.Process.Pid)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	released := time.AfterFunc(100*time.Millisecond, func() { held.Close() })
	defer released.Stop()
	f, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatalf("the lock of a dead server was not waited for: %v", err)
	}
	defer f.Close()
	_, err = lockDir(t.Context(), dir)
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), strconv.Itoa(os.Getpid())) {
		t.Errorf("the lock of a living server: %v", err)
	}
}

func TestHZ3_ALockWithoutAPID(t *testing.T) {
	dir := t.TempDir()
	f, err := lockDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	_, err = lockDir(t.Context(), dir)
	if !holdfast.IsKind(err, holdfast.KindUnavailable) || !strings.Contains(err.Error(), "another process") || holdfast.HintOf(err) == "" {
		t.Fatal(err)
	}
}
