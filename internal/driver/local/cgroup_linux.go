package local

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/clock"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Limits of boxd's own leaf (cgroup): enough for a busy boxd, and small for the machine. The
// memory limit also contains the size of the memory-backed directories, because what file
// operations write there is charged to boxd and cannot be reclaimed.
const (
	boxdMemory = 256 << 20
	boxdPids   = 1024
)

func boxdLimits(l sandbox.Limits) sandbox.Limits {
	return sandbox.Limits{MemoryBytes: boxdMemory + l.TmpBytes + shmBytes(l), Pids: boxdPids, CPUs: l.CPUs}
}

// The two leaves of a box's cgroup: for boxd, and for the tools.
const (
	leafBoxd = "boxd"
	leafWork = "work"
)

// controllers are the cgroup controllers that boxes use, in the order in which threads enter them: the
// freezer's is the first in wire.Jail.WorkTasks. cpuacct only measures.
var controllers = []string{"freezer", "memory", "pids", "cpu", "cpuacct"}

// hierarchy is where this server can make cgroups for boxes. The zero value means that it can make none.
type hierarchy struct {
	v2 bool
	// base is the directory in which boxes get their cgroups, by controller on v1; at key "" on v2.
	base map[string]string
	// own is the server's own cgroup on v1, with the keys of base. Threads that entered a box's cgroup return to it.
	own map[string]string
	// lack holds, for each controller that cannot limit boxes, the reason.
	lack map[string]string
}

// boxCgroup is the cgroup of one box; it is stored in the box's record.
type boxCgroup struct {
	V2 bool `json:"v2,omitempty"`
	// Dirs are the cgroup directories of the box, by controller on v1; at key "" on v2.
	Dirs map[string]string `json:"dirs,omitempty"`
}

// mountInfo is a line of /proc/self/mountinfo, with the fields that cgroups need.
type mountInfo struct {
	root, point, fstype, super string
}

func readMounts(content []byte) []mountInfo {
	var out []mountInfo
	sc := bufio.NewScanner(bytes.NewReader(content))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		f, g := strings.Fields(before), strings.Fields(after)
		if ok && len(f) >= 6 && len(g) >= 3 {
			out = append(out, mountInfo{root: unescape(f[3]), point: unescape(f[4]), fstype: g[0], super: g[2]})
		}
	}
	return out
}

// unescape decodes mountinfo's octal escapes.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// readOwn parses /proc/self/cgroup into paths by controller; the key "" is the unified hierarchy.
func readOwn(content []byte) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(string(content)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		for _, c := range strings.Split(f[1], ",") {
			own[c] = f[2]
		}
	}
	return own
}

// findHierarchy finds where cgroups can be made, by making one. name is the directory for the
// boxes of this server; it exists only while a box or a ready boot does.
func findHierarchy(name, override string) hierarchy {
	if override != "" {
		return hierarchyV2([]string{override}, "", name)
	}
	info, err := os.ReadFile("/proc/self/mountinfo")
	own, oerr := os.ReadFile("/proc/self/cgroup")
	if err := errors.Join(err, oerr); err != nil {
		return noHierarchy("/proc cannot be read: " + err.Error())
	}
	mounts, mine := readMounts(info), readOwn(own)
	h := hierarchy{base: map[string]string{}, own: map[string]string{}, lack: map[string]string{}}
	for _, c := range controllers {
		m, ok := mountOf(mounts, c)
		if !ok {
			h.lack[c] = "no cgroup controller " + c + " is mounted"
			continue
		}
		own := within(m, mine[c])
		base, err := makeBase([]string{own, m.point}, name)
		if err != nil {
			h.lack[c] = "cgroups may not be made: " + err.Error()
			continue
		}
		_ = unix.Rmdir(base)
		h.base[c], h.own[c] = base, own
	}
	if len(h.lack) < len(controllers) {
		return h
	}
	// No controller of version 1 can be used. The unified hierarchy may still offer a freezer,
	// and on most machines it offers every controller.
	for _, m := range mounts {
		if m.fstype == "cgroup2" && within(m, mine[""]) != "" {
			own := within(m, mine[""])
			u := hierarchyV2([]string{own, m.point}, own, name)
			for c, why := range h.lack {
				if _, lacks := u.lack[c]; lacks && strings.Contains(why, "may not") {
					u.lack[c] = why
				}
			}
			return u
		}
	}
	return h
}

func noHierarchy(why string) hierarchy {
	h := hierarchy{lack: map[string]string{}}
	for _, c := range controllers {
		h.lack[c] = why
	}
	return h
}

func mountOf(mounts []mountInfo, controller string) (mountInfo, bool) {
	for _, m := range mounts {
		if m.fstype != "cgroup" {
			continue
		}
		for _, o := range strings.Split(m.super, ",") {
			if o == controller {
				return m, true
			}
		}
	}
	return mountInfo{}, false
}

