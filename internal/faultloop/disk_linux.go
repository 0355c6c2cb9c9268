package faultloop

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

const (
	stopSignal = syscall.SIGSTOP
	contSignal = syscall.SIGCONT
	killSignal = syscall.SIGKILL
)

// diskSize is the size of the image file, which is sparse.
const diskSize = 512 << 20

// wrapper is a script that starts a server in the simulated machine's current boot: in a mount
// namespace with another boot id. The file mounted on /proc would prevent boxes from mounting a
// /proc of their own; a second /proc without such a mount makes that possible.
const wrapper = `#!/bin/sh
exec unshare -m sh -c 'mount --make-rprivate / && mount -t proc proc "$0/proc" &&
mount --bind "$0/boot_id" /proc/sys/kernel/random/boot_id && exec "$@"' %[1]q %[2]q "$@"
`

// disk is an ext4 file system on an image file, mounted, together with the simulated machine that
// has it.
type disk struct {
	dir string
	// n is the number of power cuts so far.
	n int
}

func newDisk(dir string) (*disk, error) {
	d := &disk{dir: dir}
	if os.Geteuid() != 0 {
		return nil, holdfast.Errorf(holdfast.KindDenied, "torture", "power cuts and full disks need a disk image, which only root can mount").
			WithHint("sudo holdfast torture --faults 30, or kills alone: holdfast torture")
	}
	f, err := os.Create(d.image())
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(diskSize), f.Close()); err != nil {
		return nil, err
	}
	for _, name := range []string{"disk", "proc"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	if err := run("mkfs.ext4", "-q", "-F", "-m", "0", "-E", "lazy_itable_init=0,lazy_journal_init=0", d.image()); err != nil {
		return nil, err
	}
	return d, d.boot(nil)
}

func (d *disk) image() string   { return filepath.Join(d.dir, fmt.Sprintf("disk-%d.img", d.n)) }
func (d *disk) mount() string   { return filepath.Join(d.dir, "disk") }
func (d *disk) data() string    { return filepath.Join(d.dir, "disk", "data") }
func (d *disk) ballast() string { return filepath.Join(d.dir, "disk", "ballast") }

// program writes a script that starts the binary in the machine's current boot, and returns the script's path.
func (d *disk) program(binary string) string {
	path := filepath.Join(d.dir, "serve.sh")
	text := fmt.Sprintf(wrapper, d.dir, binary)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		return binary
	}
	return path
}

// boot mounts the disk in a machine with a new boot id. It also removes the cgroups of the boxes,
// found by their names, because a real power cut would have removed them.
func (d *disk) boot(names []string) error {
	var id [16]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
	if err := os.WriteFile(filepath.Join(d.dir, "boot_id"), []byte(text), 0o644); err != nil {
		return err
	}
	if len(names) > 0 {
		removeCgroups(names)
	}
	return run("mount", "-o", "loop,noauto_da_alloc", d.image(), d.mount())
}

// cut simulates a power cut: it stops the server and every process in a box, copies the device's
// content, and kills them all.
func (d *disk) cut(server int) error {
	var st unix.Stat_t
	if err := unix.Stat(d.mount(), &st); err != nil {
		return err
	}
	dev := deviceOf(&st)
	var stopped []int
	for {
		more := slices.DeleteFunc(users(dev, server), func(pid int) bool { return slices.Contains(stopped, pid) })
		if len(more) == 0 {
			break
		}
		for _, pid := range more {
			if err := signal(pid, stopSignal); err != nil {
				return err
			}
		}
		stopped = append(stopped, more...)
	}
	was := d.image()
	d.n++
	if err := copyQuiet(d.image(), was, dev); err != nil {
		return err
	}
	for _, pid := range stopped {
		if err := signal(pid, killSignal); err != nil {
			return err
		}
	}
	if !soon(func() bool { return len(users(dev, server)) == 0 }) {
		return fmt.Errorf("processes %v of the server or its boxes do not end before the power cut", users(dev, server))
	}
	return errors.Join(d.unmount(), os.Remove(was))
}

