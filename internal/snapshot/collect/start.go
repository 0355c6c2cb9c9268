package collect

import (
	"context"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Started is what Start found and did.
type Started struct {
	// Orphans are the packs that Start removed, because the database does not know them.
	Orphans []pack.PackID
	// Unknown are the packs that Start kept although the database does not know them. It keeps them if the database knows
	// no pack at all: then the database may be a new one for an old store.
	Unknown []pack.PackID
	// Faults are packs that the database knows, and whose files are missing or of the wrong size.
	Faults []Fault
}

// Start removes what a killed server left: the packs of commits that did not happen, and the files of packs that were
// removed from the database. The caller calls it before anything writes packs. It compares the sizes of the files of
// packs; only if one is wrong does it read packs, to find out what checkpoints have lost.
func (c *Collector) Start(ctx context.Context) (Started, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.facts(ctx)
	if err != nil {
		return Started{}, err
	}
	var unknown []pack.PackID
	for id := range c.strangers {
		unknown = append(unknown, id)
	}
	st := Started{Faults: f.faults()}
	if unknown = sorted(unknown); len(f.Packs) == 0 {
		st.Unknown = unknown
		return st, nil
	}
	st.Orphans, c.strangers = unknown, nil
	return st, c.cfg.Packs.Remove(unknown...)
}
