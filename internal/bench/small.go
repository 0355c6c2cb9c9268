package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
)

// smallTrees measures snapshots of a few small files.
func (p *pass) smallTrees(ctx context.Context) error {
	s, id, err := p.session(ctx, "small")
	if err != nil {
		return err
	}
	defer s.stop()
	m := &measured{pass: p, s: s, id: id}
	if err := m.unchanged(ctx); err != nil {
		return err
	}
	return m.small(ctx)
}

// changes lists the kinds of small change: a turn changes one of five small files in a box with or without
// another live process.
var changes = []struct {
	name, begin string
	commits     float64
	more        float64
}{
	{"one small changed file", "for n in 0 1 2 3 4; do echo $n > small$n; done", 2, 1},
	{"one small changed file, a process alive", "sleep 1000 >/dev/null 2>&1 & echo 1 > small1", 3, 2},
}

// small measures how much longer the next turn waits when a turn changed one small file: the time from the end
// of a turn to the start of the next one, which was sent before, less the same time in a session that has no
// files. In alternation it measures commits on the same disk.
func (m *measured) small(ctx context.Context) error {
	c, err := m.commits(ctx, "commits", 1)
	if err != nil {
		return err
	}
	defer c.close()
	quiet, err := m.s.create(ctx)
	if err != nil {
		return err
	}
	for _, kind := range changes {
		if _, _, err := m.taken(ctx, kind.begin); err != nil {
			return err
		}
		commit := Figure{Name: "one durable commit, in alternation with the next row", Unit: "ms", Judge: "p50"}
		delay := Figure{Name: kind.name + ": added delay of the next turn", Unit: "ms", Judge: "p50"}
		for n := range 8 * snapshotRounds {
			took, err := times(3, func(int) error { return c.one(ctx, 0) })
			if err != nil {
				return err
			}
			without, err := m.s.gap(ctx, quiet, script50)
			if err != nil {
				return err
			}
			with, err := m.s.gap(ctx, m.id, bash(fmt.Sprintf("sleep 0.05; echo %d > small0", n)))
			if err != nil {
				return err
			}
			commit.Samples, delay.Samples = append(commit.Samples, took...), append(delay.Samples, with-without)
		}
		m.add(commit)
		delay.gateInCommits(kind.commits, commit.Value(), kind.more)
		m.add(delay)
	}
	return nil
}

// gateInCommits sets the gate to some commits of a measured length and some milliseconds more, and says what
// the value is in these terms.
func (f *Figure) gateInCommits(commits, commit, more float64) {
	f.Gate, f.Rule = commits*commit+more, fmt.Sprintf("%.0f commits + %.0f ms", commits, more)
	f.Baseline = fmt.Sprintf("value = %.0f commits + %s ms", commits, number(f.Value()-commits*commit))
}

// gap sends two messages at once. It returns the milliseconds from the end of the first turn, which must take some
// 50 ms, to the start of the second, as a client sees them.
func (s *subject) gap(ctx context.Context, id holdfast.SessionID, first string) (float64, error) {
	row, err := s.Session(ctx, id)
	if err != nil {
		return 0, err
	}
	for _, text := range []string{first, "hello"} {
		if _, err := s.Send(ctx, id, holdfast.SendMessage{Text: text}); err != nil {
			return 0, err
		}
	}
	var ended time.Time
	var gap time.Duration
	for ev, err := range s.Follow(ctx, id, row.LastSeq) {
		switch {
		case err != nil:
			return 0, err
		case ev.Type == holdfast.EventTurnStarted && !ended.IsZero():
			gap = time.Since(ended)
		case !ev.EndsTurn():
		case ev.Type != holdfast.EventTurnCompleted:
			return 0, fmt.Errorf("a turn did not complete but ended with %s: %s", ev.Type, ev.Data)
		case ended.IsZero():
			ended = time.Now()
		default:
			return clock.Milliseconds(gap), nil
		}
	}
	return 0, errors.New("the events ended before the second turn")
}

const (
	// lookTurns is how many turns a block of unchanged has, lookBlocks how many blocks each kind of turn gets.
	lookTurns, lookBlocks = 100, 60
	// settleTime is longer than the time after a change during which a scan reads a file again.
	settleTime = 3 * time.Second
	// sayOK is a turn that needs no box.
	sayOK = `<script>[{"say":"ok"}]</script>`
)

// unchanged measures the server's CPU time for checking a tree of five files in which nothing changed, in
// blocks in alternation: a command outside of a turn, and then a turn without a tool. If the command ran in
// the box of the turn's session, the server looks for changes after the turn; if it ran in the box of another
// session, the same work needs no look. Then it compares turns without a tool of a session that has a live
// process with those of a session that has none.
func (m *measured) unchanged(ctx context.Context) error {
	load, err := m.s.load(1)
	if err != nil {
		return err
	}
	defer load.CloseIdleConnections()
	const files = "for n in 0 1 2 3 4; do echo $n > file$n; done"
	var a, b, live holdfast.SessionID
	for id, command := range map[*holdfast.SessionID]string{&a: files, &b: files, &live: files + "; sleep 1000 >/dev/null 2>&1 &"} {
		if *id, err = m.s.create(ctx); err != nil {
			return err
		}
		if err := m.s.Turn(ctx, *id, bash(command)); err != nil {
			return err
		}
	}
	exec := func(id holdfast.SessionID) error {
		_, err := m.s.Exec(ctx, id, holdfast.ExecRequest{Argv: []string{"true"}})
		return err
	}
	turn := func(id holdfast.SessionID) error { return load.turn(ctx, id, sayOK) }
	f := Figure{Name: "5 unchanged files: the server's CPU for the look after a turn", Unit: "ms", Judge: "p50", Gate: 0.15, Rule: "0.15 ms"}
	if err := m.looks(f, func() error { return errors.Join(exec(a), turn(a)) }, func() error { return errors.Join(exec(b), turn(a)) }); err != nil {
		return err
	}
	f = Figure{Name: "the same with a process alive in the box", Unit: "ms", Judge: "p50"}
	return m.looks(f, func() error { return turn(live) }, func() error { return turn(b) })
}

// looks measures how much more CPU time of the server one kind of work takes than another kind.
func (m *measured) looks(f Figure, work, less func() error) error {
	for began := time.Now(); time.Since(began) < settleTime; {
		if err := errors.Join(work(), less()); err != nil {
			return err
		}
	}
	for range lookBlocks {
		var used [2]float64
		for i, do := range []func() error{work, less} {
			before := processorTime(m.s.PID)
			if _, err := times(lookTurns, func(int) error { return do() }); err != nil {
				return err
			}
			used[i] = clock.Milliseconds(processorTime(m.s.PID)-before) / lookTurns
		}
		if used[0] <= 0 {
			m.missing(f, errors.New("the system does not report the CPU time of a process"))
			return nil
		}
		f.Samples = append(f.Samples, used[0]-used[1])
	}
	m.add(f)
	return nil
}
