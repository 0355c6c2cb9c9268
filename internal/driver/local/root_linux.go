package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/jail"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// hostTop are the directories of the host that a box sees, where they exist.
var hostTop = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// etcCopied are small files of /etc that programs read; they are copied, so that
// a box needs no mount for each. What could tell of the host's users, secrets or
// services is not among them.
var etcCopied = []string{
	"bash.bashrc", "debian_version", "gai.conf", "host.conf", "inputrc", "ld.so.conf", "login.defs",
	"lsb-release", "nsswitch.conf", "profile", "protocols", "services", "shells", "timezone", "locale.conf",
	"alpine-release", "fedora-release", "redhat-release", "ssl/openssl.cnf",
}

// etcBound are directories and larger files of /etc that are bound.
var etcBound = []string{
	"alternatives", "ld.so.cache", "ld.so.conf.d", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted",
	"ca-certificates/extracted", "crypto-policies", "fonts", "mime.types", "perl", "terminfo",
}

// etcGlobs are bound directories with a version in their names.
var etcGlobs = []string{"python*", "java-*", "php*", "ruby*"}

// etcLinked are taken over where they are symbolic links.
var etcLinked = []string{"localtime", "os-release", "mtab"}

// maxCopied bounds a copied file of /etc; a longer one is left out.
const maxCopied = 32 << 10

// synthetic files of /etc: the box has two users and no resolver.
var synthetic = map[string]string{
	"passwd":      "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"group":       "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
	"resolv.conf": "# a box has no network; names are resolved by the proxy\n",
}

// planner lists the mounts of one box. Sources are host paths until opened.
type planner struct {
	cfg    *Config
	mounts []wire.Mount
}

func (p *planner) add(m wire.Mount) { p.mounts = append(p.mounts, m) }

// bind shows the host's file or directory at source, if there is one.
func (p *planner) bind(source, target string, ro bool) {
	st, err := os.Stat(source)
	if err != nil {
		return
	}
	p.add(wire.Mount{Source: source, Target: target, ReadOnly: ro, File: !st.IsDir()})
}

// plan is the whole root of a box.
func plan(cfg *Config, workspace, home string, limits sandbox.Limits, sameUID bool) ([]wire.Mount, error) {
	p := &planner{cfg: cfg}
	if err := p.top(); err != nil {
		return nil, err
	}
	p.etc()
	p.add(wire.Mount{FSType: "proc", Target: "/proc", NoExec: true})
	p.dev()
	p.add(wire.Mount{Content: hostname + "\n", Target: "/etc/hostname"})
	p.add(wire.Mount{Content: "127.0.0.1 localhost " + hostname + "\n::1 localhost\n", Target: "/etc/hosts"})
	pts := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", maxTerminals)
	if !sameUID {
		// Tools open their terminal again by name.
		pts += fmt.Sprintf(",uid=%d,gid=%d", toolUID, toolUID)
	}
	p.add(wire.Mount{FSType: "devpts", Target: "/dev/pts", Data: pts, NoExec: true, Dev: true})
	p.add(wire.Mount{FSType: "tmpfs", Target: "/dev/shm", Data: fmt.Sprintf("mode=1777,size=%d", shmBytes(limits))})
	p.add(wire.Mount{FSType: "tmpfs", Target: "/tmp", Data: fmt.Sprintf("mode=1777,size=%d", limits.TmpBytes)})
	p.add(wire.Mount{FSType: "tmpfs", Target: "/run/holdfast", Data: "mode=0755,size=1m", NoExec: true})
	p.add(wire.Mount{Source: workspace, Target: boxWorkspace})
	p.add(wire.Mount{Source: home, Target: boxHome})
	return p.mounts, nil
}

// maxTerminals is how many terminals a box may have. The kernel has one number
// for the whole machine (4096), which a box could use up alone.
const maxTerminals = 64

// The paths inside every box, and its name: like them it is the same everywhere.
const (
	hostname     = "holdfast"
	boxWorkspace = "/workspace"
	boxHome      = "/home/agent"
	boxTmp       = "/tmp"
)

func (p *planner) top() error {
	names := hostTop
	if p.cfg.RootDir != "" {
		entries, err := os.ReadDir(p.cfg.RootDir)
		if err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "root directory: %w", err)
		}
		names = nil
		for _, e := range entries {
			if !reserved[e.Name()] {
				names = append(names, e.Name())
			}
		}
	}
	for _, name := range names {
		source := path.Join("/", p.cfg.RootDir, name)
		st, err := os.Lstat(source)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "root directory: %w", err)
		}
		switch {
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(source)
			if err != nil {
				return holdfast.Errorf(holdfast.KindUnavailable, op, "root directory: %w", changed(err))
			}
			p.add(wire.Mount{Link: to, Target: "/" + name})
		case st.IsDir() && p.below("/"+name):
			// A read-only directory would have no room for it.
			if err := p.each(source, "/"+name); err != nil {
				return err
			}
		case st.IsDir():
			p.bind(source, "/"+name, true)
		}
	}
	for _, entry := range p.cfg.ReadOnly {
		source, target := bound(entry)
		st, err := os.Stat(source)
		if err == nil && !st.IsDir() {
			err = unix.ENOTDIR
		}
		if err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "%s is not a directory: %w", holdfast.Quote(source), changed(err)).
				WithHint("take it out of the driver's list of read-only directories")
		}
		p.bind(source, target, true)
	}
	return nil
}

