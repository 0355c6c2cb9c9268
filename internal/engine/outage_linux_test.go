package engine_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// TestHZ17_FullDisk is the same with a real file system that is full: the server goes
// on with the state in its memory, and once there is space it records what it could
// not.
func TestHZ17_FullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("NOT RUN: mounting a small file system needs root")
	}
	m := newMachine(t, func(m *machine) {
		if err := unix.Mount("tmpfs", m.dir, "tmpfs", 0, "size=8m"); err != nil {
			t.Skipf("NOT RUN: cannot mount a tmpfs: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(m.dir, 0); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
	})
	m.dirtyClose = true
	id := m.create(holdfast.CreateSession{})
	turn := m.send(id, script(bash(gated), say("ok")))
	m.appears(id, "begun")
	fill := filepath.Join(m.dir, "fill")
	f, err := os.Create(fill)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	_ = f.Close()
	// The log is preallocated in part, and the store makes room in it when it meets the
	// end: write until there is none, for any session.
	until(t, func() bool {
		_, _, created := m.Create(t.Context(), holdfast.CreateSession{Title: string(make([]byte, 0, 500))}, "")
		_, sent := m.Send(t.Context(), id, holdfast.SendMessage{Text: "y"})
		return holdfast.IsKind(created, holdfast.KindUnavailable) && holdfast.IsKind(sent, holdfast.KindUnavailable) && m.store.Healthy() != nil
	})
	if err := os.Truncate(fill, 0); err != nil {
		t.Fatal(err)
	}
	m.put(id, "go", "")
	until(t, func() bool { return m.store.Healthy() == nil })
	next := m.send(id, "x")
	if got := m.ended(id, turn.ID); got.Status != holdfast.TurnCompleted || got.Result != "ok" {
		t.Fatalf("turn = %+v\n%s", got, m.dump(id))
	}
	if n := m.lines(id, "lines"); n != 1 {
		t.Errorf("the command ran %d times", n)
	}
	if got := m.ended(id, next.ID); got.Status != holdfast.TurnCompleted {
		t.Errorf("the message after it = %+v", got)
	}
	m.sound(id)
}
