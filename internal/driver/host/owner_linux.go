package host

import (
	"bytes"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/boxproc"
	"github.com/holdfast-run/holdfast/sandbox"
)

// owner is the host user that owns the files of a workspace. A server that runs as root runs the box of a session
// in that workspace as this user. The box's processes have this uid and gid, no other groups, no capabilities,
// and cannot get any by running a program.
type owner struct {
	uid, gid int
	// tree is the workspace. own are the directories of the box that lie in the data directory; the workspace is
	// one of them, unless it is a directory that the user gave.
	tree string
	own  []string
	// shown are directories of the data directory that the box may read.
	shown []string
}

// ownerOf returns the owner as whose user the box of a spec runs; nil if it runs as the server's user. A server
// that runs as root runs nothing in a workspace as root.
func ownerOf(spec sandbox.Spec, uid int) (*owner, error) {
	if uid != 0 || spec.ToolUID == 0 && spec.Workspace == "" && !spec.HostUser {
		return nil, nil
	}
	if spec.ToolUID == 0 {
		return nil, holdfast.Errorf(holdfast.KindDenied, op, "the box %s is in the workspace %s, but has no user to run as, and tools in a workspace never run as root", holdfast.Quote(string(spec.Box)), holdfast.Quote(spec.Workspace)).
			WithHint("run the server as an ordinary user, or leave uid_base at its default")
	}
	o := &owner{uid: int(spec.ToolUID), gid: int(spec.ToolGID)}
	if o.gid == 0 {
		o.gid = o.uid
	}
	return o, nil
}

// name returns the owner's name; empty if the machine has no user with that uid.
func (o *owner) name() string {
	if u, err := user.LookupId(strconv.Itoa(o.uid)); err == nil {
		return u.Username
	}
	return ""
}

// directories makes the directories of the box, owned by o. A workspace that the spec names must exist already.
func (o *owner) directories(spec sandbox.Spec, workspace string, others ...string) error {
	o.tree, o.own = workspace, others
	if !spec.HostUser {
		o.own = append(o.own, workspace)
	}
	if err := os.MkdirAll(spec.Dir, 0o700); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the directory of the box: %w", err)
	}
	if spec.Workspace != "" {
		if st, err := os.Lstat(workspace); err != nil || !st.IsDir() {
			return holdfast.Errorf(holdfast.KindNotFound, op, "the workspace directory %s does not exist", holdfast.Quote(workspace))
		}
	}
	err := boxproc.Owned(workspace, uint32(o.uid), uint32(o.gid), spec.Workspace == "", true)
	for _, dir := range others {
		err = errors.Join(err, boxproc.Owned(dir, uint32(o.uid), uint32(o.gid), true, true))
	}
	return err
}

// enter prepares the calling thread, which starts boxd and then ends. boxd's processes inherit from it a mount
// namespace in which the owner reaches the box's directories, a session keyring of their own, and no way to get
// capabilities. It changes nothing that the server or the host sees.
func (o *owner) enter() error {
	fail := func(what string, err error) error {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot run a box as uid %d, because setting up %s failed: %w", o.uid, what, err).
			WithHint("a root server needs the capability SYS_ADMIN for trusted sessions in workspaces; without it, run the server as the directory's owner")
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fail("a mount namespace", err)
	}
	// The namespace gets what the host mounts from now on; nothing that is mounted in it reaches the host.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fail("mounts that do not reach the host", err)
	}
	if err := o.reach(); err != nil {
		return err
	}
	// The server's session keyring may hold keys, so make a new one. A kernel without keyrings, or a
	// container that forbids the call, has no keyring that a process could reach.
	_, _, errno := unix.RawSyscall(unix.SYS_KEYCTL, unix.KEYCTL_JOIN_SESSION_KEYRING, 0, 0)
	if errno != 0 && errno != unix.ENOSYS && errno != unix.EPERM && errno != unix.EOPNOTSUPP {
		return fail("a session keyring", errno)
	}
	for c := uintptr(0); ; c++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err == unix.EINVAL {
			break
		} else if err != nil {
			return fail("a thread without capabilities", err)
		}
	}
	hdr := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(hdr, &data[0]); err != nil {
		return fail("a thread without capabilities", err)
	}
	data[0].Inheritable, data[1].Inheritable = 0, 0
	if err := unix.Capset(hdr, &data[0]); err != nil {
		return fail("a thread without capabilities", err)
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fail("the flag no_new_privs", err)
	}
	return nil
}

