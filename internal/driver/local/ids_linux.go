package local

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// idsFile is the file with the number of the first unused pair of ids, idsAhead is how many pairs
// are taken from it at once.
const (
	idsFile  = "ids"
	idsAhead = 64
	maxPairs = 1 << 29
)

// idBlock allocates pairs of host ids for ready boots. No pair is used twice in the life of a
// data directory, because files may still belong to it.
type idBlock struct {
	mu       sync.Mutex
	from, to uint32
}

// next returns the first id of an unused pair; the pairs start at base.
func (b *idBlock) next(dir string, base uint32) (uint32, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.from == b.to {
		first, err := takeIDs(dir)
		if err != nil {
			return 0, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot allocate host user ids for prewarmed sandboxes: %w", err)
		}
		b.from, b.to = first, first+idsAhead
	}
	if b.to > maxPairs {
		return 0, holdfast.Errorf(holdfast.KindUnavailable, op, "all host user ids for prewarmed sandboxes have been used").
			WithHint("run the server without prewarm")
	}
	id := base + 2*b.from
	b.from++
	return id, nil
}

// takeIDs takes the next block of pairs of host ids. It records the block before any of its ids is used.
func takeIDs(dir string) (from uint32, err error) {
	name := filepath.Join(dir, idsFile)
	old, err := os.ReadFile(name)
	switch {
	case err == nil:
		n, err := strconv.ParseUint(strings.TrimSpace(string(old)), 10, 31)
		if err != nil {
			return 0, err
		}
		from = uint32(n)
	case !errors.Is(err, fs.ErrNotExist):
		return 0, err
	}
	return from, durable.Replace(name, durable.Bytes([]byte(strconv.Itoa(int(from)+idsAhead)+"\n")))
}
