package tree

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
)

// maxListed is how many skipped paths, and how many fuzzy ones, a result lists.
const maxListed = 1000

// Scan stores a tree in up to three steps: Live, if wanted Still, and Finish. One goroutine uses it. The caller closes
// it, also after an error.
type Scan struct {
	c       Config
	cache   *statcache.Cache
	clock   clock
	content content
	again   statcache.Rehash
	// live has the records of entries that Live found changed, still of those that Still found changed after that.
	live, still *statcache.Run
	seen        seen
	fuzzy       paths
	mismatches  []string
	hashed      int
	unchecked   string
}

// seen is what a pass saw of the whole tree.
type seen struct {
	// dev is the device of the tree's top directory.
	dev                uint64
	files, dirs, links int
	bytes              int64
	skipped            []Skip
	// placeholders counts the placeholders of boxes (package mark), which are left out.
	skips, placeholders int
}

// NewScan makes a Scan. It does not read the tree yet.
func NewScan(c Config) *Scan {
	c.Bounds.Depth = min(c.Bounds.Depth, MaxDepth)
	c.Bounds.Unordered = false
	return &Scan{
		c: c, content: content{sink: c.Sink}, clock: clock{file: c.State + "/clock"},
		live: statcache.NewRun(c.State), still: statcache.NewRun(c.State),
	}
}

// Live walks the tree and reads the files that may have changed since the last scan, while processes may go on writing.
// It returns an error if it cannot walk the tree, if the disk fails, or if it cannot store a blob.
func (s *Scan) Live(ctx context.Context) error {
	var err error
	if s.cache, err = statcache.Open(s.c.State, s.c.Last); err != nil {
		return failed(err)
	}
	head := s.cache.Head
	if s.c.Memo != nil && s.c.Memo.Head.Root == s.c.Last {
		head = s.c.Memo.Head // looks do not write the cache, so the cache's head may be older than the memo's
	}
	s.again = statcache.NextRehash(head, s.c.Now())
	p := &pass{scan: s, out: s.live, prev: statcache.Merge(s.cache.Runs()...)}
	if err := p.walk(ctx); err != nil {
		return failed(err)
	}
	s.seen = p.seen
	return nil
}

// Still walks the tree again and reads again what may have changed since Live read it. The caller has stopped the
// processes that write, and lets them go on when Still returns. If ctx ends, Still returns nil: the files that it did
// not look at are in Result.Fuzzy, or come at or after Result.Unchecked.
func (s *Scan) Still(ctx context.Context) error {
	runs := append([]*statcache.Reader{s.live.Records()}, s.cache.Runs()...)
	p := &pass{scan: s, out: s.still, prev: statcache.Merge(runs...), still: true}
	switch err := p.walk(ctx); {
	case ctx.Err() != nil:
		s.unchecked = statcache.Path(p.key)
		return nil
	case err != nil:
		return failed(err)
	}
	s.seen = p.seen
	return nil
}

// Memo returns a memo of the tree after Finish and before Close. It returns nil if the tree is not small, if anything
// in it was changed or not stored, or if an entry may have changed after it was read without a change of its stat. A
// tree with a placeholder has no memo: the memo would miss that the placeholder becomes a file.
func (s *Scan) Memo() *statcache.Memo {
	if s.seen.skips+s.seen.placeholders > 0 || s.fuzzy.n > 0 || s.unchecked != "" || s.live.Len()+s.still.Len() > 0 {
		return nil
	}
	return s.cache.Memo(s.seen.dev, s.head(s.c.Last))
}

// head returns the head of the cache after a scan whose result is the tree with this root.
func (s *Scan) head(root pack.ID) statcache.Head {
	h := s.again.Head
	h.Root = root
	return h
}

// Close frees what the scan holds. It may be called more than once.
func (s *Scan) Close() {
	s.live.Close()
	s.still.Close()
	if s.cache != nil {
		s.cache.Close()
	}
}

// failed gives an error of a scan a Kind, if it has none.
func failed(err error) error {
	switch {
	case err == nil, holdfast.KindOf(err) != holdfast.KindInternal:
		return err
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return holdfast.Errorf(holdfast.KindUnavailable, "snapshot", "%w", err).WithHint("free space on the disk of the data directory")
	}
	return holdfast.Errorf(holdfast.KindInternal, "snapshot.scan", "%w", err)
}

// clock reads the clock of the tree's file system: a change gets the time of the clock's last tick as its ctime.
type clock struct {
	file string
	last time.Time
}

const (
	// racyWindow is at least two ticks of any kernel's clock. If a file's ctime is older than that when the file is read,
	// a later change of the file gives it another ctime.
	racyWindow = 20 * time.Millisecond
	// coarseWindow takes the place of racyWindow for a file system whose times are whole seconds.
	coarseWindow = 2 * time.Second
	// writeWindow is how long a call of write may take: such a call changes the ctime first, and the content after it.
	writeWindow = 2 * time.Second
)

// before returns the flags for the record of a file that has this ctime and is read after the call.
func (c *clock) before(ctime time.Time, processes bool) (byte, error) {
	flags := c.flags(ctime, processes)
	if flags&statcache.Again == 0 && !c.last.IsZero() {
		return flags, nil
	}
	var err error
	if c.last, err = rooted.Touch(c.file); err != nil {
		return 0, err
	}
	return c.flags(ctime, processes), nil
}

func (c *clock) flags(ctime time.Time, processes bool) (flags byte) {
	window := racyWindow
	if c.last.Nanosecond() == 0 || ctime.Nanosecond() == 0 { // the tree may be on another file system than the file of the clock
		window = coarseWindow
	}
	if !ctime.Before(c.last.Add(-window)) {
		flags |= statcache.Again
	}
	if processes && !ctime.Before(c.last.Add(-writeWindow)) {
		flags |= statcache.Recent
	}
	return flags
}

// paths is a list of at most maxListed paths; n counts all paths.
type paths struct {
	list []string
	n    int
}

func (p *paths) add(path string) {
	if slices.Contains(p.list, path) {
		return
	}
	if p.n++; len(p.list) < maxListed {
		p.list = append(p.list, path)
	}
}

func (p *paths) remove(path string) {
	p.n--
	if i := slices.Index(p.list, path); i >= 0 {
		p.list = slices.Delete(p.list, i, i+1)
	}
}

// Changed reports whether Live found a difference to the last scan: an entry that is new, gone or may have changed.
func (s *Scan) Changed() bool { return s.live.Len() > 0 }

// Newest returns the newest ctime of the entries that were new or may have changed; the zero time if there are none.
func (s *Scan) Newest() (newest time.Time) {
	for _, run := range []*statcache.Run{s.live, s.still} {
		r := run.Records()
		for r.Next(); r.OK; r.Next() {
			if at := time.Unix(0, r.Rec.Stat.Ctime); r.Rec.Flags&statcache.Gone == 0 && at.After(newest) {
				newest = at
			}
		}
	}
	return newest
}
