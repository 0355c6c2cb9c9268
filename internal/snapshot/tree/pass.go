package tree

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/mark"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/internal/snapshot/statcache"
)

const (
	// maxLinked is how many files with several names a pass remembers. Others are stored once for each name.
	maxLinked = 100_000
	// maxTries is how often a file is read at most if it changes each time while it is read.
	maxTries = 3
	// mostAgain is the size up to which Still reads a file again because it may have been written while Live read it.
	mostAgain = 4 << 20
	// A scan that reads more than shortFiles files, or more than shortBytes bytes, counts as long (Config.Reads).
	shortFiles, shortBytes = 16, 256 << 10
)

// pass is one walk of a scan. It compares the tree with the records of earlier walks, and adds a record for each
// difference.
type pass struct {
	scan  *Scan
	out   *statcache.Run
	prev  *statcache.Merged
	still bool
	seen  seen
	// key is the key of the current entry; ends are the lengths of the keys of the directories above it.
	key  []byte
	ends []int
	// matched says that the current record of prev, the records of earlier walks, is that of the current entry.
	matched bool
	// first has, for each file with several names, the path that the walk met first.
	first map[[2]uint64]string
	rec   statcache.Record
	// fault is an error after which the pass must end: the entry that it is about would else look as if it had been
	// removed.
	fault error
}

func (p *pass) walk(ctx context.Context) error {
	if err := p.prev.There(); err != nil {
		return err
	}
	c := &p.scan.c
	for e, err := range rooted.Walk(ctx, c.Dir, c.Bounds) {
		if p.fault != nil {
			return p.fault
		}
		if err != nil && e.Name == "" {
			return err
		}
		if e.Again {
			p.skip(e, err)
			continue
		}
		if p.enter(e); e.Depth == 0 {
			p.seen.dev = e.Dev
		}
		old, serr := p.seek()
		if serr != nil {
			return serr
		}
		if e.Depth > 0 && p.leavesOut(ctx, e, old) {
			if p.absent(); e.Mode.IsDir() {
				e.Skip()
			}
			continue
		}
		if c.Admit != nil {
			if aerr := c.Admit(e); aerr != nil {
				return aerr
			}
		}
		if err := p.entry(ctx, e, old, err); err != nil {
			return err
		}
	}
	for p.prev.Rec != nil && p.fault == nil {
		if err := p.pastRecord(); err != nil {
			return err
		}
	}
	return p.fault
}

// leavesOut reports whether an entry is left out. old is its record; without a stat cache, the tree Last says whether
// it has the entry.
func (p *pass) leavesOut(ctx context.Context, e rooted.Entry, old *statcache.Record) bool {
	switch c := &p.scan.c; {
	case c.Exclude != nil && c.Exclude(e.Path(), e.Mode.IsDir()):
		return true
	case e.All(ctx, placeholder):
		p.seen.placeholders++
		return true
	case c.Ignore == nil || old != nil || !c.Ignore(e.Path(), e.Mode.IsDir()):
		return false
	case p.scan.cache.Exists() || c.Last == ([32]byte{}):
		return true
	default:
		_, err := Lookup(ctx, c.Source, c.Last, e.Path())
		if known := (*holdfast.Error)(nil); errors.As(err, &known) && known.Op != LookupOp {
			p.fault = err // Last cannot be read; the error for a missing blob is not_found, too
		}
		return holdfast.IsKind(err, holdfast.KindNotFound)
	}
}

// placeholder reports whether an entry is a placeholder of a box, provided that everything in it is one.
func placeholder(e rooted.Entry) bool {
	return mark.On(e.Mtime.Unix(), int64(e.Mtime.Nanosecond())) && (e.Mode.IsDir() || e.Mode.IsRegular() && e.Size == 0 && e.Nlink == 1)
}

// enter sets the key of an entry.
func (p *pass) enter(e rooted.Entry) {
	if e.Depth == 0 {
		p.key, p.ends = p.key[:0], append(p.ends[:0], 0)
		return
	}
	p.key = append(append(p.key[:p.ends[e.Depth-1]], 0), e.Name...)
	p.ends = append(p.ends[:e.Depth], len(p.key))
}