// reach makes the box's own directories reachable for the owner, under their usual paths. The data directory, or one
// above it, is closed to other users: over the highest closed directory an empty one is mounted, which contains
// nothing but the way to the box's directories. Everything else that the owner may not enter stays hidden. A
// workspace that the user gave must be reachable as it is.
func (o *owner) reach() error {
	if at, err := o.closed(o.tree); !slices.Contains(o.own, o.tree) && err != nil {
		return holdfast.Errorf(holdfast.KindDenied, op, "the owner of the directory %s, uid %d, cannot enter that directory: %w", holdfast.Quote(o.tree), o.uid, err).
			WithHint("let the owner pass the directories above that directory: chmod o+x %s", at)
	}
	all := slices.Concat(o.own, o.shown)
	for range len(all) + 1 {
		dir, at, err := "", "", error(nil)
		for _, dir = range all {
			if at, err = o.closed(dir); err != nil {
				break
			}
		}
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EACCES) || at == "/" || at == dir {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "uid %d cannot reach %s, a directory of its box: %w", o.uid, holdfast.Quote(dir), err).
				WithHint("give the data directory by a path without symlinks: holdfast serve --data DIR")
		}
		if err := o.cover(at); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot make the directories of a box reachable for uid %d: %w", o.uid, err)
		}
	}
	return holdfast.Errorf(holdfast.KindUnavailable, op, "uid %d cannot reach the directories of its box even after empty directories were mounted over the closed ones above them", o.uid)
}

// closed checks whether the owner can enter dir. If not, it returns the error and the directory on the path that
// the owner cannot enter.
func (o *owner) closed(dir string) (at string, err error) {
	if err := o.become(o.uid, o.gid); err != nil {
		return "/", err
	}
	defer func() { err = errors.Join(err, o.become(0, 0)) }()
	at = "/"
	for i := 1; i <= len(dir); i++ {
		if i < len(dir) && dir[i] != '/' {
			continue
		}
		// Opening DIR/. needs the right to enter DIR and all directories above it.
		fd, err := unix.Open(dir[:i]+"/.", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return dir[:i], &os.PathError{Op: "enter", Path: dir[:i], Err: err}
		}
		_ = unix.Close(fd)
	}
	return at, nil
}

// become gives the calling thread the access to files of a user, without other groups.
func (o *owner) become(uid, gid int) error {
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
		return errno
	}
	// The calls return the previous id and never an error: only a second call, which reads the id back, shows
	// whether they worked.
	for _, set := range []struct {
		call func(int) (int, error)
		id   int
	}{{unix.SetfsgidRetGid, gid}, {unix.SetfsuidRetUid, uid}} {
		if _, err := set.call(set.id); err != nil {
			return err
		}
		if now, err := set.call(-1); err != nil || now != set.id {
			return errors.Join(err, unix.EPERM)
		}
	}
	return nil
}

// cover mounts an empty directory over dir and puts the box's directories below dir back into it.
func (o *owner) cover(dir string) error {
	fds := map[string]int{}
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	for _, own := range slices.Concat(o.own, o.shown) {
		if !strings.HasPrefix(own, dir+"/") {
			continue
		}
		fd, err := unix.Open(own, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: own, Err: err}
		}
		fds[own] = fd
		var st unix.Stat_t
		if err := unix.Fstat(fd, &st); err != nil || int(st.Uid) != o.uid && !slices.Contains(o.shown, own) {
			return errors.Join(err, &os.PathError{Op: "open", Path: own, Err: unix.EPERM})
		}
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0755,size=64k"); err != nil {
		return &os.PathError{Op: "mount", Path: dir, Err: err}
	}
	for own, fd := range fds {
		at := dir
		for name := range strings.SplitSeq(strings.TrimPrefix(own, dir+"/"), "/") {
			at = filepath.Join(at, name)
			if err := os.Mkdir(at, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			if err := os.Chmod(at, 0o755); err != nil {
				return err
			}
		}
		if err := unix.Mount("/proc/self/fd/"+strconv.Itoa(fd), own, "", unix.MS_BIND, ""); err != nil {
			return &os.PathError{Op: "mount", Path: own, Err: err}
		}
	}
	return nil
}

// verify returns an error unless the process pid has only the owner's uid and gid, no other groups, no capabilities,
// and the flag no_new_privs. It is called before boxd learns its box.
func (o *owner) verify(pid int) error {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot find out as which user the process of a box runs: %w", err)
	}
	uid, gid := strconv.Itoa(o.uid), strconv.Itoa(o.gid)
	want := map[string]string{
		"Uid": strings.Join(slices.Repeat([]string{uid}, 4), "\t"), "Gid": strings.Join(slices.Repeat([]string{gid}, 4), "\t"),
		"Groups": "", "NoNewPrivs": "1",
		"CapInh": noCaps, "CapPrm": noCaps, "CapEff": noCaps, "CapBnd": noCaps, "CapAmb": noCaps,
	}
	for line := range bytes.Lines(status) {
		name, value, _ := strings.Cut(string(line), ":")
		if expected, ok := want[name]; ok && strings.TrimSpace(value) == expected {
			delete(want, name)
		}
	}
	for name := range want {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "the process of a box should run as uid %d, but the line %s of its /proc/PID/status has another value", o.uid, name)
	}
	return nil
}

const noCaps = "0000000000000000"

// credential returns the attributes with which boxd's process is started: the owner's uid and gid, without other
// groups.
func (o *owner) credential() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.uid), Gid: uint32(o.gid), Groups: nil}}
}
