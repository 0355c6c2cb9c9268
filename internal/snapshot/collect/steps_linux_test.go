package collect

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/journal"
	"github.com/holdfast-run/holdfast/internal/snapshot/pack"
)

// errKilled stands for the end of the process: nothing after it happens.
var errKilled = errors.New("killed")

// steps numbers all changes of the database and of the disk from 0. before is called with the number and
// the name of each; the change does not happen if it returns an error.
type steps struct {
	mu     sync.Mutex
	n      int
	before func(n int, name string) error
}

func (s *steps) next(name string) error {
	s.mu.Lock()
	n, before := s.n, s.before
	s.n++
	s.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(n, name)
}

// stepDB is the database with its changes as steps.
type stepDB struct {
	DB
	*steps
}

func (d stepDB) AddPacks(ctx context.Context, packs []journal.Pack) (out []journal.Pack, err error) {
	if err = d.next("add"); err == nil {
		out, err = d.DB.AddPacks(ctx, packs)
	}
	return out, err
}

func (d stepDB) SetPacks(ctx context.Context, exact map[holdfast.CheckpointID][]int64) error {
	if err := d.next("set"); err != nil {
		return err
	}
	return d.DB.SetPacks(ctx, exact)
}

func (d stepDB) MarkUnused(ctx context.Context, numbers []int64, since time.Time) error {
	if err := d.next("mark"); err != nil {
		return err
	}
	return d.DB.MarkUnused(ctx, numbers, since)
}

func (d stepDB) DropPacks(ctx context.Context, numbers []int64) error {
	if err := d.next("drop packs"); err != nil {
		return err
	}
	return d.DB.DropPacks(ctx, numbers)
}

func (d stepDB) DropCheckpoints(ctx context.Context, session holdfast.SessionID, ids []holdfast.CheckpointID) error {
	if err := d.next("drop checkpoints"); err != nil {
		return err
	}
	return d.DB.DropCheckpoints(ctx, session, ids)
}

func (d stepDB) PurgeCheckpoints(ctx context.Context, session holdfast.SessionID, ids []holdfast.CheckpointID) error {
	if err := d.next("purge checkpoints"); err != nil {
		return err
	}
	return d.DB.PurgeCheckpoints(ctx, session, ids)
}

// stepDisk is the disk of packs with its changes as steps.
type stepDisk struct {
	pack.OSDisk
	*steps
}

func (d stepDisk) Create(path string) (f pack.DiskFile, err error) {
	if err = d.next("create"); err == nil {
		f, err = d.OSDisk.Create(path)
	}
	return stepFile{f, d.steps}, err
}

func (d stepDisk) Rename(from, to string) error {
	if err := d.next("rename"); err != nil {
		return err
	}
	return d.OSDisk.Rename(from, to)
}

func (d stepDisk) Remove(path string) error {
	if err := d.next("remove"); err != nil {
		return err
	}
	return d.OSDisk.Remove(path)
}

func (d stepDisk) SyncDir(dir string) error {
	if err := d.next("syncdir"); err != nil {
		return err
	}
	return d.OSDisk.SyncDir(dir)
}

type stepFile struct {
	pack.DiskFile
	*steps
}

func (f stepFile) Write(b []byte) (int, error) {
	if err := f.next("write"); err != nil {
		return 0, err
	}
	return f.DiskFile.Write(b)
}

func (f stepFile) Sync() error {
	if err := f.next("sync"); err != nil {
		return err
	}
	return f.DiskFile.Sync()
}
