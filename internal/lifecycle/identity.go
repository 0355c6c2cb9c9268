package lifecycle

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// identityFile identifies a data directory within its file system.
const identityFile = "identity"

// Identity tells a data directory from each copy of it (I-36, HZ-20).
type Identity struct {
	// Owner is in the names of the server's resources outside the directory and in the
	// records of its boxes: 16 hexadecimal digits.
	Owner string `json:"owner"`
	// Inode is the file that the identity was written to. If the same inode has another
	// path or device, the directory has moved; another inode means a copy.
	Inode inode `json:"inode"`
	// Copy says that the directory was copied or restored, and that nobody has accepted
	// it.
	Copy bool `json:"-"`
	// Made says that this call made the identity.
	Made bool `json:"-"`
}

// inode holds what a file keeps when its directory is moved or the machine restarts,
// and what differs in any copy.
type inode struct {
	Number uint64 `json:"number"`
	// Birth is the inode's birth in nanoseconds: a reused inode number has another birth.
	// 0 if the file system does not know it.
	Birth int64 `json:"birth,omitempty"`
	// System is the file system's own id; empty if that would be a device number.
	System string `json:"system,omitempty"`
}

// is reports whether two descriptions are of one inode. Fields that one of them lacks
// are not compared.
func (i inode) is(other inode) bool {
	return i.Number == other.Number &&
		(i.Birth == other.Birth || i.Birth == 0 || other.Birth == 0) &&
		(i.System == other.System || i.System == "" || other.System == "")
}

// OpenIdentity reads the identity of a data directory, or makes one if it is missing;
// the caller holds the directory's lock. With accept a copy becomes a server of its
// own.
func OpenIdentity(data string, random io.Reader, accept bool) (Identity, error) {
	const op = "identity"
	path := filepath.Join(data, identityFile)
	id, err := readIdentity(path)
	switch {
	case errors.Is(err, errTorn):
		// Our writes never leave a torn file. Without boxes it counts as missing; with boxes
		// it came from elsewhere, as an incomplete copy.
		if id.Copy = recorded(data) && !accept; id.Copy {
			return id, nil
		}
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return id, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err).
			WithHint("the server's user must own %s", path)
	case !id.Copy || !accept:
		return id, nil
	}
	if id, err = makeIdentity(path, random); err != nil {
		return id, holdfast.Errorf(holdfast.KindUnavailable, op, "%s cannot be written: %w", holdfast.Quote(path), err).
			WithHint("make %s writable for the server's user", data)
	}
	return id, nil
}

// LookAtIdentity reads the identity of a data directory and makes none: not_found without
// one, internal when the file holds none.
func LookAtIdentity(data string) (Identity, error) {
	const op = "identity"
	path := filepath.Join(data, identityFile)
	id, err := readIdentity(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return id, holdfast.Errorf(holdfast.KindNotFound, op, "%s is missing", holdfast.Quote(path)).
			WithHint("put it back from a backup; without it the next start takes a new one")
	case errors.Is(err, errTorn):
		return id, holdfast.Errorf(holdfast.KindInternal, op, "%s holds no identity", holdfast.Quote(path)).
			WithHint("holdfast serve --accept-copy --data %s", data)
	case err != nil:
		return id, holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err).WithHint("the server's user must own %s", path)
	}
	return id, nil
}

var errTorn = errors.New("it holds no identity")

func readIdentity(path string) (Identity, error) {
	var id Identity
	f, err := os.Open(path)
	if err != nil {
		return id, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 4<<10))
	if err != nil {
		return id, err
	}
	if json.Unmarshal(b, &id) != nil || !validOwner(id.Owner) || id.Inode.Number == 0 {
		return Identity{}, errTorn
	}
	now, err := inodeOf(f)
	if err != nil {
		return id, err
	}
	id.Copy = !id.Inode.is(now)
	return id, nil
}

// makeIdentity writes a new identity that names its own inode.
func makeIdentity(path string, random io.Reader) (Identity, error) {
	id := Identity{Made: true}
	var raw [8]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return id, err
	}
	id.Owner = hex.EncodeToString(raw[:])
	return id, durable.Replace(path, func(f *os.File) (err error) {
		if id.Inode, err = inodeOf(f); err != nil {
			return err
		}
		b, err := json.Marshal(id)
		if err == nil {
			_, err = f.Write(append(b, '\n'))
		}
		return err
	})
}

func validOwner(s string) bool {
	raw, err := hex.DecodeString(s)
	return err == nil && len(raw) == 8
}

// recorded reports whether records of boxes exist.
func recorded(data string) bool {
	// The pattern is a constant, so Glob cannot fail.
	names, _ := filepath.Glob(filepath.Join(data, "run", "*", "*.json"))
	return len(names) > 0
}
