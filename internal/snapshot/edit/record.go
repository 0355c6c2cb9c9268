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

// recordFile is the name of the file that describes a rewind while it is carried out. The file is in a directory of the
// session.
const recordFile = "rewinding"

// Record describes a rewind while it is carried out: the checkpoints from which and to which it goes, and the paths of
// the staged files. It is stored in a directory of the session.
type Record struct {
	Kept   holdfast.CheckpointID `json:"kept"`
	To     holdfast.CheckpointID `json:"to"`
	Staged [][]byte              `json:"staged"`
	// Begun is when the rewind began, in nanoseconds since 1970: its files get this modification time, and no other rewind
	// has the same staged names. It is 0 in the records of older servers.
	Begun int64 `json:"begun,omitempty"`
	// Placing says that Apply may have begun to move staged files to their final paths. From then on a file with a staged
	// name may be somebody else's.
	Placing bool `json:"placing,omitempty"`
}

// Write writes the record durably, with the staged paths. The caller calls it before anything is staged.
func (r Record) Write(dir string, staged []string) error {
	for _, p := range staged {
		r.Staged = append(r.Staged, []byte(p)) // as bytes: a path need not be valid UTF-8
	}
	return r.write(dir)
}

// Editor returns e with the time and the tag of the rewind. So every server that continues the rewind uses the same
// names and times.
func (r Record) Editor(e Editor) *Editor {
	e.Tag = string(r.Kept + r.To)
	if r.Begun != 0 {
		e.Now, e.Tag = time.Unix(0, r.Begun), fmt.Sprintf("%s\x00%d", e.Tag, r.Begun)
	}
	return &e
}

// Stage writes the record, stages the plan's files, and then returns the conflicts that Editor.Check finds. After an
// error the caller calls Unstage.
func (r Record) Stage(ctx context.Context, dir string, e *Editor, p Plan) (conflicts []string, err error) {
	if err := r.Write(dir, e.Staged(p)); err != nil {
		return nil, err
	}
	if err := e.Stage(ctx, p); err != nil {
		return nil, err
	}
	return e.Check(ctx, p)
}

// Apply first writes durably into the record that files are now moved to their final paths (Placing), and then carries
// out the plan.
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
		return holdfast.Errorf(holdfast.KindUnavailable, "session.rewind", "the record of a rewind cannot be written: %w", err).WithHint("free space on the disk of the data directory")
	}
	return nil
}

// Staged reports whether a directory has a record, or may have one because an error hides that.
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

// Unstage removes the staged files of a rewind that is given up, and then its record from dir. If the tree is gone or
// another directory is in its place, the record stays, because the tree may come back with the staged files. If the
// record says Placing, Unstage removes nothing from the tree: Apply or Settle has removed the rewind's own files, and
// the rest is somebody else's. Unstage may be repeated.
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
		return holdfast.Errorf(holdfast.KindUnavailable, "session.rewind", "the record of a rewind cannot be removed: %w", err)
	}
	return nil
}

// Abandon ends a rewind as Unstage does, also if it may have been interrupted while staged files were moved to their
// final paths. The function plan returns the rewind's Editor and plan; if it fails, entries with staged names stay,
// because they may be somebody else's.
func Abandon(ctx context.Context, dir string, tree Tree, plan func(Record) (*Editor, Plan, error)) error {
	if r, err := ReadRecord(dir); err == nil && r.Placing {
		if e, p, err := plan(r); err == nil {
			_, _ = e.Settle(ctx, p)
		}
	}
	return Unstage(dir, tree)
}
