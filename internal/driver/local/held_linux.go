package local

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

var _ sandbox.Holder = (*Driver)(nil)

// mostHeld is how many descriptors, mappings and threads of a box one call of Held looks at: a box may have millions.
const mostHeld = 100_000

// Held implements sandbox.Holder. It reads the proc file system of the box, which shows only
// processes of the box: a pid that is reused there still belongs to the box, and an ordinary user
// owns the namespace of that proc file system.
func (d *Driver) Held(ctx context.Context, box holdfast.BoxID) (sandbox.DiskUsage, error) {
	r, err := d.Dir.Read(box)
	if err != nil {
		return sandbox.DiskUsage{}, err
	}
	proc, err := d.openProc(r)
	if err != nil {
		return sandbox.DiskUsage{}, err
	}
	defer unix.Close(proc)
	h := held{proc: proc, most: mostHeld, memory: map[uint64]bool{}, seen: map[file]bool{}}
	if err := h.memories(); err != nil {
		return sandbox.DiskUsage{}, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot measure the open files of box %s: %w", holdfast.Quote(string(box)), err)
	}
	h.processes(ctx)
	return h.DiskUsage, ctx.Err()
}

// openProc opens the /proc directory of a running box.
func (d *Driver) openProc(r boxproc.Record) (int, error) {
	fail := func(err error) (int, error) {
		if alive, aerr := d.Dir.Alive(r); aerr == nil && !alive {
			return -1, boxproc.NotRunning(r.Box)
		}
		return -1, holdfast.Errorf(holdfast.KindUnavailable, op, "cannot open /proc of box %s: %w", holdfast.Quote(string(r.Box)), err)
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(r.PID)+"/root/proc", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fail(err)
	}
	var own, box unix.Stat_t
	var fs unix.Statfs_t
	err = errors.Join(unix.Stat("/proc", &own), unix.Fstat(fd, &box), unix.Fstatfs(fd, &fs))
	if err == nil && (fs.Type != unix.PROC_SUPER_MAGIC || own.Dev == box.Dev) {
		err = errors.New("the opened directory is not the /proc of the box")
	}
	// The pid could have been reused before the directory was opened.
	if err == nil {
		var alive bool
		if alive, err = d.Dir.Alive(r); err == nil && !alive {
			err = unix.ESRCH
		}
	}
	if err != nil {
		_ = unix.Close(fd)
		return fail(err)
	}
	return fd, nil
}

type file struct{ dev, ino uint64 }

// held is the state of one call of Held, and the usage that it has found.
type held struct {
	sandbox.DiskUsage
	proc int
	// most is how many more descriptors, mappings and threads may be examined.
	most int
	// memory holds the devices of memory-backed directories. Their files are not counted: the box has other
	// limits for them.
	memory map[uint64]bool
	seen   map[file]bool
	// boxd is true while the process that is examined is boxd itself.
	boxd bool
}

func (h *held) memories() error {
	var st unix.Stat_t
	for _, dir := range []string{"tmp", "dev/shm", "run/holdfast"} {
		if err := unix.Fstatat(h.proc, "1/root/"+dir, &st, 0); err != nil {
			return err
		}
		h.memory[st.Dev] = true
	}
	fd, err := unix.MemfdCreate("", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	err = unix.Fstat(fd, &st)
	h.memory[st.Dev] = true
	return err
}

// more counts one entry and reports whether it may be examined. If not, the result is marked as incomplete (Hidden).
func (h *held) more() bool {
	h.most--
	h.Hidden = h.Hidden || h.most < 0
	return h.most >= 0
}

// failed records that something could not be read, so that the result may be too low. A process that
// has ended holds nothing; and boxd, which an ordinary user cannot read, holds no file of a tool.
func (h *held) failed(err error) {
	ended := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH)
	if !ended && !(h.boxd && errors.Is(err, unix.EACCES)) {
		h.Hidden = true
	}
}

// each calls do with the names in a directory of /proc, until do returns false.
func (h *held) each(dir string, do func(name string) bool) {
	fd, err := unix.Openat(h.proc, dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		h.failed(err)
		return
	}
	list := os.NewFile(uintptr(fd), dir)
	defer list.Close()
	for {
		names, err := list.Readdirnames(256)
		for _, name := range names {
			if !do(name) {
				return
			}
		}
		if err != nil {
			if err != io.EOF {
				h.failed(err)
			}
			return
		}
	}
}

