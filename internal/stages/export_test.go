package stages

import "github.com/holdfast-run/holdfast"

// Last is the channel for which Wait waits.
func (s *Stages) Last(box holdfast.BoxID) <-chan struct{} { return s.last(box) }
