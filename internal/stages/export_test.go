package stages

import "github.com/holdfast-run/holdfast"

// Last is the channel that is closed when the newest place of a scope is given up.
func (s *Stages) Last(box holdfast.BoxID) <-chan struct{} {
	if p := s.last(box); p != nil {
		return p.own
	}
	return nil
}
