package checkpoints

import (
	"sync"
	"sync/atomic"

	"github.com/holdfast-run/holdfast/internal/store/sqlite/db"
)

// Store is the store of checkpoints. Safe for concurrent use.
type Store struct {
	db       *db.DB
	rows     *rows
	packs    *packs
	restores *restores
	dropped  *dropped

	// keeping is held while packs or lists of packs are changed outside of a commit. So between the reads and
	// the transaction of such a change, only commits can change them.
	keeping sync.Mutex
	// relisted counts the changes of lists of packs outside of commits.
	relisted atomic.Int64
}

// Relisted returns a number that rises when lists of packs change other than by a commit.
func (c *Store) Relisted() int64 { return c.relisted.Load() }

// New makes the store in a database, and prepares its statements.
func New(s *db.Setup) *Store {
	return &Store{db: s.DB(), rows: newRows(s), packs: newPacks(s), restores: newRestores(s), dropped: newDropped(s)}
}
