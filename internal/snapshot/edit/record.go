package edit

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

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

// Place notes durably, before Apply, that files get in their places now.
func (r Record) Place(dir string) error {
	if r.Placing {
		return nil
	}
	r.Placing = true
	return r.write(dir)
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
