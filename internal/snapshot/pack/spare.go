package pack

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"
)

// spareSizes are the sizes of spare files, and of the packs that are written to one. The whole file is written, so the
// smallest one with enough room is the fastest.
var spareSizes = [2]int{4 << 10, 16 << 10}

// spareRoom returns how many bytes a spare file of this size has for blocks, records, and their entries in the footer.
func spareRoom(size int) int { return size - headerSize - footerHead - sealSize - trailerSize }

// spareDelay is how long after a small commit the store makes new spare files, if few are left: so the work that
// follows a commit does not wait for the disk because of them.
const spareDelay = 250 * time.Millisecond

// spares are files that have the names of future packs and the size of small ones, and hold zeros. All of that is on
// disk, so a commit that overwrites one waits only for its content. A spare file has a mark: a second name, with
// which it was made. The mark is on disk before the name, and is removed when the pack is complete.
//
// A spare file is written once: blocks that are encrypted with its salt never exist twice.
type spares struct {
	store *Store
	// want is how many spare files of each size are kept ready.
	want    int
	closing chan struct{}
	making  sync.WaitGroup

	mu sync.Mutex
	// ready has, for each size, the headers of the packs that the spare files will hold.
	ready [len(spareSizes)][]header
	// busy is true while a goroutine makes spare files, or waits to make some.
	busy, closed bool
}

// take takes the smallest spare file that has room for this many bytes. If few spare files are left, it starts a
// goroutine that makes new ones. If no file has room, it returns the size 0.
func (p *spares) take(bytes int) (head header, size int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	low := false
	for i, s := range spareSizes {
		if n := len(p.ready[i]); n > 0 && size == 0 && bytes <= spareRoom(s) {
			head, size, p.ready[i] = p.ready[i][n-1], s, p.ready[i][:n-1]
		}
		low = low || len(p.ready[i]) <= p.want/2
	}
	if low && !p.busy && !p.closed {
		p.busy = true
		p.making.Go(func() {
			select {
			case <-time.After(spareDelay):
				_ = p.store.Prepare() // an error is ignored: commits are slower without spare files, and the next commit tries to make them again
			case <-p.closing:
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			p.busy = false
		})
	}
	return head, size
}

// Prepare makes spare files until each size has as many as configured. The store itself calls it a moment after a small
// commit that left few spare files.
func (s *Store) Prepare() error {
	if err := s.writable(); err != nil {
		return err
	}
	p := &s.spares
	var sizes []int
	p.mu.Lock()
	for i, size := range spareSizes {
		sizes = append(sizes, slices.Repeat([]int{size}, max(0, p.want-len(p.ready[i])))...)
	}
	p.mu.Unlock()
	made, err := p.make(sizes)
	if err != nil {
		return failed("prepare packs", errors.Join(err, p.drop(made)))
	}
	p.mu.Lock()
	closed := p.closed
	if !closed {
		for n, size := range sizes {
			i := slices.Index(spareSizes[:], size)
			p.ready[i] = append(p.ready[i], made[n])
		}
	}
	p.mu.Unlock()
	if closed {
		return failed("prepare packs", p.drop(made))
	}
	return nil
}

// make makes spare files of these sizes and returns their headers. After an error, a part of the last file may exist.
func (p *spares) make(sizes []int) (made []header, err error) {
	s := p.store
	for _, size := range sizes {
		salt, err := newSalt(s.rand)
		if err != nil {
			return made, err
		}
		made = append(made, s.keys.newHeader(salt))
		if err := zeros(s.disk, s.mark(s.keys.pack(&made[len(made)-1])), size); err != nil {
			return made, err
		}
	}
	if len(sizes) == 0 {
		return nil, nil
	}
	if err := s.disk.SyncDir(s.dir); err != nil {
		return made, err
	}
	for _, h := range made {
		id := s.keys.pack(&h)
		if err := s.disk.Link(s.mark(id), s.path(id)); err != nil {
			return made, err
		}
	}
	return made, s.disk.SyncDir(s.dir)
}

// zeros makes a file that consists of size zeros.
func zeros(d Disk, path string, size int) error {
	f, err := d.Create(path)
	if err != nil {
		return err
	}
	if _, err = f.Write(make([]byte, size)); err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// drop removes spare files, and their marks after them.
func (p *spares) drop(list []header) (err error) {
	if len(list) == 0 {
		return nil
	}
	s := p.store
	remove := func(path string) {
		if gone := s.disk.Remove(path); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}
	for _, h := range list {
		remove(s.path(s.keys.pack(&h)))
	}
	if err = errors.Join(err, s.disk.SyncDir(s.dir)); err != nil {
		return err // the next Open sees the marks and removes these files
	}
	for _, h := range list {
		remove(s.mark(s.keys.pack(&h)))
	}
	return err
}

// Close waits for the goroutine that makes spare files, and removes the spare files. Later commits make none.
func (s *Store) Close() error {
	p := &s.spares
	p.mu.Lock()
	if !p.closed {
		p.closed = true
		close(p.closing)
	}
	p.mu.Unlock()
	p.making.Wait()
	p.mu.Lock()
	list := slices.Concat(p.ready[:]...)
	p.ready = [len(spareSizes)][]header{}
	p.mu.Unlock()
	return failed("close packs", p.drop(list))
}

// held holds the blocks and records of a commit in memory, as long as they may all fit into one spare file.
type held struct {
	blocks  []heldBlock
	records [][]byte
	// bytes is how many bytes of a spare file's room (spareRoom) the held commit needs.
	bytes int
}

// heldBlock is a block that is not encrypted yet.
type heldBlock struct {
	kind    Kind
	coding  byte
	raw     int
	payload []byte
	blobs   []entry
}

// hold reports whether the next block or record of the commit, which needs so many bytes of a spare file, can be held
// in memory too. If so, it adds the bytes to held.bytes.
func (w *Writer) hold(bytes int) bool {
	if w.store.spares.want == 0 || w.now != nil || len(w.done) > 0 || w.held.bytes+bytes > spareRoom(spareSizes[len(spareSizes)-1]) {
		return false
	}
	w.held.bytes += bytes
	return true
}

// place begins the pack of a held commit: in a spare file, or in a temporary file if no spare file has room.
func (w *Writer) place() error {
	if head, size := w.store.spares.take(w.held.bytes); size > 0 {
		return w.release(w.store.newSpareBuilder(head, size))
	}
	b, err := w.store.newBuilder()
	if err != nil {
		return err
	}
	return w.release(b)
}

// release makes the pack of b the unfinished one, and moves the held blocks and records into it.
func (w *Writer) release(b *builder) error {
	w.now = b
	for _, h := range w.held.blocks {
		if err := b.add(h.kind, h.coding, h.raw, h.payload, h.blobs); err != nil {
			return err
		}
	}
	for _, r := range w.held.records {
		b.record(r)
	}
	w.held = held{}
	return nil
}
