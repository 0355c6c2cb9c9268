package boxproc

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/durable"
)

// Dir is the directory of one driver's records and sockets. Its methods may be called
// concurrently for different boxes; the driver must serialise calls for one box (see Locks).
type Dir struct {
	path  string
	owner string
}

// Open opens the directory and makes it (0700) if it is missing. owner is the owner id of the
// data directory. A record with another owner id came with a copy of the directory, or was
// written before the directory got its id. If the process of its box uses this directory, Open
// adopts the box; otherwise it removes the record, but touches nothing else of the box.
func Open(path, owner string) (*Dir, error) {
	const op = "boxproc.open"
	if raw, err := hex.DecodeString(owner); err != nil || len(raw) != 8 {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "%s is not an owner id of a data directory", holdfast.Quote(owner)).
			WithHint("give the 16 hexadecimal digits of the data directory's identity")
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindInvalid, op, "cannot make the path of the driver's directory absolute: %w", err)
	}
	if err := durable.MkdirAll(path, 0o700); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the driver's directory: %w", err)
	}
	if err := os.Chmod(path, 0o700); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the driver's directory private to the server's user (chmod 700): %w", err).
			WithHint("the server's user must own the directory %s", path)
	}
	d := &Dir{path: path, owner: owner}
	return d, d.takeOver()
}

