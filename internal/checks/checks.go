// Package checks checks the conditions that a server needs, or works better with, on its machine: directories,
// disk, address and kernel settings. `holdfast doctor` shows the results.
//
// internal/app and the command line import it. It changes nothing.
package checks

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Check is the result of checking one condition that a server needs or works better with.
type Check struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	// Fix is a command or advice that solves the problem; may be empty.
	Fix string `json:"fix,omitempty"`
}

// Around checks the surroundings of the drivers: directories, disk, address and kernel settings.
// It changes nothing.
func Around(cfg config.Config, probes []sandbox.Probe, server string) []Check {
	out := []Check{
		checkUntrusted(cfg.Driver, probes), checkData(cfg.Data), checkToken(cfg.Data),
		checkSpace(cfg.Data), checkSocket(cfg.Data), checkAddress(cfg.Listen, server),
	}
	if c, ok := checkRootTrees(cfg.Root.Trees == config.True, probes, os.Getuid()); ok {
		out = append(out, c)
	}
	if runtime.GOOS == "linux" {
		out = append(out, checkUserNamespaces(readText), checkCgroups(cfg.Limits.Mode, probes, readText, os.Getuid()))
	}
	return out
}

// Good returns the result of a check that found nothing wrong.
func Good(name, format string, args ...any) Check {
	return Check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)}
}

// Bad returns the result of a check that found a problem. fix is a command or advice that solves it.
func Bad(name, fix, format string, args ...any) Check {
	return Check{Name: name, Fix: fix, Detail: fmt.Sprintf(format, args...)}
}

// checkUntrusted checks that the driver isolates its boxes, as untrusted sessions need.
func checkUntrusted(driver string, probes []sandbox.Probe) Check {
	const name = "untrusted sessions"
	for _, p := range probes {
		if p.Driver == driver && p.Isolates {
			return Good(name, "run in boxes of driver %s", driver)
		}
	}
	return Bad(name, "holdfast serve --driver local, or for agents you would give a shell: --set default_trust=trusted",
		"untrusted sessions are refused: the driver %s does not isolate its boxes", driver)
}

// checkRootTrees says what the setting allow_root_trees means on this machine, if it is set.
func checkRootTrees(allowed bool, probes []sandbox.Probe, uid int) (c Check, ok bool) {
	const name = "directories of root"
	switch {
	case !allowed:
		return c, false
	case uid != 0:
		return Good(name, "allow_root_trees has no effect: the server does not run as root"), true
	}
	for _, p := range probes {
		for _, c := range p.Capabilities {
			if c.Name != "root-trees" {
				continue
			}
			if !c.OK {
				return Bad(name, c.Fix, "no box can have a directory of root, although allow_root_trees is set: %s", c.Detail), true
			}
			return Good(name, "sessions may work in directories of root (allow_root_trees): what root later runs or opens there, an agent may have written"), true
		}
	}
	return Bad(name, "holdfast serve --driver local", "no driver can give a directory of root to a box, although allow_root_trees is set"), true
}

func checkData(dir string) Check {
	const name = "data directory"
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if parent := existing(dir); unix.Access(parent, unix.W_OK|unix.X_OK) != nil {
			return Bad(name, "holdfast serve --data DIR", "%s cannot be made: you may not write to %s", dir, parent)
		}
		return Good(name, "%s will be made at the first start", dir)
	case err != nil:
		return Bad(name, "holdfast serve --data DIR", "%v", err)
	case !info.IsDir():
		return Bad(name, "holdfast serve --data DIR", "%s is not a directory", dir)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		return Bad(name, fmt.Sprintf("sudo chown -R %d %s", os.Getuid(), Quoted(dir)), "%s belongs to user %d, not to you (%d)", dir, st.Uid, os.Getuid())
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		return Bad(name, "chmod 700 "+Quoted(dir), "%s is open to others (%04o)", dir, mode)
	}
	return Good(name, "%s, closed to others", dir)
}

func checkToken(dir string) Check {
	const name = "owner token"
	path := filepath.Join(dir, "token")
	_, err := lifecycle.ReadToken(path)
	switch {
	case err == nil:
		return Good(name, "%s, closed to others", path)
	case holdfast.IsKind(err, holdfast.KindNotFound):
		return Good(name, "will be made at the first start")
	case holdfast.IsKind(err, holdfast.KindDenied):
		return Bad(name, "chmod 600 "+Quoted(path), "%v", err)
	}
	return Bad(name, "rm "+Quoted(path)+", then start the server again", "%v", err)
}

