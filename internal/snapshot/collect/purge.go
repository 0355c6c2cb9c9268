package collect

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
)

// purgeRounds is how many rounds Purge makes at most. Two are enough, unless turns use old packs meanwhile.
const purgeRounds = 5

// Purge drops the checkpoints that gone selects, held ones too, and removes their content from the disk before it
// returns. Packs that only these checkpoints need are removed at once, as are all other packs without a use. Packs that
// they share with other checkpoints, such as those of forks, are replaced by packs without their content. The rules of
// retention do not apply. gone must return the same for the same checkpoint.
//
// Purge returns conflict if the files of a selected checkpoint are being put in place, or if turns go on using old
// packs: the caller can call it again. It also returns conflict if a pack had to stay because it, or a checkpoint of
// others that lists it, is damaged: then the rest is purged, and the error names the pack. If the process ends in
// between, Purge can be called again; if all selected checkpoints were dropped already, Collect removes the rest after
// the time Config.Grace.
//
// Content that a scope no longer needed before the purge may remain in a pack of another scope if the two
// have no pack in common any more.
func (c *Collector) Purge(ctx context.Context, gone func(journal.Checkpoint) bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	suspects := map[int64]bool{} // the packs that may have content of the selected checkpoints
	for range purgeRounds {
		f, err := c.facts(ctx)
		if err != nil {
			return err
		}
		var list []Drop
		keep := []Checkpoint{}
		for _, cp := range f.Checkpoints {
			if gone(cp.Checkpoint) {
				list = append(list, Drop{Checkpoint: cp.ID, Session: cp.Session})
			} else {
				keep = append(keep, cp)
			}
		}
		for _, d := range list {
			if f.Restoring[d.Checkpoint] {
				return holdfast.Errorf(holdfast.KindConflict, "snapshot.purge",
					"checkpoint %s cannot be purged now, because its files are being put in place", d.Checkpoint).WithHint("try again when that restore has ended")
			}
		}
		suspect(f, gone, suspects)
		p := Plan{}
		if err := cmp.Or(c.replace(ctx, f, keep, suspects, &p), errors.Join(p.failed...)); err != nil {
			return err
		}
		if err := c.forget(ctx, list); err != nil {
			return err
		}
		switch err := c.sweep(ctx); {
		case holdfast.IsKind(err, holdfast.KindConflict): // a commit has listed an old pack meanwhile: the next round tries again
		case err != nil:
			return err
		case len(list) == 0 && len(p.Merges) == 0:
			return p.stuck(suspects)
		}
	}
	return holdfast.Errorf(holdfast.KindConflict, "snapshot.purge", "new checkpoints keep using packs that the purge has to remove").
		WithHint("try again")
}

// suspect adds to suspects the packs of each family with a selected checkpoint: any of these packs may have content of
// that checkpoint.
func suspect(f *Facts, gone func(journal.Checkpoint) bool, suspects map[int64]bool) {
	for _, fam := range families(f.Checkpoints) {
		for _, sc := range fam.scopes {
			if slices.ContainsFunc(sc.checkpoints, func(cp *Checkpoint) bool { return gone(cp.Checkpoint) }) {
				for _, n := range fam.packs {
					suspects[n] = true
				}
			}
		}
	}
}

// replace merges the packs of the families that list a suspect. The selected checkpoints count as dropped, so that the
// new packs have no content that only they need.
func (c *Collector) replace(ctx context.Context, f *Facts, keep []Checkpoint, suspects map[int64]bool, p *Plan) error {
	for _, fam := range families(keep) {
		if !slices.ContainsFunc(fam.packs, func(n int64) bool { return suspects[n] }) {
			continue
		}
		if _, err := c.tidy(ctx, f, fam, true, p, map[int64]bool{}, false); err != nil {
			return err
		}
	}
	return nil
}

// forget drops checkpoints, held ones too.
func (c *Collector) forget(ctx context.Context, list []Drop) error {
	of := bySession(list)
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if err := c.cfg.DB.PurgeCheckpoints(ctx, id, of[id]); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes all packs that no checkpoint lists now.
func (c *Collector) sweep(ctx context.Context) error {
	f, err := c.facts(ctx)
	if err != nil {
		return err
	}
	for _, cp := range f.Checkpoints {
		for _, n := range cp.Packs {
			delete(f.Packs, n)
		}
	}
	var list []journal.Pack
	for _, p := range f.Packs {
		list = append(list, p.Pack)
	}
	return c.dropPacks(ctx, list)
}

// stuck returns conflict if a suspect had to be kept with all its content, because it, or a checkpoint that lists it,
// is damaged.
func (p *Plan) stuck(suspects map[int64]bool) error {
	for _, pk := range p.kept {
		if suspects[pk.Number] {
			return holdfast.Errorf(holdfast.KindConflict, "snapshot.purge",
				"pack %s was kept with all its content, because it or a checkpoint that lists it is damaged", pk.Name).
				WithHint("holdfast snapshot verify names the damaged checkpoints: purge them as well")
		}
	}
	return nil
}
