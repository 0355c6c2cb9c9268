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

	// keeping is held by SetPacks, MarkUnused and DropPacks. So between the reads and the transaction of one of
	// them, only commits can add packs to the lists of checkpoints.
	keeping sync.Mutex
	// relisted counts the calls that replaced lists of packs or removed checkpoints.
	relisted atomic.Int64
}

// Relisted returns a number that rises when SetPacks replaces lists of packs, and when checkpoints are removed
// without their session.
func (c *Store) Relisted() int64 { return c.relisted.Load() }

// New makes the store in a database, and prepares its statements.
func New(s *db.Setup) *Store {
	return &Store{db: s.DB(), rows: newRows(s), packs: newPacks(s), restores: newRestores(s), dropped: newDropped(s)}
}
