package torture

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/image"
)

// diskSize is the size of the image file in bytes. The file is sparse.
const diskSize = 512 << 20

// filler is a script that makes the file $0 take all free space of its disk, in steps from 64 MiB down
// to 4 KiB. The small steps also take the space that other processes free meanwhile.
const filler = `at=0 step=65536
while [ $step -ge 4 ]; do
	if fallocate -o ${at}KiB -l ${step}KiB "$0" 2>/dev/null; then at=$((at + step)); else step=$((step / 2)); fi
done`

// wrapper is a script that starts a server in the simulated machine's current boot: in a mount
// namespace with another boot id. The file mounted on /proc would prevent boxes from mounting a
// /proc of their own; a second /proc without such a mount makes that possible.
const wrapper = `#!/bin/sh
exec unshare -m sh -c 'mount --make-rprivate / && mount -t proc proc "$0/proc" &&
mount --bind "$0/boot_id" /proc/sys/kernel/random/boot_id && exec "$@"' %[1]q %[2]q "$@"
`

// disk is a mounted ext4 file system on an image file, together with the simulated machine that uses it.
type disk struct {
	dir string
	// n is the number of power cuts so far.
	n int
}

func newDisk(dir string) (*disk, error) {
	d := &disk{dir: dir}
	if runtime.GOOS != "linux" || os.Geteuid() != 0 {
		return nil, holdfast.Errorf(holdfast.KindDenied, "torture", "power cuts and full disks need a disk image, which only root can mount, on Linux").
			WithHint("sudo holdfast torture --faults 30; or test with kills alone: holdfast torture")
	}
	if err := errors.Join(image.Make(d.image(), diskSize), os.Chmod(dir, 0o755)); err != nil {
		return nil, err
	}
	for _, name := range []string{"disk", "proc"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return nil, err
		}
	}
	return d, d.boot(nil)
}

func (d *disk) image() string   { return filepath.Join(d.dir, fmt.Sprintf("disk-%d.img", d.n)) }
func (d *disk) mount() string   { return filepath.Join(d.dir, "disk") }
func (d *disk) data() string    { return filepath.Join(d.dir, "disk", "data") }
func (d *disk) ballast() string { return filepath.Join(d.dir, "disk", "ballast") }

// program writes a script that starts the binary in the machine's current boot, and returns the script's path.
func (d *disk) program(binary string) (string, error) {
	path := filepath.Join(d.dir, "serve.sh")
	text := fmt.Sprintf(wrapper, d.dir, binary)
	return path, os.WriteFile(path, []byte(text), 0o755)
}

// boot mounts the disk in a machine that has started with a new boot id or, every second time, in one that lost only its
// disk and so keeps its boot id. It also removes the cgroups of the boxes, which it finds by their names, because a real
// power cut would have removed them.
func (d *disk) boot(names []string) error {
	if d.n%2 == 0 {
		var id [16]byte
		if _, err := rand.Read(id[:]); err != nil {
			return err
		}
		text := fmt.Sprintf("%x-%x-%x-%x-%x\n", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
		if err := os.WriteFile(filepath.Join(d.dir, "boot_id"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	if len(names) > 0 {
		removeCgroups(names)
	}
	return image.Mount(d.image(), d.mount(), "noauto_da_alloc")
}

// cut simulates a power cut: it stops the server and every process in a box, copies the disk image
// as the device has written it, kills the stopped processes, and unmounts and removes the old image.
func (d *disk) cut(server int) error {
	dev, err := d.device()
	if err != nil {
		return err
	}
	var stopped []int
	for {
		more := slices.DeleteFunc(users(dev, server), func(pid int) bool { return slices.Contains(stopped, pid) })
		if len(more) == 0 {
			break
		}
		for _, pid := range more {
			if err := signal(pid, syscall.SIGSTOP); err != nil {
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
		if err := signal(pid, syscall.SIGKILL); err != nil {
			return err
		}
	}
	if !soon(func() bool { return len(users(dev, server)) == 0 }) {
		return fmt.Errorf("the processes %v of the server or its boxes did not end in time for the simulated power cut", users(dev, server))
	}
	return errors.Join(image.Unmount(d.mount()), os.Remove(was))
}

// device returns the device of the disk as major:minor, as in /proc and /sys.
func (d *disk) device() (string, error) {
	dev, err := exec.Command("mountpoint", "-d", d.mount()).Output()
	return strings.TrimSpace(string(dev)), err
}

// users returns the pids of the server, of its descendants, and of the processes in boxes. A process
// is in a box if it has a directory below /data of the disk mounted. A mount of the whole disk does
// not count, because every new mount namespace has a copy of it.
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
			// In /proc/PID/stat, the process name may contain parentheses: state and parent follow the last one.
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
		if err = run("cp", "--sparse=always", from, to); err != nil {
			return true
		}
		after, ok := writes(dev)
		return ok && before == after
	}) {
		return fmt.Errorf("the device %s could not be copied, because it is written to all the time", dev)
	}
	return err
}

// writes returns how many writes the device has completed, and their sectors; false while a read or write is running.
func writes(dev string) (string, bool) {
	b, err := os.ReadFile("/sys/dev/block/" + dev + "/stat")
	f := strings.Fields(string(b))
	if err != nil || len(f) < 9 {
		return "", false
	}
	return f[4] + " " + f[6], f[8] == "0"
}

// fill makes the file ballast take all free space of the disk.
func (d *disk) fill() error { return run("sh", "-c", filler, d.ballast()) }

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
		return holdfast.Errorf(holdfast.KindUnavailable, "torture", "the command %s %s failed: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
