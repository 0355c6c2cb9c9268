package local

import (
	"cmp"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

// Config configures a Driver.
type Config struct {
	// Home is the data directory. The driver stores its records, sockets, logs and the boxd
	// program in Home/run/local (0700).
	Home string
	// Boxd returns the static boxd program, as boxd.Local does.
	Boxd func() (boxd.Program, error)
	// RootDir is a directory that replaces the host's root: its top-level directories, such as usr, bin and lib, are
	// mounted in boxes, and selected files of its etc. If it is empty, boxes get those of the host.
	RootDir string
	// ReadOnly lists more host directories to mount in boxes: at the same path, as /opt, or at
	// another, as /srv/tools:/opt/tools.
	ReadOnly []string
	// LimitsMode is used for a Spec whose LimitsMode is empty; empty here means required.
	LimitsMode sandbox.LimitsMode
	// Landlock is used for a Spec whose Landlock is empty; empty here means required.
	Landlock sandbox.LandlockMode
	// RootTrees allows boxes in directories of root (Spec.RootTree).
	RootTrees bool
	// CgroupRoot is a cgroup v2 directory in which boxes get their cgroups. If empty, the driver
	// finds a place: below the server's own cgroup, or at the top if that is allowed.
	CgroupRoot string
	// ProbeUID is the first of the two host uids that Probe uses on a root server; 0 means
	// 1879048188, which is below the default uid_base.
	ProbeUID uint32
	// ReadyUID is the first host uid for ready boots of a root server, which uses two more for each boot it ever makes;
	// 0 means 2952790016, which is above the uids of the default uid_base.
	ReadyUID uint32
	// StartTimeout limits the time of a start, if its context allows more; 0 means 20 s.
	StartTimeout time.Duration
	Now          func() time.Time
	Rand         io.Reader
	// Owner is the owner id of the data directory: 16 hexadecimal digits.
	Owner string
}

const (
	op               = "driver.local"
	defaultProbeUID  = 1_879_048_188
	defaultReadyUID  = 2_952_790_016
	defaultStartTime = 20 * time.Second
)

// reserved are the names of top-level directories that boxes never get from the host or from RootDir as a whole.
var reserved = map[string]bool{
	"proc": true, "dev": true, "sys": true, "tmp": true, "run": true, "etc": true,
	"workspace": true, "tree": true, "home": true, "root": true, "boot": true, "lost+found": true,
}

func topOf(p string) string {
	top, _, _ := strings.Cut(strings.TrimPrefix(p, "/"), "/")
	return top
}

// bound splits an entry of ReadOnly into the host directory and the path where the box has it.
func bound(entry string) (source, target string) {
	// Split at the last colon: the host path may contain colons.
	i := strings.LastIndexByte(entry, ':')
	if i < 0 {
		return entry, entry
	}
	return entry[:i], entry[i+1:]
}

func (c *Config) check() error {
	bad := func(format string, args ...any) error {
		return holdfast.Errorf(holdfast.KindInvalid, op, format, args...)
	}
	if c.Home == "" || c.Boxd == nil || c.Now == nil || c.Rand == nil {
		return bad("the fields Home, Boxd, Now and Rand of the local driver's Config are required")
	}
	paths := []string{c.RootDir, c.CgroupRoot}
	for _, p := range c.ReadOnly {
		source, target := bound(p)
		paths = append(paths, source, target)
	}
	for _, p := range paths {
		if p != "" && (!filepath.IsAbs(p) || filepath.Clean(p) != p) {
			return bad("the path %s in the local driver's configuration is not a clean absolute path", holdfast.Quote(p))
		}
	}
	for _, p := range c.ReadOnly {
		if _, target := bound(p); reserved[topOf(target)] {
			return holdfast.Errorf(holdfast.KindInvalid, op, "nothing can be mounted at %s in a box: the box makes this directory itself", holdfast.Quote(target)).
				WithHint("mount it at another path in the box, as in /srv/tools:/opt/tools")
		}
	}
	if err := checkModes(c.LimitsMode, c.Landlock); err != nil {
		return err
	}
	c.LimitsMode, c.Landlock = cmp.Or(c.LimitsMode, sandbox.LimitsRequired), cmp.Or(c.Landlock, sandbox.LandlockRequired)
	c.ProbeUID, c.ReadyUID = cmp.Or(c.ProbeUID, defaultProbeUID), cmp.Or(c.ReadyUID, defaultReadyUID)
	if c.StartTimeout <= 0 {
		c.StartTimeout = defaultStartTime
	}
	return nil
}

// checkModes refuses modes that do not exist; an empty one means the default.
func checkModes(limits sandbox.LimitsMode, landlock sandbox.LandlockMode) error {
	switch limits {
	case "", sandbox.LimitsRequired, sandbox.LimitsBestEffort:
	default:
		return holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a mode of limits: required or best-effort", holdfast.Quote(string(limits)))
	}
	switch landlock {
	case "", sandbox.LandlockRequired, sandbox.LandlockBestEffort:
	default:
		return holdfast.Errorf(holdfast.KindInvalid, op, "%s is not a mode of Landlock: required or best-effort", holdfast.Quote(string(landlock)))
	}
	return nil
}
