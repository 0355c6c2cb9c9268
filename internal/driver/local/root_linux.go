package local

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/boxd/jail"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// hostTop are the top-level directories of the host that are mounted in a box, if they exist.
var hostTop = []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// etcCopied are small files of /etc that programs read. They are copied, so that a box needs no mount for each. Files
// that could reveal the host's users, secrets or services are not in this list.
var etcCopied = []string{
	"bash.bashrc", "debian_version", "gai.conf", "host.conf", "inputrc", "ld.so.conf", "login.defs",
	"lsb-release", "nsswitch.conf", "profile", "protocols", "services", "shells", "timezone", "locale.conf",
	"alpine-release", "fedora-release", "redhat-release", "ssl/openssl.cnf",
}

// etcBound are directories and larger files of /etc that are bind-mounted.
var etcBound = []string{
	"alternatives", "ld.so.cache", "ld.so.conf.d", "ssl/certs", "pki/tls/certs", "pki/ca-trust/extracted",
	"ca-certificates/extracted", "crypto-policies", "fonts", "mime.types", "perl", "terminfo",
}

// etcGlobs are patterns of bind-mounted directories whose names contain a version.
var etcGlobs = []string{"python*", "java-*", "php*", "ruby*"}

// etcLinked are names in /etc that are copied as symbolic links, if they are such links.
var etcLinked = []string{"localtime", "os-release", "mtab"}

// maxCopied is the longest file of /etc that is copied; longer ones are left out.
const maxCopied = 32 << 10

// synthetic are generated files of /etc: the box has its own users and no resolver.
var synthetic = map[string]string{
	"passwd":      "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000:agent:/home/agent:/bin/bash\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n",
	"group":       "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n",
	"resolv.conf": "# a box has no network; names are resolved by the proxy\n",
}

// planner collects the mounts of one box. Sources are host paths until openTrees opens them.
type planner struct {
	cfg    *Config
	mounts []wire.Mount
}

func (p *planner) add(m wire.Mount) { p.mounts = append(p.mounts, m) }

// bind adds a read-only bind mount of the host's file or directory source, if it exists.
func (p *planner) bind(source, target string) {
	st, err := os.Stat(source)
	if err != nil {
		return
	}
	p.add(wire.Mount{Source: source, Target: target, ReadOnly: true, File: !st.IsDir()})
}

// plan returns all mounts of a box's root. If home is empty, nothing is mounted at the home directory.
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
	p.mounts = append(p.mounts, temporary(limits, sameUID)...)
	p.add(wire.Mount{Source: workspace, Target: boxWorkspace})
	if home == "" {
		p.add(wire.Mount{Dir: true, Target: boxHome})
	} else {
		p.add(wire.Mount{Source: home, Target: boxHome})
	}
	return p.mounts, nil
}

// temporary returns the mounts for the terminals and the memory-backed directories (/dev/shm, /tmp, /run/holdfast) of a
// box, or of one session in a shared box.
func temporary(limits sandbox.Limits, sameUID bool) []wire.Mount {
	pts := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,max=%d", maxTerminals)
	if !sameUID {
		// Give the terminals to the tools' user, because tools open their terminal again by its name.
		pts += fmt.Sprintf(",uid=%d,gid=%d", toolUID, toolUID)
	}
	return []wire.Mount{
		{FSType: "devpts", Target: "/dev/pts", Data: pts, NoExec: true, Dev: true},
		{FSType: "tmpfs", Target: "/dev/shm", Data: fmt.Sprintf("mode=1777,size=%d", shmBytes(limits))},
		{FSType: "tmpfs", Target: "/tmp", Data: fmt.Sprintf("mode=1777,size=%d", limits.TmpBytes)},
		{FSType: "tmpfs", Target: "/run/holdfast", Data: "mode=0755,size=1m", NoExec: true},
	}
}

// maxTerminals is how many terminals a box may have. The kernel has one limit for the whole
// machine (4096), which one box could use up.
const maxTerminals = 64

