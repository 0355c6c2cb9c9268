// Package powercut gives tests a disk whose power can be cut: an ext4 file system on a loop
// device, of which it copies the bytes on the device at one moment.
//
// Only tests import it. Invariant: a copy has everything that was written to the device before
// the cut, and nothing that was only in the page cache; every mount is unmounted when the test
// ends.
package powercut

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast/internal/testkit"
)

// MinSize is enough for a server's data directory with its reserve and a few sessions, in bytes.
const MinSize = 256 << 20

// patience limits each wait: for a moment without writes to the device, and for an unmount.
const patience = 30 * time.Second

// Disk is a mounted file system on an image file.
type Disk struct {
	image, dir string
}

// New makes an ext4 file system of size bytes and mounts it until the test ends. If that is
// impossible, as without root, it skips the test with a loud message.
func New(t testing.TB, size int64) *Disk {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED LOUDLY: only root can mount a disk image")
	}
	d := &Disk{image: filepath.Join(testkit.BaseDir(t), "disk.img")}
	f, err := os.Create(d.image)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		t.Fatal(err)
	}
	// Disable lazy initialisation, with which the kernel would write to the device for minutes by
	// itself.
	err = run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.image)
	if err == nil {
		err = d.mount(t)
	}
	if err != nil {
		t.Skipf("SKIPPED LOUDLY: %v", err)
	}
	return d
}

// Dir returns the directory on which the file system is mounted. Every user may enter it.
func (d *Disk) Dir() string { return d.dir }

// Cut copies the content of the device at this moment, mounts the copy elsewhere and returns it;
// the disk itself does not change. The caller must stop or kill the writers before, because Cut
// waits for a moment in which the device is not written to.
func (d *Disk) Cut(t testing.TB) *Disk {
	t.Helper()
	after := &Disk{image: filepath.Join(testkit.BaseDir(t), "disk.img")}
	if !soon(func() bool {
		before := d.writes(t)
		if err := copySparse(after.image, d.image); err != nil {
			t.Fatal(err)
		}
		return d.writes(t) == before
	}) {
		t.Fatalf("powercut: %s was written to all the time: stop its writers first", d.dir)
	}
	if err := after.mount(t); err != nil {
		t.Fatal(err)
	}
	return after
}

// mount mounts the image with noauto_da_alloc, so that only fsync makes data durable: by default
// ext4 would also flush a file that is renamed over another.
func (d *Disk) mount(t testing.TB) error {
	t.Helper()
	d.dir = filepath.Join(filepath.Dir(d.image), "disk")
	if err := os.Mkdir(d.dir, 0o755); err != nil {
		return err
	}
	if err := run("mount", "-o", "loop,noauto_da_alloc", d.image, d.dir); err != nil {
		return err
	}
	t.Cleanup(func() { unmount(t, d.dir) })
	return nil
}

// unmount waits until the file system is unused and unmounts it. If that fails or takes longer than patience, the
// test fails, and unmount detaches the file system, so that the kernel unmounts it after its last use.
func unmount(t testing.TB, dir string) {
	var err error
	if !soon(func() bool { err = unix.Unmount(dir, 0); return !errors.Is(err, unix.EBUSY) }) || err != nil {
		t.Errorf("powercut: unmount %s: %v", dir, errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH)))
	}
}

// soon reports whether cond becomes true within patience.
func soon(cond func() bool) bool {
	end := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond() {
		if time.Now().After(end) {
			return false
		}
		<-tick.C
	}
	return true
}

// writes waits until no write to the device is in progress, and returns the number of writes so far.
func (d *Disk) writes(t testing.TB) (done string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(d.dir, &st); err != nil {
		t.Fatal(err)
	}
	path := fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(st.Dev), unix.Minor(st.Dev))
	if !soon(func() bool {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		// Fields: reads, merged, sectors, ms; writes, merged, sectors, ms; in flight.
		f := strings.Fields(string(b))
		if len(f) < 9 {
			t.Fatalf("powercut: %s holds %q", path, b)
		}
		done = f[4] + " " + f[6]
		return f[8] == "0"
	}) {
		t.Fatalf("powercut: the writes of %s never end", path)
	}
	return done
}

// copySparse copies a file without the blocks of its holes.
func copySparse(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	err = out.Truncate(info.Size())
	for at := int64(0); err == nil; {
		var end int64
		if at, err = unix.Seek(int(in.Fd()), at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			err = nil
			break
		}
		if err == nil {
			end, err = unix.Seek(int(in.Fd()), at, unix.SEEK_HOLE)
		}
		if err == nil {
			_, err = io.Copy(io.NewOffsetWriter(out, at), io.NewSectionReader(in, at, end-at))
		}
		at = end
	}
	return errors.Join(err, out.Close())
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("the command %s %s failed: %w: %s", name, strings.Join(args, " "), err, out)
	}
	return nil
}
