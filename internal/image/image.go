// Package image makes ext4 file systems in files and mounts them, which takes root, Linux and a free
// loop device.
//
// bench and torture use it; it imports only the vocabulary. Invariant: after Unmount nothing of the file system
// is mounted here, and its file may be removed.
package image

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
)

// patience is how long Unmount waits for the last user of a file system.
const patience = 30 * time.Second

// Make makes an ext4 file system of size bytes in a new, sparse file.
func Make(file string, size int64) error {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	// With lazy initialization the kernel would write to the device for minutes by itself.
	return run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", file)
}

// Reserve gives the file of a file system all of its blocks, so that writes do not have to find them.
func Reserve(file string, size int64) error {
	return run("fallocate", "-l", strconv.FormatInt(size, 10), file)
}

// Mount mounts the file system of a file on an existing directory. options are more options of mount.
func Mount(file, dir string, options ...string) error {
	return run("mount", "-o", strings.Join(append([]string{"loop"}, options...), ","), file, dir)
}

// Unmount unmounts a directory as soon as nothing uses it. It gives up after patience.
func Unmount(dir string) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patience); ; <-tick.C {
		if err := run("umount", dir); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "disk image", "the command %s %s failed: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