// The paths inside a box and its host name are the same in every box.
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
			return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot read a file or directory of the host that is shown in the box's root: %w", err)
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
			return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot read a file or directory of the host that is shown in the box's root: %w", err)
		}
		switch {
		case st.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(source)
			if err != nil {
				return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot read a file or directory of the host that is shown in the box's root: %w", changed(err))
			}
			p.add(wire.Mount{Link: to, Target: "/" + name})
		case st.IsDir() && p.below("/"+name):
			// In a directory that is mounted read-only as a whole, no mount point could be made.
			if err := p.each(source, "/"+name); err != nil {
				return err
			}
		case st.IsDir():
			p.bind(source, "/"+name)
		}
	}
	for _, entry := range p.cfg.ReadOnly {
		source, target := bound(entry)
		st, err := os.Stat(source)
		if err == nil && !st.IsDir() {
			err = unix.ENOTDIR
		}
		if err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "the read-only directory %s cannot be mounted: %w", holdfast.Quote(source), changed(err)).
				WithHint("take the directory out of the driver's list of read-only directories")
		}
		p.bind(source, target)
	}
	return nil
}

// below reports whether an entry of ReadOnly has its mount point directly in the top-level
// directory dir of the box, and the host (or RootDir) has no file of that name there.
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

// each adds a mount or symlink for each entry of a directory, instead of one mount for the directory.
func (p *planner) each(source, target string) error {
	entries, err := os.ReadDir(source)
	if err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot read a file or directory of the host that is shown in the box's root: %w", changed(err))
	}
	for _, e := range entries {
		from, at := path.Join(source, e.Name()), path.Join(target, e.Name())
		if to, err := os.Readlink(from); err == nil {
			p.add(wire.Mount{Link: to, Target: at})
		} else {
			p.bind(from, at)
		}
	}
	return nil
}

func (p *planner) etc() {
	etc := path.Join("/", p.cfg.RootDir, "etc")
	for name, content := range synthetic {
		p.add(wire.Mount{Content: content, Target: "/etc/" + name})
	}
	// List /etc once, instead of checking each name.
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
			p.bind(path.Join(etc, name), "/etc/"+name)
		}
	}
}

func (p *planner) copied(etc, name string) {
	if b, err := os.ReadFile(path.Join(etc, name)); err == nil && len(b) > 0 && len(b) <= maxCopied {
		p.add(wire.Mount{Content: string(b), Target: "/etc/" + name})
	}
}

// dev adds five devices and the terminal, with the usual links.
func (p *planner) dev() {
	for _, name := range []string{"null", "zero", "full", "random", "urandom", "tty"} {
		p.add(wire.Mount{Source: "/dev/" + name, Target: "/dev/" + name, File: true, Dev: true, NoExec: true})
	}
	for name, to := range map[string]string{"ptmx": "pts/ptmx", "fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"} {
		p.add(wire.Mount{Link: to, Target: "/dev/" + name})
	}
}

// openTrees replaces the host paths that are the sources of mounts by open detached mounts, which boxd only has to
// move to their targets: its mapped uid could not reach the paths below a 0700 directory. give adds an open file to
// those that boxd receives and returns its number.
func openTrees(mounts []wire.Mount, give func(*os.File) int) error {
	for i := range mounts {
		m := &mounts[i]
		if m.Source == "" {
			continue
		}
		tree, err := jail.OpenTree(*m)
		var st unix.Stat_t
		if err == nil {
			m.TreeFD = give(os.NewFile(uintptr(tree), m.Source))
			err = unix.Fstat(tree, &st)
		}
		if err != nil {
			return holdfast.Errorf(holdfast.KindUnavailable, op, "cannot mount the host's path %s in the box: %w", holdfast.Quote(m.Source), changed(err))
		}
		// The directory may have been replaced by a file since it was first checked, or the reverse.
		m.Source, m.File = "", st.Mode&unix.S_IFMT != unix.S_IFDIR
	}
	return nil
}