func (h *held) processes(ctx context.Context) {
	h.each(".", func(pid string) bool {
		if _, err := strconv.Atoi(pid); err != nil {
			return true
		}
		h.boxd = pid == "1"
		h.wrote(pid)
		mapped := false
		// Threads may have descriptor tables of their own, and continue when the first thread has ended.
		h.each(pid+"/task", func(tid string) bool {
			thread := pid + "/task/" + tid
			h.inode(thread + "/cwd")
			h.inode(thread + "/exe")
			h.each(thread+"/fd", func(fd string) bool {
				if !h.more() {
					return false
				}
				h.descriptor(thread, fd)
				return true
			})
			mapped = mapped || h.maps(pid, thread)
			return h.more() && ctx.Err() == nil
		})
		return h.more() && ctx.Err() == nil
	})
}

func (h *held) descriptor(thread, fd string) {
	st, ok := h.inode(thread + "/fd/" + fd)
	id := file{st.Dev, st.Ino}
	if !ok || st.Mode&unix.S_IFMT != unix.S_IFSOCK || h.seen[id] {
		return
	}
	h.seen[id] = true
	// Files that were sent over a socket and not received yet are open in no process.
	h.lines(thread+"/fdinfo/"+fd, func(l string) {
		if n, ok := strings.CutPrefix(l, "scm_fds:"); ok && strings.TrimSpace(n) != "0" {
			h.Hidden = true
		}
	})
}

// inode adds the file behind a link of /proc to the usage, if the file has no name any more.
func (h *held) inode(link string) (st unix.Stat_t, ok bool) {
	if err := unix.Fstatat(h.proc, link, &st, 0); err != nil {
		h.failed(err)
		return st, false
	}
	kind, id := st.Mode&unix.S_IFMT, file{st.Dev, st.Ino}
	if (kind == unix.S_IFREG || kind == unix.S_IFDIR) && st.Nlink == 0 && !h.memory[st.Dev] && !h.seen[id] {
		h.seen[id] = true
		h.Files++
		h.Bytes += st.Blocks * 512
	}
	return st, true
}

// maps adds mapped files without a name. mapped reports whether the thread has memory: a process
// whose first thread has ended shows its memory in the other threads.
func (h *held) maps(pid, thread string) (mapped bool) {
	h.lines(thread+"/maps", func(l string) {
		mapped = true
		if !h.more() || !strings.HasSuffix(l, " (deleted)") {
			return
		}
		id, at, ok := mapping(l)
		if !ok || h.memory[id.dev] || h.seen[id] {
			return
		}
		// An ordinary user may not follow these links, so the size of the file stays unknown.
		if err := unix.Fstatat(h.proc, pid+"/map_files/"+at, new(unix.Stat_t), 0); err != nil {
			h.Hidden = true
			return
		}
		h.inode(pid + "/map_files/" + at)
	})
	return mapped
}

// mapping parses a line of maps into the file's inode and its name in map_files.
func mapping(l string) (id file, at string, ok bool) {
	f := strings.Fields(l)
	if len(f) < 5 {
		return id, "", false
	}
	from, to, _ := strings.Cut(f[0], "-")
	major, minor, _ := strings.Cut(f[3], ":")
	var n [4]uint64
	var errs [5]error
	for i, s := range []string{from, to, major, minor} {
		n[i], errs[i] = strconv.ParseUint(s, 16, 64)
	}
	id.ino, errs[4] = strconv.ParseUint(f[4], 10, 64)
	id.dev = unix.Mkdev(uint32(n[2]), uint32(n[3]))
	return id, strconv.FormatUint(n[0], 16) + "-" + strconv.FormatUint(n[1], 16), errors.Join(errs[:]...) == nil
}

// wrote adds the number of bytes that a process wrote. boxd's number includes those of processes that it reaped.
func (h *held) wrote(pid string) {
	h.lines(pid+"/io", func(l string) {
		if n, ok := strings.CutPrefix(l, "write_bytes: "); ok {
			v, _ := strconv.ParseInt(n, 10, 64)
			h.Written += v
		}
	})
}

func (h *held) lines(name string, do func(string)) {
	fd, err := unix.Openat(h.proc, name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		h.failed(err)
		return
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	sc := bufio.NewScanner(f)
	sc.Buffer(make([]byte, 4096), 64<<10)
	for sc.Scan() {
		do(sc.Text())
	}
	if err := sc.Err(); err != nil {
		h.failed(err)
	}
}
