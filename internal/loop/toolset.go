package loop

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/agent/model"
	"github.com/holdfast-run/holdfast/agent/tool"
)

// Toolset is an immutable list of an agent's tools. Its order is fixed, because every model request
// begins with the same definitions byte for byte.
type Toolset struct {
	offered []model.Tool
	byName  map[string]entry
}

type entry struct {
	tool.Tool
	effect tool.Effect
	where  tool.Where
}

// NewToolset returns a toolset with the tools in the given order. It fails with invalid for a tool
// without name, effect or place, or if a name occurs twice.
func NewToolset(tools ...tool.Tool) (*Toolset, error) {
	s := &Toolset{byName: make(map[string]entry, len(tools))}
	for _, t := range tools {
		spec := t.Spec()
		switch {
		case spec.Name == "":
			return nil, holdfast.Errorf(holdfast.KindInvalid, "toolset", "a tool has no name")
		case spec.Effect != tool.Read && spec.Effect != tool.Mutate:
			return nil, holdfast.Errorf(holdfast.KindInvalid, "toolset", "tool %s declares no effect", holdfast.Quote(spec.Name)).
				WithHint("set Spec.Effect to tool.Read or tool.Mutate")
		case spec.Where != tool.InBox && spec.Where != tool.InServer:
			return nil, holdfast.Errorf(holdfast.KindInvalid, "toolset", "tool %s does not declare where it acts", holdfast.Quote(spec.Name)).
				WithHint("set Spec.Where to tool.InBox or tool.InServer")
		}
		if _, twice := s.byName[spec.Name]; twice {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "toolset", "two tools have the name %s", holdfast.Quote(spec.Name))
		}
		s.byName[spec.Name] = entry{Tool: t, effect: spec.Effect, where: spec.Where}
		s.offered = append(s.offered, model.Tool{Name: spec.Name, Description: spec.Description, Schema: spec.Schema})
	}
	return s, nil
}

// Offered returns the tool definitions for a model request. Callers must not change them.
func (s *Toolset) Offered() []model.Tool { return s.offered }