// seek returns the record of the current entry; nil if there is none. It records which entries before it are gone.
func (p *pass) seek() (*statcache.Record, error) {
	for p.prev.Rec != nil {
		c := bytes.Compare(p.prev.Rec.Key, p.key)
		if p.prev.Rec.Is(statcache.End) && c == 0 {
			c = -1
		}
		switch {
		case c > 0:
			return nil, nil
		case c == 0:
			p.matched = true
			return p.prev.Rec, nil
		}
		if err := p.pastRecord(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// pastRecord goes to the next record. If the walk did not find the entry of the present one, it records that this is
// gone.
func (p *pass) pastRecord() error {
	rec := p.prev.Rec
	if !rec.Is(statcache.End) && !p.matched {
		if rec.Is(statcache.Moved) {
			p.scan.fuzzy.remove(statcache.Path(rec.Key))
		}
		if err := p.out.Add(&statcache.Record{Key: rec.Key, Flags: statcache.Gone}); err != nil {
			return err
		}
	}
	p.matched = false
	return p.prev.There()
}

// absent notes that the current entry is not stored: if it has a record, the entry counts as gone.
func (p *pass) absent() { p.matched = false }

// faults are errors of the disk, or of a limit of the server, which say nothing about an entry.
var faults = []error{syscall.EIO, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT}

// skip reports an entry that is not stored, or not completely. If the reason is one of the faults, it ends the pass.
func (p *pass) skip(e rooted.Entry, why error) {
	if slices.ContainsFunc(faults, func(f error) bool { return errors.Is(why, f) }) {
		p.fault = why
	}
	reason := why.Error()
	var known *holdfast.Error
	if errors.As(why, &known) && known.Err != nil {
		reason = known.Err.Error()
	}
	if p.seen.skips++; len(p.seen.skipped) < maxListed {
		p.seen.skipped = append(p.seen.skipped, Skip{Path: e.Path(), Why: reason})
	}
}

// entry compares an entry with its record, and reads it if necessary. werr is the walk's error.
func (p *pass) entry(ctx context.Context, e rooted.Entry, old *statcache.Record, werr error) error {
	switch {
	case werr != nil && (!e.Mode.IsDir() || holdfast.IsKind(werr, holdfast.KindConflict)):
		p.absent()
		p.skip(e, werr)
		return nil
	case e.Mode.IsDir():
		if werr != nil {
			p.skip(e, werr)
		}
		return p.dir(e, old, werr == nil)
	case e.Mode.IsRegular(), e.Mode&fs.ModeSymlink != 0:
		return p.leaf(ctx, e, old)
	}
	p.absent()
	p.skip(e, errors.New(special(e.Mode)))
	return nil
}

func special(m fs.FileMode) string {
	switch {
	case m&fs.ModeSocket != 0:
		return "a socket"
	case m&fs.ModeNamedPipe != 0:
		return "a FIFO"
	}
	return "a device"
}

// unchanged reports whether the record old still describes the entry, so that the entry need not be read.
func (p *pass) unchanged(e rooted.Entry, old *statcache.Record) bool {
	switch {
	case old == nil || old.Stat != statcache.StatOf(e) || old.Is(statcache.Again) || e.Size > maxFile:
		return false
	case old.Is(statcache.Recent):
		return p.still && e.Size > mostAgain
	}
	return true
}

// base returns an Entry with those fields that come from the stat of e.
func (p *pass) base(e rooted.Entry, t Type) Entry {
	out := Entry{Type: t, Mode: uint16(e.Mode.Perm()), Owner: OwnerOther, Mtime: e.Mtime.UnixNano()}
	if e.Mode&fs.ModeSetuid != 0 {
		out.Mode |= setUID
	}
	if e.Mode&fs.ModeSetgid != 0 {
		out.Mode |= setGID
	}
	if e.Mode&fs.ModeSticky != 0 {
		out.Mode |= sticky
	}
	switch owners := p.scan.c.Owners; int(e.UID) {
	case owners.Agent.UID:
		out.Owner = OwnerAgent
	case owners.Boxd.UID:
		out.Owner = OwnerBoxd
	}
	return out
}

func (p *pass) dir(e rooted.Entry, old *statcache.Record, readable bool) error {
	p.seen.dirs++
	if p.unchanged(e, old) {
		return nil
	}
	var h rooted.Handle
	if readable {
		open, now, err := e.Open()
		if h = open; err != nil {
			p.skip(e, err)
			readable = false
		} else {
			defer h.Close()
			e.Mode, e.Size, e.Mtime, e.Ctime, e.UID = now.Mode, now.Size, now.Mtime, now.Ctime, now.UID
		}
	}
	// The directory may have changed since the walk's stat, so the flags are computed for the stat that is recorded.
	flags, err := p.scan.clock.before(e.Ctime, p.scan.c.Processes)
	if err != nil {
		return err
	}
	var xattrs []rooted.Xattr
	if readable {
		if xattrs, err = h.Xattrs(); err != nil {
			p.skip(e, err)
		}
	}
	entry := p.base(e, Dir)
	entry.Xattrs = xattrs
	return p.put(entry, statcache.StatOf(e), flags, old)
}

// put adds a record of the current entry, if it differs from the old record.
func (p *pass) put(entry Entry, st statcache.Stat, flags byte, old *statcache.Record) error {
	rec := &p.rec
	rec.Key, rec.Flags, rec.Stat = append(rec.Key[:0], p.key...), flags, st
	rec.Body = appendBody(rec.Body[:0], entry)
	p.fuzzy(old, flags)
	if old != nil && old.Flags == flags && old.Stat == st && bytes.Equal(old.Body, rec.Body) {
		return nil
	}
	return p.out.Add(rec)
}

// leaf handles a file or a symlink.
func (p *pass) leaf(ctx context.Context, e rooted.Entry, old *statcache.Record) error {
	same := p.unchanged(e, old)
	if same && (p.still || !e.Mode.IsRegular() || !p.scan.again.Due(e.Ino)) {
		p.count(e)
		return p.keep(e, old)
	}
	r, err := p.read(ctx, e, old)
	var sink errSink
	switch {
	case err == nil:
	case errors.As(err, &sink):
		return sink.error
	case ctx.Err() != nil:
		return p.cut(e, old, ctx.Err())
	case errors.Is(err, fs.ErrNotExist), holdfast.IsKind(err, holdfast.KindConflict):
		// The entry was removed or replaced after the walk saw it. The next walk finds what is there instead.
		p.absent()
		return nil
	default:
		p.absent()
		p.skip(e, err)
		return nil
	}
	p.count(r.now)
	r.entry.Link = p.link(r.now)
	if same && r.flags&statcache.Moved == 0 && statcache.StatOf(r.now) == old.Stat && !sameContent(r.entry, old.Body) {
		p.scan.mismatches = append(p.scan.mismatches, statcache.Path(p.key))
	}
	return p.put(r.entry, statcache.StatOf(r.now), r.flags, old)
}

// sameContent reports whether an entry has the same content as the encoded entry body.
func sameContent(e Entry, body []byte) bool {
	d := &decoder{b: body}
	return d.body().content == e.content && d.err == nil
}

// cut ends the reading of a file when ctx has ended. In Still it keeps the old record, marked for reading the file
// again.
func (p *pass) cut(e rooted.Entry, old *statcache.Record, err error) error {
	if !p.still || old == nil {
		return err
	}
	p.fuzzy(old, statcache.Moved)
	rec := *old
	rec.Flags |= statcache.Moved | statcache.Again
	return errors.Join(p.out.Add(&rec), err)
}

// fuzzy lists the current file as fuzzy if it changed while it was read, and takes it off if Still read it unchanged.
func (p *pass) fuzzy(old *statcache.Record, flags byte) {
	switch was := old != nil && old.Is(statcache.Moved) && p.still; {
	case flags&statcache.Moved != 0 && !was:
		p.scan.fuzzy.add(statcache.Path(p.key))
	case flags&statcache.Moved == 0 && was:
		p.scan.fuzzy.remove(statcache.Path(p.key))
	}
}

func (p *pass) count(e rooted.Entry) {
	if e.Mode.IsRegular() {
		p.seen.files++
		p.seen.bytes += min(e.Size, math.MaxInt64-p.seen.bytes)
	} else {
		p.seen.links++
	}
}

// keep keeps the record of an unchanged entry, unless the path of the file's first name (Link) has changed.
func (p *pass) keep(e rooted.Entry, old *statcache.Record) error {
	if e.Nlink < 2 && old.Body[0]&linkBit == 0 {
		return nil
	}
	d := &decoder{b: old.Body}
	entry := d.body()
	if d.err != nil {
		return d.err
	}
	entry.Link = p.link(e)
	return p.put(entry, old.Stat, old.Flags, old)
}

// link returns the path of the current file that the walk met first; "" if that is the current path.
func (p *pass) link(e rooted.Entry) string {
	if e.Nlink < 2 {
		return ""
	}
	id := [2]uint64{e.Dev, e.Ino}
	if path, ok := p.first[id]; ok {
		return path
	}
	if p.first == nil {
		p.first = map[[2]uint64]string{}
	}
	if len(p.first) < maxLinked && len(p.key) <= maxLink {
		p.first[id] = strings.Clone(statcache.Path(p.key))
	}
	return ""
}

// reading is the outcome of reading a file or a symlink.
type reading struct {
	entry Entry
	now   rooted.Entry
	flags byte
}

// read reads the current entry, a file again while its stat differs before and after, up to maxTries times.
func (p *pass) read(ctx context.Context, e rooted.Entry, old *statcache.Record) (r reading, err error) {
	if !e.Mode.IsRegular() {
		if r.flags, err = p.scan.clock.before(e.Ctime, p.scan.c.Processes); err != nil {
			return r, err
		}
		r.now, r.entry = e, p.base(e, Symlink)
		r.entry.Mode = 0o777
		r.entry.Target, err = e.Readlink()
		return r, err
	}
	p.scan.hashed++
	if p.scan.c.Reads != nil {
		p.scan.c.Reads(p.scan.hashed > shortFiles || p.scan.content.hashed+e.Size > shortBytes)
	}
	for range maxTries {
		if r, err = p.readOnce(ctx, e, old); err != nil || r.flags&statcache.Moved == 0 {
			return r, err
		}
	}
	return r, nil
}

func (p *pass) readOnce(ctx context.Context, e rooted.Entry, old *statcache.Record) (r reading, err error) {
	h, now, err := e.Open()
	if err != nil {
		return r, err
	}
	defer h.Close()
	if now.Size > maxFile {
		return r, errors.New("the file has more than 2^62 bytes")
	}
	if r.flags, err = p.scan.clock.before(now.Ctime, p.scan.c.Processes); err != nil {
		return r, err
	}
	if p.scan.c.Processes {
		if err := h.WriteBack(); err != nil {
			return r, err
		}
	}
	r.entry = p.base(now, File)
	r.entry.content, r.entry.Size, err = p.scan.content.store(ctx, h, now.Size, now.Disk < now.Size, p.last(old))
	if err != nil {
		return r, err
	}
	if r.entry.Xattrs, err = h.Xattrs(); err != nil {
		p.skip(e, err)
	}
	if r.now, err = h.Stat(); err != nil {
		return r, err
	}
	if statcache.StatOf(r.now) != statcache.StatOf(now) {
		r.flags |= statcache.Moved | statcache.Again
	}
	return r, nil
}

// last returns the chunks of the current file as they were stored last; nil if they do not help to store it now.
func (p *pass) last(old *statcache.Record) *lastChunks {
	if old == nil || p.scan.c.Source == nil {
		return nil
	}
	d := &decoder{b: old.Body}
	e := d.body()
	if d.err != nil || e.Type != File || e.content.kind != refList {
		return nil
	}
	return &lastChunks{list: newCursor(p.scan.c.Source, chunksNode, e.content, e.Size)}
}