// within returns the directory of a cgroup below a mount of its hierarchy. If the mount does not
// show that cgroup, as in a container, it returns the mount point.
func within(m mountInfo, own string) string {
	if own == "" {
		return ""
	}
	if m.root != "/" {
		rest, ok := strings.CutPrefix(own+"/", m.root+"/")
		if !ok {
			return m.point
		}
		own = rest
	}
	return path.Join(m.point, own)
}

// makeBase makes a directory called name in the first of the places that allows it, and returns its path.
func makeBase(places []string, name string) (string, error) {
	var last error
	for _, p := range places {
		dir := path.Join(p, name)
		err := os.Mkdir(dir, 0o755)
		if err == nil || errors.Is(err, fs.ErrExist) {
			// The directory may exist already and belong to another user.
			if err = unix.Access(dir, unix.W_OK); err == nil {
				return dir, nil
			}
		}
		last = err
	}
	return "", last
}

func (c *boxCgroup) dirs() []string { return dirsOf(c.Dirs) }

// dirsOf returns the directories of a hierarchy or box in the order of controllers, each once.
func dirsOf(byController map[string]string) []string {
	var out []string
	for _, name := range append([]string{""}, controllers...) {
		if d, ok := byController[name]; ok {
			out = append(out, d)
		}
	}
	return unique(out)
}

func (c *boxCgroup) leaf(controller, leaf string) string {
	if c.V2 {
		controller = ""
	}
	d, ok := c.Dirs[controller]
	if !ok {
		return ""
	}
	return path.Join(d, leaf)
}

// plan returns the cgroup that a box will have, without making it.
func (h hierarchy) plan(box holdfast.BoxID) boxCgroup {
	c := boxCgroup{V2: h.v2, Dirs: map[string]string{}}
	for name, base := range h.base {
		c.Dirs[name] = path.Join(base, string(box))
	}
	return c
}

// make creates a leaf of the box with the directories above it. The directory of all boxes may be missing, because it
// is removed when no box is left.
func (c *boxCgroup) make(h hierarchy, leaf string) error {
	for _, d := range c.dirs() {
		for try := 0; ; try++ {
			err := c.makeLeaf(h, d, leaf)
			if err == nil {
				break
			}
			// Another box that ends now may have removed the parent directory: try again.
			if !errors.Is(err, fs.ErrNotExist) || try == 20 {
				return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the cgroup of the box: %w", err)
			}
		}
	}
	return nil
}

func (c *boxCgroup) makeLeaf(h hierarchy, dir, leaf string) error {
	base := path.Dir(dir)
	for _, p := range []string{base, dir, path.Join(dir, leaf)} {
		err := os.Mkdir(p, 0o755)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		if err == nil && p == base && c.V2 {
			if err := h.passOn(base); err != nil {
				return err
			}
		}
	}
	return nil
}

// limit sets those limits for which there is a controller, and reads them back. missing lists
// each limit that is not in force, with the reason; inForce lists the others.
func (c *boxCgroup) limit(h hierarchy, l sandbox.Limits) (inForce, missing []string) {
	add := func(name string, err error) {
		if err != nil {
			missing = append(missing, name+": "+err.Error())
			return
		}
		inForce = append(inForce, name)
	}
	set := limitV1
	if c.V2 {
		set = limitV2
	}
	for _, x := range []struct{ name, controller string }{{"memory-limit", "memory"}, {"pids-limit", "pids"}, {"cpu-limit", "cpu"}} {
		if reason, lacks := h.lack[x.controller]; lacks {
			add(x.name, errors.New(reason))
			continue
		}
		err := set(x.controller, c.leaf(x.controller, leafWork), l)
		if err == nil {
			err = set(x.controller, c.leaf(x.controller, leafBoxd), boxdLimits(l))
		}
		add(x.name, err)
	}
	return inForce, missing
}

// writeBack writes a value into a cgroup file and checks the result. If the file holds the value
// already, it is only checked, because writing takes time.
func writeBack(file, value string, same func(got string) bool) error {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	read := func() (string, error) {
		var b [256]byte
		n, err := f.ReadAt(b[:], 0)
		if err == io.EOF {
			err = nil
		}
		return strings.TrimSpace(string(b[:n])), err
	}
	if got, err := read(); err == nil && same(got) {
		return nil
	}
	if _, err := f.WriteAt([]byte(value), 0); err != nil {
		return err
	}
	got, err := read()
	if err != nil {
		return err
	}
	if !same(got) {
		return fmt.Errorf("the cgroup file %s has the value %s after %s was written", file, got, value)
	}
	return nil
}

// bytesNear accepts a limit that the kernel rounded down, by less than 64 KiB.
func bytesNear(want int64) func(string) bool {
	return func(got string) bool {
		v, err := strconv.ParseInt(got, 10, 64)
		return err == nil && v <= want && v > want-(64<<10)
	}
}

