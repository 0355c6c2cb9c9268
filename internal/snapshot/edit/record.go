package edit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// recordFile is a file of the session that describes a rewind while it goes on.
const recordFile = "rewinding"

// Record describes a rewind that goes on: the checkpoints between which it goes, and the paths of the staged files. It
// lies in a directory of the session.
type Record struct {
	Kept   holdfast.CheckpointID `json:"kept"`
	To     holdfast.CheckpointID `json:"to"`
	Staged [][]byte              `json:"staged"`
	// Begun is when the rewind began, in nanoseconds since 1970: its files have this time, and no other rewind has their
	// staged names. It is 0 in the records of older servers.
	Begun int64 `json:"begun,omitempty"`
	// Placing says that files may have got in their places. From then on what has a staged name may be somebody else's.
	Placing bool `json:"placing,omitempty"`
}

// Write writes the record durably before anything is staged.
func (r Record) Write(dir string, staged []string) error {
	for _, p := range staged {
		r.Staged = append(r.Staged, []byte(p)) // a path may be no text
	}
	return r.write(dir)
}

// Editor completes the Editor of the rewind. Every server that goes on with it uses the same names and times.
func (r Record) Editor(e Editor) *Editor {
	e.Tag = string(r.Kept + r.To)
	if r.Begun != 0 {
		e.Now, e.Tag = time.Unix(0, r.Begun), fmt.Sprintf("%s\x00%d", e.Tag, r.Begun)
	}
	return &e
}

// Stage writes the record, stages a plan, and returns what Check returns then. After an error the caller calls Unstage.
func (r Record) Stage(ctx context.Context, dir string, e *Editor, p Plan) (conflicts []string, err error) {
	if err := r.Write(dir, e.Staged(p)); err != nil {
		return nil, err
	}
	if err := e.Stage(ctx, p); err != nil {
		return nil, err
	}
	return e.Check(ctx, p)
}

// Apply notes durably in the record that files get in their places now, and carries out the plan.
func (r Record) Apply(ctx context.Context, dir string, e *Editor, p Plan) (left []string, err error) {
	if !r.Placing {
		r.Placing = true
		if err := r.write(dir); err != nil {
			return nil, err
		}
	}
	return e.Apply(ctx, p)
}

func (r Record) write(dir string) error {
	data, err := json.Marshal(r)
	if err == nil {
		err = durable.Replace(filepath.Join(dir, recordFile), durable.Bytes(data))
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "session.rewind", "%w", err).WithHint("free space on the disk of the data directory")
	}
	return nil
}

// Staged reports whether a directory may have a record.
func Staged(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, recordFile))
	return !errors.Is(err, fs.ErrNotExist)
}

// ReadRecord reads the record of a directory. If the directory has no record, it returns the zero Record.
func ReadRecord(dir string) (r Record, err error) {
	data, err := os.ReadFile(filepath.Join(dir, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return r, holdfast.Errorf(holdfast.KindInternal, "session.rewind", "the record of a rewind cannot be read: %w", err)
	}
	return r, nil
}

// Unstage removes the staged files of a rewind that does not go on from a tree, and then the record in dir. The record stays
// if the tree is gone, or is another one: its files may come back. If files may have got in their places, nothing is removed
// from the tree: Apply or Settle has done it, and what they left is somebody else's. It may be repeated.
func Unstage(dir string, tree Tree) error {
	r, err := ReadRecord(dir)
	if err != nil || r.To == "" {
		return err
	}
	if !r.Placing {
		staged := make([]string, len(r.Staged))
		for i, p := range r.Staged {
			staged[i] = string(p)
		}
		if err := tree.Clean(staged); err != nil {
			return err
		}
	}
	if err = os.Remove(filepath.Join(dir, recordFile)); err == nil {
		err = durable.SyncDir(dir)
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "session.rewind", "%w", err)
	}
	return nil
}

// Abandon is Unstage for a rewind that may have been interrupted while files got in their places. plan returns its
// Editor and its plan. If these cannot be read, nobody knows whose the files with staged names are: they stay.
func Abandon(ctx context.Context, dir string, tree Tree, plan func(Record) (*Editor, Plan, error)) error {
	if r, err := ReadRecord(dir); err == nil && r.Placing {
		if e, p, err := plan(r); err == nil {
			_, _ = e.Settle(ctx, p)
		}
	}
	return Unstage(dir, tree)
}
