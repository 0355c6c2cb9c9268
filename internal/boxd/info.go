package boxd

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// marker is an optional interface of Hands: with it boxd finds the call to which a process belongs.
type marker interface {
	// MarkOf returns the mark of a process, or 0 if it has none.
	MarkOf(pid int) uint64
}

func (s *Server) stats(p *peer) wire.Stats {
	st := s.cfg.Hands.Stats()
	st.Held, st.Running = s.led.counts()
	st.Alive = p.census.count(s.cfg.Hands, s.led, false)
	return st
}

func (s *Server) processes() (wire.PSAnswer, error) {
	procs, err := s.cfg.Hands.Processes()
	if err != nil {
		return wire.PSAnswer{}, err
	}
	if m, ok := s.cfg.Hands.(marker); ok {
		byMark := map[uint64]holdfast.CallID{}
		for _, c := range s.led.held() {
			if c.exec != nil {
				byMark[c.exec.mark] = c.id
			}
		}
		for i := range procs {
			procs[i].Call = byMark[m.MarkOf(procs[i].PID)]
		}
	}
	if procs == nil {
		procs = []wire.Process{}
	}
	return wire.PSAnswer{Processes: procs}, nil
}

// forgotten frees the spools of a released call. With the last call of a former life, it removes the file of outcomes.
func (s *Server) forgotten(c *call) {
	if c.exec != nil {
		c.exec.close()
	}
	if c.flushed {
		s.mu.Lock()
		s.adopted--
		last := s.adopted == 0
		s.mu.Unlock()
		if last {
			s.state.dropOutcomes()
		}
	}
}
