package engine_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/engine"
	"github.com/holdfast-run/holdfast/internal/place"
	"github.com/holdfast-run/holdfast/internal/trees"
)

// slowDisk is Files on which the directories of one session take as long as the test wants.
type slowDisk struct {
	place.Files
	slow    atomic.Value // of holdfast.SessionID
	entered chan string
	leave   chan struct{}
}

func (d *slowDisk) Tree(dir string) place.Tree { return slowTree{d.Files.Tree(dir), d, dir} }

type slowTree struct {
	place.Tree
	disk *slowDisk
	dir  string
}

func (t slowTree) Exists(ctx context.Context) bool {
	if id, ok := t.disk.slow.Load().(holdfast.SessionID); ok && strings.Contains(t.dir, string(id)) {
		t.disk.entered <- t.dir
		<-t.disk.leave
	}
	return t.Tree.Exists(ctx)
}

// TestWSR94_ASlowDiskStallsItsSessionOnly: while the server waits to learn whether the files of one session are there, commands and
// turns of another begin and end (WS-R94).
func TestWSR94_ASlowDiskStallsItsSessionOnly(t *testing.T) {
	disk := &slowDisk{Files: trees.Local{}, entered: make(chan string, 9), leave: make(chan struct{})}
	m := newMachine(t, func(m *machine) {
		m.set = func(c *engine.Config) { c.Boxes.Files = disk }
	})
	slow, other := m.create(holdfast.CreateSession{}), m.create(holdfast.CreateSession{})
	for _, id := range []holdfast.SessionID{slow, other} {
		m.exec(id, "echo there > f")
	}
	disk.slow.Store(slow)
	waiting := m.send(slow, `<script>[{"tool":"Bash","input":{"command":"cat f"}},{"say":"slow"}]</script>`)
	<-disk.entered
	if res := m.exec(other, "cat f"); string(res.Stdout) != "there\n" {
		t.Errorf("a command of the other session: %+v", res)
	}
	beside := m.send(other, `<script>[{"tool":"Bash","input":{"command":"cat f"}},{"say":"quick"}]</script>`)
	if end := m.ended(other, beside.ID); end.Status != holdfast.TurnCompleted || end.Result != "quick" {
		t.Errorf("a turn of the other session: %+v", end)
	}
	if now, err := m.Turn(t.Context(), slow, waiting.ID); err != nil || now.Status != holdfast.TurnRunning {
		t.Errorf("the turn that waits: %+v, %v", now, err)
	}
	close(disk.leave)
	if end := m.ended(slow, waiting.ID); end.Status != holdfast.TurnCompleted || end.Result != "slow" {
		t.Errorf("after the wait: %+v", end)
	}
}
