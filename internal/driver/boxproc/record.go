package boxproc

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-run/holdfast"
)

// Record is what a driver must know about a box after a restart of the server.
type Record struct {
	Box holdfast.BoxID `json:"box"`
	// Owner is the owner id of the data directory to which the box belongs.
	Owner string `json:"owner"`
	// PID, Start and Kernel identify one process for ever: its id, its start time in clock ticks
	// since the boot, and the kernel's boot id. PID 0 means that no process runs.
	PID    int    `json:"pid,omitempty"`
	Start  uint64 `json:"start,omitempty"`
	Kernel string `json:"kernel,omitempty"`
	// StartedAt is the wall-clock time of the start.
	StartedAt time.Time `json:"started_at"`
	// Spec is the hash of the spec that the box was started with.
	Spec string `json:"spec,omitempty"`
	// Missing lists limits and protections that are not in force, with reasons.
	Missing []string `json:"missing,omitempty"`
	// Extra holds values that only the driver uses, such as cgroup paths.
	Extra map[string]string `json:"extra,omitempty"`
}

// Key returns a short file name for a box: 16 hex digits.
func Key(box holdfast.BoxID) string {
	sum := sha256.Sum256([]byte(box))
	return hex.EncodeToString(sum[:8])
}

// Inspect reads the records of a driver's directory, which a server may be using, and changes
// nothing. It returns the records of all owners, and the paths of record files (*.json) that cannot be
// read or hold no valid record. It ignores files that are empty or all zeros, as a power cut leaves them. A missing
// directory has no records.
func Inspect(path string) (records []Record, broken []string, err error) {
	names, err := fs.Glob(os.DirFS(path), "*.json")
	if err != nil {
		return nil, nil, holdfast.Errorf(holdfast.KindInvalid, "boxproc.inspect", "cannot list the records of boxes in %s: %w", holdfast.Quote(path), err)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(path, name))
		var r Record
		switch {
		case errors.Is(err, fs.ErrNotExist): // the record was removed after the directory was listed
		case err == nil && len(bytes.Trim(b, "\x00")) == 0:
		case err != nil || json.Unmarshal(b, &r) != nil || Key(r.Box)+".json" != name:
			broken = append(broken, filepath.Join(path, name))
		default:
			records = append(records, r)
		}
	}
	return records, broken, nil
}
