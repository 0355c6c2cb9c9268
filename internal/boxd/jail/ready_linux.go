package jail

import (
	"github.com/holdfast-run/holdfast/internal/boxd"
	"github.com/holdfast-run/holdfast/internal/boxd/wire"
)

// Prepared is a jail around the calling process that waits for its box. It is
// for the goroutine that made it.
type Prepared struct{ e *entry }

// Prepare does the part of Enter that depends on no box; cfg names none, and its
// late mounts only where they go. Unless cfg.Jail.SameUID is set the process may
// have no ids in its user namespace yet. Errors are those of Enter.
func Prepare(cfg *wire.Config) (*Prepared, error) {
	e, err := prepare(cfg)
	if err != nil {
		return nil, err
	}
	e.unmapped = !cfg.Jail.SameUID
	if e.unmapped {
		// Late mounts of an ordinary user are paths in the old root: it stays until
		// they are known.
		if err := e.root.enter(); err != nil {
			return nil, unavailable("root", err)
		}
	}
	return &Prepared{e: e}, nil
}

// Enter does the rest, as Enter of this package, for the box of cfg. By now the
// ids of the process are mapped. cfg.Jail takes over what Prepare was given:
// leaves and counters.
func (p *Prepared) Enter(cfg *wire.Config) (forker boxd.Forker, inForce, missing []string, err error) {
	e, first := p.e, p.e.jail
	j := cfg.Jail
	j.SameUID = first.SameUID
	j.WorkTasks, j.BoxdTasks, j.WorkCgroup, j.BoxdProcs, j.Counters = first.WorkTasks, first.BoxdTasks, first.WorkCgroup, first.BoxdProcs, first.Counters
	e.cfg, e.jail, e.forker.jail = cfg, j, j
	e.inForce, e.missing = append(e.inForce, j.InForce...), append(e.missing, j.Missing...)
	if err := e.finish(); err != nil {
		Ready(cfg, nil, nil, err)
		return nil, nil, nil, err
	}
	return e.forker, e.inForce, e.missing, nil
}
