package collect

import (
	"cmp"
	"context"
	"errors"
	"hash/maphash"
	"io/fs"
	"iter"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// DB is the part of the database that a Collector needs. The tests in storetest describe its methods.
type DB interface {
	Needed(ctx context.Context) iter.Seq2[journal.Checkpoint, error]
	AllPacks(ctx context.Context) ([]journal.Pack, error)
	Restoring(ctx context.Context) ([]journal.Restore, error)
	AddPacks(ctx context.Context, packs []journal.Pack) ([]journal.Pack, error)
	SetPacks(ctx context.Context, exact map[holdfast.CheckpointID][]int64) error
	MarkUnused(ctx context.Context, numbers []int64, since time.Time) error
	DropPacks(ctx context.Context, numbers []int64) error
	DropCheckpoints(ctx context.Context, session holdfast.SessionID, ids []holdfast.CheckpointID) error
	PurgeCheckpoints(ctx context.Context, session holdfast.SessionID, ids []holdfast.CheckpointID) error
}

// Config configures a Collector.
type Config struct {
	// DB is the database, Packs the open store of packs. Nobody else removes packs from either.
	DB    DB
	Packs *pack.Store
	Rules Rules
	// Grace is how long a pack stays after the last checkpoint that lists it (default 1 hour; negative:
	// until the next run).
	Grace time.Duration
	// Record returns the checkpoint that a record in a pack describes; false if it cannot tell. A pack with the record of
	// a stored checkpoint is needed; a merge leaves out records of dropped checkpoints. If Record is nil, no pack is
	// needed for its records, and merges keep all records.
	Record func(data []byte) (holdfast.CheckpointID, bool)
	// Clock is the clock of the database (default time.Now).
	Clock func() time.Time
}

// Collector cleans up one snapshot store. Safe for concurrent use: only one of its methods runs at a time. Meanwhile
// turns may take checkpoints.
type Collector struct {
	cfg  Config
	seed maphash.Seed

	mu sync.Mutex
	// settled has the keys of the families in which the last run found nothing to do (see family.key).
	settled map[uint64]bool
	// strangers are the packs on disk that the database does not know, with the time at which they were
	// first seen.
	strangers map[pack.PackID]time.Time
	// damaged are the packs that could not be read, with the reason.
	damaged map[pack.PackID]string
	// unusable are the packs that had a fault when the last run read the facts.
	unusable map[pack.PackID]bool
}

// New makes a Collector.
func New(cfg Config) *Collector {
	cfg.Grace = cmp.Or(cfg.Grace, time.Hour)
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	return &Collector{cfg: cfg, seed: maphash.MakeSeed(), damaged: map[pack.PackID]string{}}
}

// Plan is what a run of Collect does, or would do.
type Plan struct {
	// Checkpoints are those that the run drops.
	Checkpoints []Drop
	// Merges replace packs by new ones. The replaced packs are in Mark, too.
	Merges []Merge
	// Mark are packs that no checkpoint needs from now on; a run after the time Config.Grace removes them. Remove are
	// packs that were marked at least that time ago.
	Mark   []journal.Pack
	Remove []journal.Pack
	// Orphans are packs on disk that the database has not known for at least an hour, or Config.Grace if that is longer:
	// the commits that wrote them failed.
	Orphans []pack.PackID
	// Faults are the missing and damaged packs.
	Faults []Fault

	// kept are packs with unneeded content that could not be replaced, because they, or checkpoints that list them, are
	// damaged.
	kept []Pack
	// failed are the errors of planned merges that failed; the run went on without these merges.
	failed []error
}

// Fault is a pack that is missing or damaged.
type Fault struct {
	Pack   pack.PackID
	Number int64
	Why    string
	// Checkpoints are those that list the pack, in the order in which they were stored; they may not need it.
	Checkpoints []holdfast.CheckpointID
}

// Paused runs fn while the Collector removes no pack and no checkpoint.
func (c *Collector) Paused(fn func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fn()
}

// Collect drops checkpoints by the rules, replaces packs that are mostly unneeded, and small ones if there are many,
// marks packs that no checkpoint needs, and removes packs that have been marked for Config.Grace. With dry it changes
// nothing and returns what it would do now. After an error the plan has what was planned until then, and the next run
// does the rest. If merges fail, as on a full disk, Collect still removes packs.
func (c *Collector) Collect(ctx context.Context, dry bool) (p Plan, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f, err := c.facts(ctx)
	if err != nil {
		return p, err
	}
	defer func() { p.Faults = f.faults() }()
	full := c.cfg.Rules.Bytes > 0 && f.size() > c.cfg.Rules.Bytes
	if full {
		if err := c.weigh(ctx, f); err != nil {
			return p, err
		}
	}
	p.Checkpoints = Retain(*f, c.cfg.Rules)
	if !dry {
		if err := c.drop(ctx, p.Checkpoints); err != nil {
			return p, err
		}
	}
	needed, err := c.tidyAll(ctx, f, full, &p, dry)
	if err != nil {
		return p, err
	}
	p.choose(f, needed, c.cfg.Grace)
	p.Orphans = c.orphans(f)
	if dry {
		return p, nil
	}
	return p, errors.Join(c.remove(ctx, &p, f.Now), errors.Join(p.failed...))
}

// weigh sets Checkpoint.Own of all checkpoints, by which Retain estimates how much dropping a checkpoint frees.
func (c *Collector) weigh(ctx context.Context, f *Facts) error {
	for _, fam := range families(f.Checkpoints) {
		if _, err := c.survey(ctx, f, fam); err != nil {
			return err
		}
	}
	return nil
}

// drop drops the listed checkpoints, session by session. If one of a session's listed checkpoints is in use, it drops
// none of this session's.
func (c *Collector) drop(ctx context.Context, list []Drop) error {
	of := bySession(list)
	for _, id := range slices.Sorted(maps.Keys(of)) {
		if err := c.cfg.DB.DropCheckpoints(ctx, id, of[id]); err != nil && !holdfast.IsKind(err, holdfast.KindConflict) {
			return err
		}
	}
	return nil
}

func bySession(list []Drop) map[holdfast.SessionID][]holdfast.CheckpointID {
	of := map[holdfast.SessionID][]holdfast.CheckpointID{}
	for _, d := range list {
		of[d.Session] = append(of[d.Session], d.Checkpoint)
	}
	return of
}

// tidyAll tidies all families of checkpoints but, unless every is true, the settled ones. It returns the numbers of the
// packs that are needed after that.
func (c *Collector) tidyAll(ctx context.Context, f *Facts, every bool, p *Plan, dry bool) (map[int64]bool, error) {
	gone := map[holdfast.CheckpointID]bool{}
	for _, d := range p.Checkpoints {
		gone[d.Checkpoint] = true
	}
	kept := slices.DeleteFunc(slices.Clone(f.Checkpoints), func(cp Checkpoint) bool { return gone[cp.ID] })
	needed, settled := map[int64]bool{}, map[uint64]bool{}
	for _, fam := range families(kept) {
		key := fam.key(c.seed, f)
		if c.settled[key] && !every {
			settled[key] = true
			for _, n := range fam.packs {
				needed[n] = true
			}
			continue
		}
		quiet, err := c.tidy(ctx, f, fam, every, p, needed, dry)
		if err != nil {
			return nil, err
		}
		if quiet {
			settled[key] = true
		}
	}
	c.settled = settled
	return needed, nil
}

// tidy corrects the lists of packs of a family's checkpoints and merges packs. It adds the numbers of the packs that
// the family needs afterwards to needed. quiet is true if there was nothing to do.
func (c *Collector) tidy(
	ctx context.Context, f *Facts, fam *family, every bool, p *Plan, needed map[int64]bool, dry bool,
) (quiet bool, err error) {
	s, err := c.survey(ctx, f, fam)
	if err != nil {
		return false, err
	}
	for _, u := range s.packs {
		if u.fixed && u.live < u.total {
			p.kept = append(p.kept, u.Pack)
		}
	}
	for _, n := range fam.packs {
		if pk := f.Packs[n]; pk.Fault != "" && !pk.Missing {
			p.kept = append(p.kept, pk)
		}
	}
	quiet = true
	for _, m := range s.merges(fam, every) {
		quiet = false
		if !dry {
			err := c.merge(ctx, s, m)
			if ctx.Err() != nil {
				return false, err
			}
			if errors.Is(err, pack.ErrDamaged) || errors.Is(err, fs.ErrNotExist) {
				c.blame(ctx, f, m)
				continue
			}
			if err != nil {
				p.failed = append(p.failed, err) // a merge that failed, as on a full disk, must not prevent that packs are removed
				continue
			}
		}
		p.Merges = append(p.Merges, m)
	}
	exact := s.lists(fam, p.Merges, needed)
	if len(exact) == 0 {
		return quiet, nil
	}
	if dry {
		return false, nil
	}
	return false, c.cfg.DB.SetPacks(ctx, exact)
}

// choose plans which packs are marked and which are removed. It is a pure function.
func (p *Plan) choose(f *Facts, needed map[int64]bool, grace time.Duration) {
	for _, pk := range f.Packs {
		switch {
		case needed[pk.Number]:
		case pk.Unused == nil:
			p.Mark = append(p.Mark, pk.Pack)
		case f.Now.Sub(*pk.Unused) >= grace:
			p.Remove = append(p.Remove, pk.Pack)
		}
	}
	for _, list := range [][]journal.Pack{p.Mark, p.Remove} {
		slices.SortFunc(list, func(a, b journal.Pack) int { return cmp.Compare(a.Number, b.Number) })
	}
}

// remove executes the last part of a plan: it marks packs, and removes packs and orphans.
func (c *Collector) remove(ctx context.Context, p *Plan, now time.Time) error {
	if len(p.Mark) > 0 {
		if err := c.cfg.DB.MarkUnused(ctx, numbers(p.Mark), now); err != nil {
			return err
		}
	}
	if len(p.Remove) > 0 {
		err := c.dropPacks(ctx, p.Remove)
		if holdfast.IsKind(err, holdfast.KindConflict) {
			p.Remove = nil // a commit has listed one of the packs since, so this run removes none; the next run plans again
		} else if err != nil {
			return err
		}
	}
	for _, id := range p.Orphans {
		delete(c.strangers, id)
	}
	return c.cfg.Packs.Remove(p.Orphans...)
}

// dropPacks removes packs from the database, and then their files. If a checkpoint lists one of them, it removes none
// and returns conflict.
func (c *Collector) dropPacks(ctx context.Context, list []journal.Pack) error {
	if err := c.cfg.DB.DropPacks(ctx, numbers(list)); err != nil {
		return err
	}
	var names []pack.PackID
	for _, pk := range list {
		if id, err := pack.ParsePackID(pk.ID); err == nil {
			names = append(names, id)
			delete(c.damaged, id)
		}
	}
	return c.cfg.Packs.Remove(names...)
}

func numbers(list []journal.Pack) []int64 {
	out := make([]int64, len(list))
	for i, p := range list {
		out[i] = p.Number
	}
	return out
}
