package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-run/holdfast"
)

// workspaces compares thirty sessions in ten workspaces, three to a box, with thirty that have a box each, on one server.
func workspaces(p *pass, ctx context.Context) error {
	s, err := p.serve(ctx, "workspaces")
	if err != nil {
		return err
	}
	defer s.stop()
	const sessions, spaces = 30, 10
	var private, shared [sessions]holdfast.SessionID
	for i := range sessions {
		if i < spaces {
			if _, err := s.CreateWorkspace(ctx, holdfast.CreateWorkspace{ID: fmt.Sprint("bench-", i)}); err != nil {
				return err
			}
		}
		if private[i], err = s.create(ctx); err != nil {
			return err
		}
		ses, err := s.CreateSession(ctx, holdfast.CreateSession{Workspace: fmt.Sprint("bench-", i%spaces)}, "")
		if err != nil {
			return err
		}
		shared[i] = ses.ID
	}
	load, err := s.load(sessions)
	if err != nil {
		return err
	}
	defer load.CloseIdleConnections()
	turn := func(id holdfast.SessionID) error { return load.turn(ctx, id, bashTrue) }
	for i := range sessions {
		for _, id := range []holdfast.SessionID{private[i], shared[i]} {
			if err := turn(id); err != nil {
				return err
			}
		}
	}
	ofPrivate := Figure{Name: "30 sessions in 10 workspaces: turns per second, of private ones", Unit: "×", Judge: "p50", Gate: 0.9, More: true, Rule: "0.9 of private sessions"}
	for range 12 {
		var perSecond [2]float64
		for i, ids := range [][sessions]holdfast.SessionID{private, shared} {
			if perSecond[i], err = rate(sessions, time.Second/2, func(w, _ int) error { return turn(ids[w]) }); err != nil {
				return err
			}
		}
		ofPrivate.Samples = append(ofPrivate.Samples, perSecond[1]/perSecond[0])
	}
	p.add(ofPrivate)
	more := Figure{Name: "a turn in a shared box, more than in a private one", Unit: "ms", Judge: "p50", Gate: 0.1, Rule: "0.1 ms"}
	for i := range 600 {
		alone, err := once(func() error { return turn(private[i%sessions]) })
		if err != nil {
			return err
		}
		together, err := once(func() error { return turn(shared[i%sessions]) })
		if err != nil {
			return err
		}
		more.Samples = append(more.Samples, together-alone)
	}
	p.add(more)
	return nil
}