// deviceOf returns the device of a file as major:minor, as in /proc and /sys.
func deviceOf(st *unix.Stat_t) string {
	return fmt.Sprintf("%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev))
}

// users returns the pids of the server, its descendants, and the processes in boxes: those that
// have directories of the disk mounted. A mount of the whole disk is ignored, because every new
// mount namespace has a copy of it.
func users(dev string, server int) []int {
	parents := map[int]int{}
	var boxes []int
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range entries {
		pid, err := strconv.Atoi(filepath.Base(p))
		if err != nil {
			continue
		}
		if stat, err := os.ReadFile(p + "/stat"); err == nil {
			// The name may contain parentheses: state and parent follow the last one.
			f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
			if len(f) < 2 || f[0] == "Z" || f[0] == "X" {
				continue
			}
			parents[pid], _ = strconv.Atoi(f[1])
		}
		if mounts, _ := os.ReadFile(p + "/mountinfo"); bytes.Contains(mounts, []byte(" "+dev+" /data/")) {
			boxes = append(boxes, pid)
		}
	}
	out := boxes
	for pid := range parents {
		for at := pid; at > 1; at = parents[at] {
			if at == server && !slices.Contains(out, pid) {
				out = append(out, pid)
			}
		}
	}
	return out
}

// copyQuiet copies an image at a moment when its device is not written to.
func copyQuiet(to, from, dev string) error {
	var err error
	if !soon(func() bool {
		before, ok := writes(dev)
		if !ok {
			return false
		}
		if err = copySparse(to, from); err != nil {
			return true
		}
		after, ok := writes(dev)
		return ok && before == after
	}) {
		return fmt.Errorf("the device %s could not be copied, because it is written to all the time", dev)
	}
	return err
}

// writes returns the number of writes to the device so far; false while a write is in progress.
func writes(dev string) (string, bool) {
	b, err := os.ReadFile("/sys/dev/block/" + dev + "/stat")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 9 {
		return "", false
	}
	return f[4] + " " + f[6], f[8] == "0"
}

// copySparse copies a file without the blocks of its holes.
func copySparse(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	err = out.Truncate(diskSize)
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

// fill fills the disk completely, including space that is freed bit by bit meanwhile.
func (d *disk) fill() error {
	f, err := os.Create(d.ballast())
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(0)
	for step := int64(64 << 20); step >= 4096; {
		switch err := unix.Fallocate(int(f.Fd()), 0, at, step); {
		case err == nil:
			at += step
		case errors.Is(err, unix.ENOSPC):
			step /= 2
		case !errors.Is(err, unix.EINTR):
			return &os.PathError{Op: "fallocate", Path: d.ballast(), Err: err}
		}
	}
	return nil
}

// removeCgroups removes the cgroups of boxes, innermost first.
func removeCgroups(names []string) {
	var dirs []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(p string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && slices.ContainsFunc(names, func(n string) bool { return strings.Contains(p, n) }) {
			dirs = append(dirs, p)
		}
		return nil
	})
	for _, p := range slices.Backward(dirs) {
		// A controller that is mounted twice appears twice; the second removal fails.
		_ = os.Remove(p)
	}
}

func (d *disk) unmount() error {
	var err error
	soon(func() bool { err = unix.Unmount(d.mount(), 0); return !errors.Is(err, unix.EBUSY) })
	if err != nil {
		return &os.PathError{Op: "unmount", Path: d.mount(), Err: err}
	}
	return nil
}

// close unmounts the disk. Its image is removed with the directory.
func (d *disk) close() error { return d.unmount() }

// signal sends a signal to a process. It returns no error if the process has ended.
func signal(pid int, s syscall.Signal) error {
	if err := syscall.Kill(pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}

// soon reports whether cond holds within half a minute.
func soon(cond func() bool) bool {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); !cond(); <-tick.C {
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "torture", "%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
