package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// copies measures how long a server on a copy of a data directory takes until it answers, while
// the original runs with a live box for each of its sessions; and, in alternation, how long a
// server on a directory of its own takes. Afterwards the boxes must be the same processes
// (HZ-20).
func (p *pass) copies(ctx context.Context) error {
	const sessions, copies = 8, 12
	s, err := p.serve(ctx, "original")
	if err != nil {
		return err
	}
	defer s.stop()
	for range sessions {
		id, err := s.create(ctx)
		if err != nil {
			return err
		}
		if _, err := s.Exec(ctx, id, holdfast.ExecRequest{Argv: []string{"true"}}); err != nil {
			return err
		}
	}
	before, err := s.boxes(ctx)
	if err != nil {
		return err
	}
	own := Figure{Name: "server on its own directory: ready", Unit: "ms", Judge: "p50"}
	copied := Figure{Name: fmt.Sprintf("server on a copy, %d live boxes in the original: ready", sessions), Unit: "ms", Judge: "p50"}
	for n := range copies {
		began := time.Now()
		o, err := p.serve(ctx, "own")
		if err != nil {
			return err
		}
		own.Samples = append(own.Samples, clock.Milliseconds(time.Since(began)))
		o.stop()
		took, err := p.copied(ctx, s.data, fmt.Sprintf("copy%d", n))
		if err != nil {
			return err
		}
		copied.Samples = append(copied.Samples, took)
	}
	after, err := s.boxes(ctx)
	if err != nil {
		return err
	}
	if len(before) != sessions || fmt.Sprint(before) != fmt.Sprint(after) {
		return fmt.Errorf("the servers on copies changed the boxes of the original server: %v before, %v after", before, after)
	}
	copied.Gate, copied.Rule = own.Value()+100, "own + 100 ms"
	p.add(own)
	p.add(copied)
	return nil
}

// boxes returns the processes of a server's boxes.
func (s *subject) boxes(ctx context.Context) (map[holdfast.BoxID]int, error) {
	list, err := s.Containers(ctx)
	out := map[holdfast.BoxID]int{}
	for _, c := range list {
		out[c.ID] = c.PID
	}
	return out, err
}

// copied copies a data directory, starts a server on the copy, and returns the milliseconds from
// its start until it answers.
func (p *pass) copied(ctx context.Context, data, name string) (float64, error) {
	to := filepath.Join(p.dir, name)
	if out, err := exec.CommandContext(ctx, "cp", "-a", data, to).CombinedOutput(); err != nil {
		return 0, fmt.Errorf("the data directory cannot be copied with cp: %w: %s", err, out)
	}
	began := time.Now()
	s, err := p.serve(ctx, name)
	took := clock.Milliseconds(time.Since(began))
	if err != nil {
		return 0, err
	}
	_, err = s.CreateSession(ctx, holdfast.CreateSession{}, "")
	s.stop()
	if !holdfast.IsKind(err, holdfast.KindConflict) {
		return 0, fmt.Errorf("the server on the copied data directory did not refuse work with a conflict: %v", err)
	}
	return took, os.RemoveAll(to)
}
