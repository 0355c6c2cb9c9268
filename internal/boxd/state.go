package boxd

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Names in the state directory. Names that begin with a dot are leftovers of a boxd that was
// killed, and are removed at start. A file whose content is invalid is an error; boxd never
// guesses.
const (
	tokenFile    = wire.TokenFile
	outcomesFile = "outcomes"
	tempPrefix   = ".tmp-"
)

// stateDir is the directory on disk that outlives a boxd.
type stateDir struct{ path string }

func openState(path string) (*stateDir, error) {
	if !filepath.IsAbs(path) {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd state", "state directory %s is not an absolute path", holdfast.Quote(path))
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd state", "cannot read the state directory of boxd: %w", err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			if err := os.Remove(filepath.Join(path, e.Name())); err != nil {
				return nil, holdfast.Errorf(holdfast.KindInvalid, "boxd state", "cannot remove a temporary file in the state directory of boxd: %w", err)
			}
		}
	}
	return &stateDir{path: path}, nil
}

func (d *stateDir) corrupt(name, why string) error {
	return holdfast.Errorf(holdfast.KindInvalid, "boxd state", "the state file %s is not valid: %s", holdfast.Quote(filepath.Join(d.path, name)), why).
		WithHint("move the file away to start boxd without what it held: the outcomes of earlier calls, or the fencing token")
}

type tokenState struct {
	Token uint64 `json:"token"`
}

// loadToken returns the highest token seen in any life of the box; 0 before the first hello.
func (d *stateDir) loadToken() (uint64, error) {
	b, err := os.ReadFile(filepath.Join(d.path, tokenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, holdfast.Errorf(holdfast.KindInvalid, "boxd state", "cannot read the file of the fencing token: %w", err)
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return 0, nil // a power cut left an empty file: it was not flushed
	}
	var t tokenState
	if err := decodeStrict(b, &t); err != nil || t.Token == 0 {
		return 0, d.corrupt(tokenFile, "it holds no fencing token: "+holdfast.Quote(string(b)))
	}
	return t.Token, nil
}

// saveToken stores the token for the next boxd on this directory. It does not flush it to the
// disk: the token fences servers of this machine, and a power cut, which loses the page cache,
// ends those and the box too. The token is one write in place, never shorter than the last, so
// that a kill of boxd leaves the old or the new one. Two flushes and a rename would take half of
// the time in which a ready box answers.
func (d *stateDir) saveToken(token uint64) error {
	b, err := json.Marshal(tokenState{Token: token})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(d.path, tokenFile), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Close())
}

// unlinked makes a file without a name, which disappears when it is closed, even if boxd is killed.
func (d *stateDir) unlinked() (*os.File, error) {
	f, err := os.CreateTemp(d.path, tempPrefix+"*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
