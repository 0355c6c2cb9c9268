package collect

import (
	"context"

	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// Started is what Start found and did.
type Started struct {
	// Orphans are the packs that Start removed, because the database does not know them.
	Orphans []pack.PackID
	// Unknown are packs that Start kept although the database does not know them. It keeps them if the
	// database knows no pack at all: somebody may have put a new database beside an old store.
	Unknown []pack.PackID
	// Faults are packs that the database knows, and whose files are missing or of the wrong size.
	Faults []Fault
}

// Start cleans what a server left that was killed: it removes the packs of commits that did not happen,
// and the files of packs that were removed from the database. The caller calls it before anything writes
// packs. It reads the directory but no pack; Verify reads the content.
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
