package boxd

import (
	"context"
	"time"
)

// idleAfter is how long boxd must have no operation in progress, and start none, before it counts as idle.
const idleAfter = 3 * time.Second

// watchIdle calls trim each time the Server becomes idle. It returns when ctx or the Server ends.
func (s *Server) watchIdle(ctx context.Context, trim func()) {
	tick := time.NewTicker(idleAfter)
	defer tick.Stop()
	seen, trimmed := int64(-1), false
	for {
		select {
		case <-tick.C:
		case <-s.stopped:
			return
		case <-ctx.Done():
			return
		}
		served := s.load.served.Load()
		if served != seen || s.load.streams.Load() > 0 {
			seen, trimmed = served, false
			continue
		}
		if !trimmed {
			trimmed = true
			trim()
		}
	}
}
