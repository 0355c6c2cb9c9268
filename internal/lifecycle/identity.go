package lifecycle

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// identityFile identifies a data directory within its file system.
const identityFile = "identity"

// Identity distinguishes a data directory from each copy of it (I-36, HZ-20).
type Identity struct {
	// Owner is a random id of 16 hexadecimal digits. It is part of the names of the server's
	// resources outside the directory and of the records of its boxes.
	Owner string `json:"owner"`
	// Inode identifies the file that the identity was written to. If the same inode has another path
	// or device, the directory was moved; another inode means a copy.
	Inode inode `json:"inode"`
	// Copy is true if the directory is a copy or was restored, and the copy has not been accepted.
	Copy bool `json:"-"`
	// Made is true if this call created the identity.
	Made bool `json:"-"`
}

// inode describes a file by properties that stay the same when its directory is moved or the
// machine restarts, but differ in any copy.
type inode struct {
	Number uint64 `json:"number"`
	// Birth is the inode's creation time in nanoseconds, which distinguishes reused inode numbers; 0
	// if the file system does not record it.
	Birth int64 `json:"birth,omitempty"`
	// System is the file system's own id; empty if the file system has only a device number.
	System string `json:"system,omitempty"`
}

// is reports whether two descriptions are of the same inode. Fields that are missing in one of them
// are not compared.
func (i inode) is(other inode) bool {
	return i.Number == other.Number &&
		(i.Birth == other.Birth || i.Birth == 0 || other.Birth == 0) &&
		(i.System == other.System || i.System == "" || other.System == "")
}

// OpenIdentity reads the identity of a data directory, or creates one if it is missing. The caller
// holds the directory's lock. With accept, a copy gets a new identity and becomes a server of its
// own.
func OpenIdentity(data string, random io.Reader, accept bool) (Identity, error) {
	const op = "identity"
	path := filepath.Join(data, identityFile)
	id, err := readIdentity(path)
	switch {
	case errors.Is(err, errTorn):
		// The server never leaves an incomplete identity file. If the directory has no box records,
		// the identity counts as missing; if it has some, the directory is an incomplete copy.
		if id.Copy = recorded(data) && !accept; id.Copy {
			return id, nil
		}
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return id, holdfast.Errorf(holdfast.KindUnavailable, op, "the identity file of the data directory cannot be read: %w", err).
			WithHint("the server's user must own %s", path)
	case !id.Copy || !accept:
		return id, nil
	}
	if id, err = makeIdentity(path, random, inodeOf); err != nil {
		return id, holdfast.Errorf(holdfast.KindUnavailable, op, "the identity file %s cannot be written: %w", holdfast.Quote(path), err).
			WithHint("make %s writable for the server's user", data)
	}
	return id, nil
}

// LookAtIdentity reads the identity of a data directory without creating one. It fails with
// not_found if the file is missing, and with internal if the file has no valid identity.
func LookAtIdentity(data string) (Identity, error) {
	const op = "identity"
	path := filepath.Join(data, identityFile)
	id, err := readIdentity(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return id, holdfast.Errorf(holdfast.KindNotFound, op, "the identity file %s of the data directory is missing", holdfast.Quote(path)).
			WithHint("put the identity file back from a backup; without it the next start of the server takes a new identity")
	case errors.Is(err, errTorn):
		return id, holdfast.Errorf(holdfast.KindInternal, op, "the file %s has no valid identity of a data directory", holdfast.Quote(path)).
			WithHint("holdfast serve --accept-copy --data %s", data)
	case err != nil:
		return id, holdfast.Errorf(holdfast.KindUnavailable, op, "the identity file of the data directory cannot be read: %w", err).WithHint("the server's user must own %s", path)
	}
	return id, nil
}

// MarkRestored writes a new identity into a restored data directory, by which the directory counts as a
// copy, also if the original is gone.
func MarkRestored(data string, random io.Reader) error {
	// Name an inode number that no file has, so that the directory counts as a copy.
	_, err := makeIdentity(filepath.Join(data, identityFile), random, func(*os.File) (inode, error) {
		return inode{Number: math.MaxUint64}, nil
	})
	return err
}

var errTorn = errors.New("the identity file has no valid content")

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

// makeIdentity writes a new identity that names an inode.
func makeIdentity(path string, random io.Reader, of func(*os.File) (inode, error)) (Identity, error) {
	id := Identity{Made: true}
	var raw [8]byte
	if _, err := io.ReadFull(random, raw[:]); err != nil {
		return id, err
	}
	id.Owner = hex.EncodeToString(raw[:])
	return id, durable.Replace(path, func(f *os.File) (err error) {
		if id.Inode, err = of(f); err != nil {
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

// recorded reports whether the data directory has records of boxes.
func recorded(data string) bool {
	// The pattern is a constant, so it is well formed.
	names, _ := fs.Glob(os.DirFS(data), "run/*/*.json")
	return len(names) > 0
}