// takeOver looks at the records with another owner id. If their box uses this directory, it stores this owner in
// them; the others it removes.
func (d *Dir) takeOver() error {
	records, err := d.all()
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Owner == d.owner {
			continue
		}
		alive, err := d.Alive(r)
		switch {
		case err != nil:
		case alive:
			err = d.Write(r)
		default:
			err = d.Delete(r.Box)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Path returns the path of the directory.
func (d *Dir) Path() string { return d.path }

// Owner returns the directory's owner id: 16 hex digits that never change. Drivers put it in the
// names of things outside the directory (cgroups).
func (d *Dir) Owner() string { return d.owner }

// Socket returns the path of the box's socket. The path may be longer than the kernel accepts:
// ListenAt and Dial handle that.
func (d *Dir) Socket(box holdfast.BoxID) string { return d.file(box, ".sock") }

// Log returns the path of the file with boxd's stdout and stderr.
func (d *Dir) Log(box holdfast.BoxID) string { return d.file(box, ".log") }

// Write stores a record and replaces the former one. It does not fsync: a record describes
// processes, and whatever loses the page cache ends those too.
func (d *Dir) Write(r Record) error {
	return d.write(r, d.temp, os.Rename)
}

// write stores a record in the file that temp makes and puts it in place with rename.
func (d *Dir) write(r Record, temp func(content []byte) (string, error), rename func(from, to string) error) error {
	r.Owner = d.owner
	b, err := json.Marshal(r)
	if err != nil {
		return holdfast.Errorf(holdfast.KindInternal, "boxproc.write", "cannot encode the record of a box: %w", err)
	}
	tmp, err := temp(b)
	if err == nil {
		err = rename(tmp, d.file(r.Box, ".json"))
		if err != nil {
			_ = os.Remove(tmp)
		}
	}
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.write", "cannot write the record of box %s: %w", holdfast.Quote(string(r.Box)), err)
	}
	return nil
}

// Read returns the record of a box; not_found if the box has none, busy if the server has no file descriptors left,
// otherwise internal if the record is unreadable or has another owner.
func (d *Dir) Read(box holdfast.BoxID) (Record, error) {
	r, err := d.read(d.file(box, ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, holdfast.Errorf(holdfast.KindNotFound, "boxproc.read", "there is no box %s", holdfast.Quote(string(box))).
			WithHint("list the boxes with: holdfast containers list")
	}
	if err != nil {
		kind := holdfast.KindInternal
		if failure(err) == holdfast.KindBusy {
			kind = holdfast.KindBusy
		}
		return Record{}, holdfast.Errorf(kind, "boxproc.read", "cannot read the record of box %s: %w", holdfast.Quote(string(box)), err)
	}
	return r, nil
}

// Delete removes the record, socket and log of a box. It may be called again.
func (d *Dir) Delete(box holdfast.BoxID) error {
	for _, ext := range []string{".sock", ".log", ".json"} {
		if err := os.Remove(d.file(box, ext)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.delete", "cannot remove a file of the box: %w", err)
		}
	}
	return nil
}

// Ended records that the box does not run, and removes its socket. It may be called again.
func (d *Dir) Ended(box holdfast.BoxID) error {
	if err := os.Remove(d.Socket(box)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return holdfast.Errorf(holdfast.KindUnavailable, "boxproc.ended", "cannot remove the socket of the box: %w", err)
	}
	r, err := d.Read(box)
	if holdfast.IsKind(err, holdfast.KindNotFound) || err == nil && r.PID == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	r.PID, r.Start, r.Kernel = 0, 0, ""
	// If the box was removed after its record was read, replace fails, so that the record does not come back.
	if err := d.write(r, d.temp, replace); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// List returns all readable records of this owner, sorted by box. It ignores unreadable records, but fails with busy
// if the server has no file descriptors left to read them.
func (d *Dir) List() ([]Record, error) {
	all, err := d.all()
	return slices.DeleteFunc(all, func(r Record) bool { return r.Owner != d.owner }), err
}

// all returns all readable records of any owner, sorted by box.
func (d *Dir) all() ([]Record, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.list", "cannot list the records of boxes: %w", err)
	}
	var out []Record
	for _, e := range entries {
		key, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok {
			continue
		}
		r, err := readRecord(filepath.Join(d.path, e.Name()))
		if err != nil && failure(err) == holdfast.KindBusy {
			return nil, holdfast.Errorf(holdfast.KindBusy, "boxproc.list", "cannot read the records of boxes: %w", err)
		}
		if err == nil && Key(r.Box) == key {
			out = append(out, r)
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Box < out[j].Box })
	return out, nil
}

// StrayAge is how old a file without a record must be before a running server treats it as a
// leftover: a younger one may belong to a start in progress.
const StrayAge = time.Hour

// Strays returns the files older than age that a killed server may have left in the directory:
// unfinished temporary files, and sockets and logs of boxes without a record.
func (d *Dir) Strays(age time.Duration) ([]string, error) {
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.sweep", "cannot list the driver's directory to find files left over from boxes: %w", err)
	}
	recorded := map[string]bool{}
	for _, e := range entries {
		if key, ok := strings.CutSuffix(e.Name(), ".json"); ok {
			recorded[key] = true
		}
	}
	var out []string
	for _, e := range entries {
		ext := filepath.Ext(e.Name())
		stray := (ext == ".sock" || ext == ".log") && !recorded[strings.TrimSuffix(e.Name(), ext)]
		if !stray && ext != ".tmp" {
			continue
		}
		if age > 0 {
			if info, err := e.Info(); err != nil || time.Since(info.ModTime()) < age {
				continue // the file is too young, or was removed after the directory was listed
			}
		}
		out = append(out, e.Name())
	}
	return out, nil
}

// Sweep removes the strays older than age and returns their names. When the directory is opened,
// before any box is started, age is 0.
func (d *Dir) Sweep(age time.Duration) ([]string, error) {
	names, err := d.Strays(age)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range names {
		if err := os.Remove(filepath.Join(d.path, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, holdfast.Errorf(holdfast.KindUnavailable, "boxproc.sweep", "cannot remove files left over from boxes: %w", err)
	}
	return names, nil
}

func (d *Dir) file(box holdfast.BoxID, ext string) string {
	return filepath.Join(d.path, Key(box)+ext)
}

func (d *Dir) read(path string) (Record, error) {
	r, err := readRecord(path)
	if err == nil && r.Owner != d.owner {
		return Record{}, holdfast.Errorf(holdfast.KindConflict, "boxproc.read", "the box's record belongs to another data directory, with owner id %s", holdfast.Quote(r.Owner))
	}
	return r, err
}

func readRecord(path string) (Record, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Record{}, err
	}
	var r Record
	return r, json.Unmarshal(b, &r)
}

func (d *Dir) temp(content []byte) (string, error) {
	f, err := os.CreateTemp(d.path, "*.tmp")
	if err != nil {
		return "", err
	}
	_, err = f.Write(content)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return "", err
	}
	return f.Name(), nil
}

// replace moves the file from to the path to, where a file must exist already; otherwise it
// returns fs.ErrNotExist.
func replace(from, to string) error {
	if err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_EXCHANGE); err != nil {
		return err
	}
	return os.Remove(from)
}
