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

// Names in the state directory. Files whose names begin with a dot are left from a boxd that was killed;
// openState removes them. A file with an invalid content is an error.
const (
	tokenFile    = wire.TokenFile
	outcomesFile = "outcomes"
	tempPrefix   = ".tmp-"
)

// stateDir is the directory of the box on disk in which one boxd leaves data for the next.
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

// loadToken returns the token that saveToken saved last, in this or a former life of the box; 0 if there is none.
func (d *stateDir) loadToken() (uint64, error) {
	b, err := os.ReadFile(filepath.Join(d.path, tokenFile))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, holdfast.Errorf(holdfast.KindInvalid, "boxd state", "cannot read the file of the fencing token: %w", err)
	}
	if len(bytes.Trim(b, "\x00")) == 0 {
		return 0, nil // a power cut has emptied the file, because saveToken does not flush it
	}
	var t tokenState
	if err := decodeStrict(b, &t); err != nil || t.Token == 0 {
		return 0, d.corrupt(tokenFile, "it holds no fencing token: "+holdfast.Quote(string(b)))
	}
	return t.Token, nil
}

// saveToken stores the token for the next boxd with this directory. It does not flush the file to disk, because a power
// cut also ends the box and the servers of this machine. It overwrites the file with one write. The new text is never
// shorter than the old one, because tokens only grow, so if boxd is killed, the file has the old or the new token.
// Flushes and a rename would take half of the time in which a ready box answers.
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

// unlinked makes a file without a name. It disappears when it is closed, also if boxd is killed.
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
