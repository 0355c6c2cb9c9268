package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/child"
	"github.com/holdfast-run/holdfast/internal/clock"
)

const (
	// snapshotRounds is how many times each change is measured.
	snapshotRounds = 15
	// snapshotMost is how long a snapshot may take before the benchmark gives up.
	snapshotMost = time.Minute
)

// snapshots measures the snapshots after turns, on a fresh disk: their delay, and what they write, for changes
// of small and large trees. It measures other sessions during the first snapshot of a large tree, the server's
// memory, and a restore in alternation with other ways to get the same tree back.
func (p *pass) snapshots(ctx context.Context) error {
	return p.onFreshDisk(func(on *pass) error { return on.snapshotsHere(ctx) })
}

// snapshotsHere measures small trees and large ones, each with a server of their own.
func (p *pass) snapshotsHere(ctx context.Context) error {
	if err := p.smallTrees(ctx); err != nil {
		return err
	}
	from := filepath.Join(p.dir, "tree")
	if err := makeTree(from); err != nil {
		return err
	}
	s, id, err := p.session(ctx, "snapshots")
	if err != nil {
		return err
	}
	m := &measured{pass: p, s: s, id: id}
	defer func() { m.s.stop() }()
	if err := m.shell(ctx, "true"); err != nil {
		return err
	}
	before := memoryOf(s.PID, "VmRSS:")
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", s.PID), []byte("5"), 0) // if the kernel refuses this, the measured peak is too high
	if err := m.first(ctx, from); err != nil {
		return err
	}
	for _, c := range []struct {
		name, change string
		bytes        int64
	}{
		{"4 KB of 10,000 files, 100 MB", "head -c 4096 /dev/urandom > tree/5/5", 4096},
		{"10 of 10,000 files, 100 MB", "for n in 0 1 2 3 4 5 6 7 8 9; do head -c 10000 /dev/urandom > tree/$n/$n; done", 100_000},
		{"4 KB in a flat directory of 10,000 files", "head -c 4096 /dev/urandom > flat/5000", 4096},
	} {
		if err := m.change(ctx, c.name, c.change, c.bytes); err != nil {
			return err
		}
	}
	if err := m.large(ctx); err != nil {
		return err
	}
	p.add(Figure{Name: "memory of the server more during snapshots", Unit: "MiB", Judge: "size", Gate: 64, Rule: "64 MiB", Samples: []float64{memoryOf(s.PID, "VmHWM:") - before}})
	return m.restores(ctx)
}

// measured is the session whose snapshots are measured.
type measured struct {
	*pass
	s  *subject
	id holdfast.SessionID
}

// shell runs a shell command in a turn of the session.
func (m *measured) shell(ctx context.Context, command string) error {
	return m.s.Turn(ctx, m.id, bash(command))
}

// bash returns a message whose turn runs a command.
func bash(command string) string {
	return child.Script(child.Step{"tool": "Bash", "input": map[string]any{"command": command, "timeout": 600_000}}, child.Say("done"))
}

// taken runs a command in a turn, and returns its snapshot and how many milliseconds after the turn's end the
// snapshot was recorded.
func (m *measured) taken(ctx context.Context, command string) (t holdfast.SnapshotTaken, delay float64, err error) {
	row, err := m.s.Session(ctx, m.id)
	if err != nil {
		return t, 0, err
	}
	if err := m.shell(ctx, command); err != nil {
		return t, 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotMost)
	defer cancel()
	var ended time.Time
	for ev, err := range m.s.Follow(ctx, m.id, row.LastSeq) {
		switch {
		case err != nil:
			return t, 0, err
		case ev.Type == holdfast.EventTurnCompleted:
			ended = ev.Time
		case ev.Type == holdfast.EventSnapshotFailed:
			return t, 0, fmt.Errorf("the snapshot failed: %s", ev.Data)
		case ev.Type == holdfast.EventSnapshotTaken && !ended.IsZero():
			return t, clock.Milliseconds(ev.Time.Sub(ended)), ev.Decode(&t)
		}
	}
	return t, 0, errors.New("the events ended without a snapshot")
}

// first puts the trees into the box, and measures commands in another session while the first snapshot of
// them is taken.
func (m *measured) first(ctx context.Context, from string) error {
	other, err := m.s.create(ctx)
	if err != nil {
		return err
	}
	if _, err := m.s.Exec(ctx, other, holdfast.ExecRequest{Argv: []string{"true"}}); err != nil {
		return err
	}
	if err := m.s.cp(ctx, m.cfg.Binary, from, string(m.id)+":tree"); err != nil {
		return err
	}
	var done atomic.Bool
	failed := make(chan error, 1)
	go func() {
		_, _, err := m.taken(ctx, "mkdir flat && cd flat && for n in $(seq 10000); do echo $n > $n; done")
		done.Store(true)
		failed <- err
	}()
	others := Figure{Name: "command of another session during a first snapshot of 100 MB", Unit: "ms", Judge: "p99", Gate: 10, Rule: "10 ms"}
	for !done.Load() {
		took, err := times(1, func(int) error {
			_, err := m.s.Exec(ctx, other, holdfast.ExecRequest{Argv: []string{"true"}})
			return err
		})
		if err != nil {
			return err
		}
		others.Samples = append(others.Samples, took...)
	}
	m.add(others)
	return <-failed
}

// change measures the snapshots of a small change.
func (m *measured) change(ctx context.Context, name, command string, bytes int64) error {
	delay := Figure{Name: name + ": snapshot after the turn", Unit: "ms", Judge: "p50", Gate: 100, Rule: "100 ms"}
	limit := 1.3*float64(bytes) + 64<<10
	size := Figure{Name: name + ": written", Unit: "KiB", Judge: "p50", Gate: limit / 1024, Rule: "1.3 × changed + 64 KiB"}
	for range snapshotRounds {
		t, ms, err := m.taken(ctx, command)
		if err != nil {
			return err
		}
		delay.Samples = append(delay.Samples, ms)
		size.Samples = append(size.Samples, float64(t.Written)/1024)
	}
	m.add(delay)
	m.add(size)
	return nil
}

// large measures the snapshot after 4 KB were changed at another offset of a file of 1 GB.
func (m *measured) large(ctx context.Context) error {
	if _, _, err := m.taken(ctx, "head -c 1000000000 /dev/urandom > large"); err != nil {
		return err
	}
	cpu := Figure{Name: "4 KB in a file of 1 GB: the server's CPU", Unit: "ms", Judge: "p50", Gate: 700, Rule: "700 ms"}
	size := Figure{Name: "4 KB in a file of 1 GB: written", Unit: "KiB", Judge: "p50", Gate: 1024, Rule: "1 MB"}
	for n := range 5 {
		before := processorTime(m.s.PID)
		t, _, err := m.taken(ctx, fmt.Sprintf("dd if=/dev/urandom of=large bs=4096 count=1 seek=%d conv=notrunc 2>/dev/null", 40_000*(n+1)))
		if err != nil {
			return err
		}
		cpu.Samples = append(cpu.Samples, clock.Milliseconds(processorTime(m.s.PID)-before))
		size.Samples = append(size.Samples, float64(t.Written)/1024)
	}
	m.add(cpu)
	m.add(size)
	_, _, err := m.taken(ctx, "rm large")
	return err
}
