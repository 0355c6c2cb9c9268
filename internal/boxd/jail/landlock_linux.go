package jail

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
)

// Groups of Landlock access rights: to read, the rights that a rule for a file can have, to make devices, and all of ABI 1.
const (
	llRead  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR
	llFile  = unix.LANDLOCK_ACCESS_FS_EXECUTE | unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE | unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	llDevs  = unix.LANDLOCK_ACCESS_FS_MAKE_CHAR | unix.LANDLOCK_ACCESS_FS_MAKE_BLOCK
	llFirst = 1<<13 - 1 // every Landlock right of ABI version 1
)

// rulesets are two Landlock rule sets: tools is for the threads that fork tools, files for those that run
// file operations. files does not allow /proc, through which an operation could reach boxd.
type rulesets struct {
	tools, files int
	// abi is the version of Landlock in the kernel; 0 without Landlock.
	abi int
}

func (r *rulesets) close() {
	for _, fd := range []int{r.tools, r.files} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// landlockABI returns the version of Landlock in the kernel; 0 and an error if the kernel has no Landlock.
func landlockABI() (int, error) {
	v, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(v), nil
}

func handledFS(abi int) uint64 {
	h := uint64(llFirst)
	if abi >= 2 {
		h |= unix.LANDLOCK_ACCESS_FS_REFER
	}
	if abi >= 3 {
		h |= unix.LANDLOCK_ACCESS_FS_TRUNCATE
	}
	if abi >= 5 {
		h |= unix.LANDLOCK_ACCESS_FS_IOCTL_DEV
	}
	return h
}

func (e *entry) landlock() (*rulesets, error) {
	r := &rulesets{tools: -1, files: -1}
	abi, err := landlockABI()
	if err != nil {
		reason := "the kernel refuses it (" + err.Error() + "): boot with lsm=landlock,… or a kernel built with it"
		if e.jail.RequireLandlock {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "a box that runs as an ordinary user of the host needs Landlock, and %s", reason).
				WithHint("run the server as root, or accept boxes without Landlock: holdfast serve --set landlock=best-effort")
		}
		if e.jail.Shared != nil {
			return nil, holdfast.Errorf(holdfast.KindUnavailable, op, "a box that several sessions share needs Landlock, which keeps them out of each other's homes, and %s", reason).
				WithHint("give each session a box of its own")
		}
		e.lack("landlock", reason)
		e.lack("signal-scope", "needs landlock")
		return r, nil
	}
	if r, err = e.forker.trees.rulesets(abi); err != nil {
		return nil, err
	}
	e.force(fmt.Sprintf("landlock (abi %d)", abi))
	if abi >= 6 {
		e.force("signal-scope")
	} else {
		e.lack("signal-scope", fmt.Sprintf("landlock abi %d has no scopes; kernel 6.12 has", abi))
	}
	return r, nil
}

// trees are the paths in the box of the directories that its sessions may write to.
type trees struct{ workspace, home, tmp string }

// rulesets makes both rule sets, for the files that the calling thread sees.
func (t trees) rulesets(abi int) (*rulesets, error) {
	r := &rulesets{tools: -1, files: -1, abi: abi}
	handled := handledFS(abi)
	var err error
	if r.tools, err = newRuleset(abi, handled); err == nil {
		r.files, err = newRuleset(abi, handled)
	}
	if err == nil {
		err = t.rules(r, handled)
	}
	if err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

func newRuleset(abi int, handled uint64) (int, error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: handled}
	size := uintptr(8)
	if abi >= 6 {
		attr.Scoped = unix.LANDLOCK_SCOPE_SIGNAL | unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET
		size = 24
	}
	return createRuleset(&attr, size)
}

func createRuleset(attr *unix.LandlockRulesetAttr, size uintptr) (int, error) {
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(attr)), size, 0)
	if errno != 0 {
		return -1, fmt.Errorf("cannot create a Landlock rule set: %w", errno)
	}
	return int(fd), nil
}

// rules adds to the rule sets the access that a box allows: to read most of its files, and to write
// below the workspace, the home, the temporary directories and some devices. The rules for /proc, /dev,
// the devices and /run/holdfast are only in the rule set for tools; those for /dev/shm are in both.
func (t trees) rules(r *rulesets, handled uint64) error {
	type rule struct {
		path   string
		access uint64
		tools  bool
	}
	list := []rule{{"/", unix.LANDLOCK_ACCESS_FS_READ_DIR, false}}
	entries, err := os.ReadDir("/")
	if err != nil {
		return err
	}
	for _, d := range entries {
		switch p := "/" + d.Name(); p {
		case "/run", t.tmp, t.workspace, "/home":
		case "/proc", "/dev":
			list = append(list, rule{p, llRead, true})
		default:
			if d.IsDir() {
				list = append(list, rule{p, llRead, false})
			}
		}
	}
	for _, p := range []string{t.workspace, t.home, t.tmp, "/dev/shm"} {
		list = append(list, rule{p, handled &^ uint64(llDevs), false})
	}
	for _, p := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts"} {
		list = append(list, rule{p, uint64(llFile | unix.LANDLOCK_ACCESS_FS_READ_DIR), true})
	}
	list = append(list, rule{"/run/holdfast", unix.LANDLOCK_ACCESS_FS_READ_FILE | unix.LANDLOCK_ACCESS_FS_READ_DIR, true})
	for _, x := range list {
		sets := []int{r.tools, r.files}
		if x.tools {
			sets = sets[:1]
		}
		if err := addRule(x.path, x.access&handled, sets...); err != nil {
			return fmt.Errorf("cannot add a Landlock rule for %s: %w", x.path, err)
		}
	}
	return nil
}

// addRule adds to rule sets the access to a path and everything below it. It ignores a path that does not exist.
func addRule(path string, access uint64, sets ...int) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return grant(fd, access, sets...)
}

// grant adds to rule sets the access to an open file and everything below it. If the file is not a
// directory, it leaves out the rights that only directories have.
func grant(fd int, access uint64, sets ...int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		access &= llFile
	}
	attr := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(fd)}
	for _, set := range sets {
		_, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, uintptr(set), unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&attr)), 0, 0, 0)
		if errno != 0 {
			return errno
		}
	}
	return nil
}

// restrict puts the calling thread, which is locked, into a new Landlock domain with the rule set rs. If rs is
// negative, because there is no Landlock, it does nothing.
func restrict(rs int) error {
	if rs < 0 {
		return nil
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_LANDLOCK_RESTRICT_SELF, uintptr(rs), 0, 0); errno != 0 {
		return errno
	}
	return nil
}