// below reports whether something is to be seen in a top directory that does not
// have it.
func (p *planner) below(dir string) bool {
	return slices.ContainsFunc(p.cfg.ReadOnly, func(entry string) bool {
		_, target := bound(entry)
		if path.Dir(target) != dir {
			return false
		}
		_, err := os.Stat(path.Join("/", p.cfg.RootDir, target))
		return err != nil
	})
}

// each shows what is in a directory, entry by entry.
func (p *planner) each(source, target string) error {
	entries, err := os.ReadDir(source)
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "root directory: %w", changed(err))
	}
	for _, e := range entries {
		from, at := path.Join(source, e.Name()), path.Join(target, e.Name())
		if to, err := os.Readlink(from); err == nil {
			p.add(wire.Mount{Link: to, Target: at})
		} else {
			p.bind(from, at, true)
		}
	}
	return nil
}

func (p *planner) etc() {
	etc := path.Join("/", p.cfg.RootDir, "etc")
	for name, content := range synthetic {
		p.add(wire.Mount{Content: content, Target: "/etc/" + name})
	}
	// One look at what there is, instead of one for each name.
	names := map[string]bool{}
	if dir, err := os.Open(etc); err == nil {
		list, _ := dir.Readdirnames(-1)
		_ = dir.Close()
		for _, name := range list {
			names[name] = true
		}
	}
	has := func(name string) bool {
		first, _, _ := strings.Cut(name, "/")
		return names[first]
	}
	for _, name := range etcCopied {
		if has(name) {
			p.copied(etc, name)
		}
	}
	for _, name := range etcLinked {
		if !has(name) {
			continue
		}
		if to, err := os.Readlink(path.Join(etc, name)); err == nil {
			p.add(wire.Mount{Link: to, Target: "/etc/" + name})
		} else {
			p.copied(etc, name)
		}
	}
	bound := append([]string{}, etcBound...)
	for _, pattern := range etcGlobs {
		for name := range names {
			// The patterns are constants: Match cannot fail.
			if ok, _ := path.Match(pattern, name); ok {
				bound = append(bound, name)
			}
		}
	}
	for _, name := range bound {
		if has(name) {
			p.bind(path.Join(etc, name), "/etc/"+name, true)
		}
	}
}

// copied takes over the content of a file of /etc.
func (p *planner) copied(etc, name string) {
	if b, err := os.ReadFile(path.Join(etc, name)); err == nil && len(b) > 0 && len(b) <= maxCopied {
		p.add(wire.Mount{Content: string(b), Target: "/etc/" + name})
	}
}

// dev is five devices and the terminal.
func (p *planner) dev() {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		p.add(wire.Mount{Source: "/dev/" + name, Target: "/dev/" + name, File: true, Dev: true, NoExec: true})
	}
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		p.add(wire.Mount{Link: to, Target: "/dev/" + name})
	}
}

// openTrees replaces sources by detached trees that the child can move in: a
// mapped uid could not reach them below a 0700 directory. give returns a file's
// place among those that are handed over.
func openTrees(mounts []wire.Mount, give func(*os.File) int) error {
	for i := range mounts {
		m := &mounts[i]
		if m.Source == "" {
			continue
		}
		f, err := openTree(*m)
		if err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "mount of %s: %w", holdfast.Quote(m.Source), changed(err))
		}
		source := m.Source
		m.Source, m.TreeFD = "", give(f)
		// A file may have taken the place of the directory since the first look, or the reverse.
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "mount of %s: %w", holdfast.Quote(source), err)
		}
		m.File = st.Mode&unix.S_IFMT != unix.S_IFDIR
	}
	return nil
}

func openTree(m wire.Mount) (*os.File, error) {
	fd, err := unix.OpenTree(unix.AT_FDCWD, m.Source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err != nil {
		return nil, err
	}
	if err := jail.Restrict(fd, m); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), m.Source), nil
}

// owned makes sure that dir is a directory of the given owner. One that is
// missing is made (0700); one of the session's own that belongs to somebody
// else is given to the owner; a foreign one is refused.
func owned(dir string, uid uint32, private, root bool) error {
	err := os.Mkdir(dir, 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "%w", err)
	}
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "%s is not a directory that a box can have: %w", holdfast.Quote(dir), err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "%s: %w", holdfast.Quote(dir), err)
	}
	if !root || st.Uid == uid {
		return nil
	}
	if !private {
		hint := "chown -R " + strconv.Itoa(int(uid)) + " " + dir
		if st.Uid == 0 {
			hint = "give the directory to a user that is not root: " + hint
		}
		return holdfast.Errorf(holdfast.KindInvalid, op, "%s belongs to uid %d, the box's tools are uid %d", holdfast.Quote(dir), st.Uid, uid).WithHint("%s", hint)
	}
	if err := unix.Fchown(fd, int(uid), int(uid)); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "%s: %w", holdfast.Quote(dir), err)
	}
	return nil
}
