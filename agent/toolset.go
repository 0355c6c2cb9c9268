package agent

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
)

// Toolset is the tools of an agent, immutable and in a fixed order: the
// definitions are the beginning of every request, byte for byte.
type Toolset struct {
	offered []model.Tool
	byName  map[string]entry
}

type entry struct {
	tool.Tool
	effect tool.Effect
}

// NewToolset takes tools in the order in which they are offered. A tool without
// name or effect, or a second one of a name, is invalid.
func NewToolset(tools ...tool.Tool) (*Toolset, error) {
	s := &Toolset{byName: make(map[string]entry, len(tools))}
	for _, t := range tools {
		spec := t.Spec()
		if spec.Name == "" || spec.Effect < tool.Pure || spec.Effect > tool.Mutate {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "toolset", "tool %s has no name or no effect", holdfast.Quote(spec.Name))
		}
		if _, twice := s.byName[spec.Name]; twice {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "toolset", "tool %s is there twice", holdfast.Quote(spec.Name))
		}
		s.byName[spec.Name] = entry{Tool: t, effect: spec.Effect}
		s.offered = append(s.offered, model.Tool{Name: spec.Name, Description: spec.Description, Schema: spec.Schema})
	}
	return s, nil
}

// Offered are the definitions for a request; not to be changed.
func (s *Toolset) Offered() []model.Tool { return s.offered }