func equals(want string) func(string) bool { return func(got string) bool { return got == want } }

const cpuPeriod = 100_000

func quota(cpus float64) string { return strconv.FormatInt(max(int64(cpus*cpuPeriod), 1000), 10) }

// procs returns the processes of a leaf.
func procs(dir string) []int {
	b, err := os.ReadFile(path.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil
	}
	var out []int
	for _, f := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out
}

// kill sends SIGKILL to all processes in the box's leaves, and then thaws the box: a frozen
// process dies at the thaw, before it runs again (HZ-10). It never kills the server itself, which
// has a thread in the leaf of a box that it is starting.
func (c *boxCgroup) kill() {
	if c.V2 {
		for _, d := range c.dirs() {
			_ = os.WriteFile(path.Join(d, "cgroup.kill"), []byte("1"), 0)
		}
	}
	for _, d := range c.dirs() {
		for _, leaf := range []string{leafWork, leafBoxd} {
			for _, pid := range procs(path.Join(d, leaf)) {
				if pid != os.Getpid() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
		}
	}
	if c.canFreeze() {
		_ = c.setFreezer(false)
	}
}

// remove kills the processes that are left in the box's cgroup and removes its directories. It may be called again.
func (c *boxCgroup) remove(ctx context.Context) error {
	for _, d := range c.dirs() {
		for _, p := range []string{path.Join(d, leafWork), path.Join(d, leafBoxd), d} {
			err := poll(ctx, func() (bool, error) {
				err := unix.Rmdir(p)
				if err == nil || err == unix.ENOENT {
					return true, nil
				}
				c.kill()
				return false, fmt.Errorf("cannot remove the directory %s: %w", p, err)
			})
			if err != nil {
				return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot remove the cgroup of the box: %w", err).
					WithHint("processes of the box do not end: the file cgroup.procs in the directory of the box's cgroup lists them")
			}
		}
		// The directory of all boxes is removed with the last box.
		_ = unix.Rmdir(path.Dir(d))
	}
	return nil
}

// poll calls try until it is done or ctx ends, at first without a pause and then with growing ones.
// When ctx ends, it returns the last error of try with that of ctx.
func poll(ctx context.Context, try func() (done bool, err error)) error {
	wait := 50 * time.Microsecond
	for tries := 1; ; tries++ {
		done, err := try()
		if done {
			return nil
		}
		if tries < 4 {
			runtime.Gosched() // do not sleep: the processes of a box usually end before a timer would fire
			continue
		}
		if clock.Pause(ctx, wait) != nil {
			return errors.Join(err, ctx.Err())
		}
		wait = min(2*wait, 20*time.Millisecond)
	}
}

// frozen reports whether the work leaf is frozen, as the freezer's file states.
func (c *boxCgroup) frozen() (bool, error) {
	if c.V2 {
		b, err := os.ReadFile(path.Join(c.leaf("", leafWork), "cgroup.events"))
		return strings.Contains(string(b), "frozen 1"), err
	}
	dir := c.leaf("freezer", leafWork)
	if dir == "" {
		return false, nil
	}
	b, err := os.ReadFile(path.Join(dir, "freezer.state"))
	return strings.TrimSpace(string(b)) == "FROZEN", err
}

func (c *boxCgroup) setFreezer(freeze bool) error {
	file, value := path.Join(c.leaf("freezer", leafWork), "freezer.state"), "THAWED"
	if freeze {
		value = "FROZEN"
	}
	if c.V2 {
		file, value = path.Join(c.leaf("", leafWork), "cgroup.freeze"), "0"
		if freeze {
			value = "1"
		}
	}
	return os.WriteFile(file, []byte(value), 0)
}

func (c *boxCgroup) canFreeze() bool { return c.leaf("freezer", leafWork) != "" }

// freeze freezes the work leaf and waits until all its processes stand still; if that fails, it thaws the leaf.
func (c *boxCgroup) freeze(ctx context.Context) error {
	err := poll(ctx, func() (bool, error) {
		// v1 leaves the leaf in state FREEZING if a process was forking: write the state again.
		if err := c.setFreezer(true); err != nil {
			return false, err
		}
		return c.frozen()
	})
	if err != nil {
		_ = c.thaw(context.WithoutCancel(ctx))
	}
	return err
}

// thaw thaws the box. It does nothing to a box that is not frozen or has no freezer.
func (c *boxCgroup) thaw(ctx context.Context) error {
	if !c.canFreeze() {
		return nil
	}
	return poll(ctx, func() (bool, error) {
		if err := c.setFreezer(false); err != nil {
			return errors.Is(err, fs.ErrNotExist), err
		}
		is, err := c.frozen()
		return !is, err
	})
}