func checkSpace(dir string) Check {
	const name, least = "disk space", 1 << 30
	at := existing(dir)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil {
		return Bad(name, "holdfast serve --data DIR", "the free space of the disk with %s cannot be read: %v", at, err)
	}
	free, all := uint64(st.Bavail)*uint64(st.Bsize), uint64(st.Blocks)*uint64(st.Bsize)
	share := 0.0
	if all > 0 {
		share = 100 * float64(free) / float64(all)
	}
	detail := fmt.Sprintf("%.1f GiB of %.1f GiB are free (%.0f %%)", float64(free)/(1<<30), float64(all)/(1<<30), share)
	if free < least || share < 5 {
		return Bad(name, "free some, or choose another disk: holdfast serve --data DIR", "%s; boxes are stopped when it runs out", detail)
	}
	return Good(name, "%s", detail)
}

// checkSocket checks the length of socket paths: the kernel accepts no Unix socket path beyond
// 107 bytes.
func checkSocket(dir string) Check {
	const name, most = "socket path", 107
	longest := filepath.Join(dir, "run", "local", "0123456789abcdef.sock")
	if n := len(longest); n > most {
		return Bad(name, "holdfast serve --data SHORTER", "sockets below %s would have %d bytes, %d are allowed", dir, n, most)
	}
	return Good(name, "%d of %d bytes", len(longest), most)
}

// checkAddress checks that a server could listen on addr, or that the running server does.
// server is the address of the running server, or empty.
func checkAddress(addr, server string) Check {
	const name = "listen address"
	if reaches(addr, server) {
		return Good(name, "%s is used by the running server", addr)
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return Bad(name, "holdfast serve --listen 127.0.0.1:0", "%s is in use, perhaps by a holdfast server that runs already: curl http://%s/healthz", addr, addr)
		}
		return Bad(name, "holdfast serve --listen 127.0.0.1:4100", "%v", err)
	}
	_ = ln.Close()
	return Good(name, "%s is free", addr)
}

// reaches reports whether connections to address reach the server that listens on addr.
func reaches(addr, address string) bool {
	host, port, err := net.SplitHostPort(addr)
	to, toPort, err2 := net.SplitHostPort(address)
	if err != nil || err2 != nil || port != toPort {
		return false
	}
	ip, target := net.ParseIP(host), net.ParseIP(to)
	switch {
	case host == to, host == "", ip != nil && ip.IsUnspecified():
		return true
	case host == "localhost":
		return target != nil && target.IsLoopback()
	}
	return to == "localhost" && ip != nil && ip.IsLoopback()
}

// checkUserNamespaces finds a kernel setting that keeps the server's user from making boxes.
func checkUserNamespaces(read func(string) string) Check {
	const name = "user namespaces"
	for _, s := range []struct{ file, off, fix string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sudo sysctl -w user.max_user_namespaces=15000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sudo sysctl -w kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if read(s.file) == s.off && (os.Getuid() != 0 || strings.HasSuffix(s.file, "max_user_namespaces")) {
			return Bad(name, s.fix, "the kernel setting %s is %s", s.file, s.off)
		}
	}
	return Good(name, "allowed")
}

// checkCgroups checks whether limits on memory and processes can be enforced here.
func checkCgroups(mode sandbox.LimitsMode, probes []sandbox.Probe, read func(string) string, uid int) Check {
	const name = "limits of boxes"
	version := "cgroup v1"
	if read("/sys/fs/cgroup/cgroup.controllers") != "" {
		version = "cgroup v2"
	}
	for _, p := range probes {
		for _, c := range p.Capabilities {
			if c.Name != "cgroup-leaves" || c.OK {
				continue
			}
			fix := "run the server as root"
			if mode == sandbox.LimitsRequired {
				fix += ", or without limits: holdfast serve --set limits.mode=best-effort"
			}
			if version == "cgroup v2" && uid != 0 {
				fix = "systemd-run --user --scope -p Delegate=yes holdfast serve"
			}
			return Bad(name, fix, "limits of boxes cannot be enforced on %s: %s", version, c.Detail)
		}
	}
	return Good(name, "%s", version)
}

// existing returns the path itself if it exists, else the nearest directory above it that exists.
func existing(path string) string {
	for {
		if _, err := os.Stat(path); err == nil || path == filepath.Dir(path) {
			return path
		}
		path = filepath.Dir(path)
	}
}

// readText returns the trimmed content of a small file, or "" if it cannot be read.
func readText(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Quoted returns a path in the form that a shell takes as one word.
func Quoted(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
