// Package sandbox is for those who write a driver, which starts boxes, and for those who
// write a tool, which does something in one. A box is an isolated place for processes and
// files; boxd is the program in it that carries out what a server asks for. A Driver starts
// boxes, and may have optional powers (Freezer, Holder, Prewarmer, Sweeper, Guard); a Box is a
// connection to the boxd of one.
//
// It imports the wire protocol and the vocabulary, never a driver. Invariant (I-14): a box is
// reached only through a Box whose hello carried the server's fencing token.
package sandbox

import (
	"context"
	"net"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Limits are a box's limits. Zero fields take the defaults of DefaultLimits.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	Pids        int64   `json:"pids"`
	NofileSoft  uint64  `json:"nofile_soft"`
	NofileHard  uint64  `json:"nofile_hard"`
	TmpBytes    int64   `json:"tmp_bytes"`
	DiskBytes   int64   `json:"disk_bytes"`
}

// DefaultLimits are the limits of a box that names none: memory 4 GiB without
// swap, 2 CPUs, 512 pids, 4096/8192 files, /tmp 512 MiB, disk 10 GiB.
func DefaultLimits() Limits {
	return Limits{MemoryBytes: 4 << 30, CPUs: 2, Pids: 512, NofileSoft: 4096, NofileHard: 8192, TmpBytes: 512 << 20, DiskBytes: 10 << 30}
}

// LimitsMode says what happens when a limit cannot be enforced.
type LimitsMode string

// Required refuses to start the box; BestEffort starts it and lists what is missing.
const (
	LimitsRequired   LimitsMode = "required"
	LimitsBestEffort LimitsMode = "best-effort"
)

// LandlockMode says how a box starts on a kernel without Landlock.
type LandlockMode string

// Required refuses to start a box that would need Landlock to protect the user that the
// server runs as. Boxes of a root server have users of their own, and start. BestEffort
// starts the box and lists the missing walls.
const (
	LandlockRequired   LandlockMode = "required"
	LandlockBestEffort LandlockMode = "best-effort"
)

// Spec is everything a driver needs to start a box. If the box runs already, Ensure ignores
// the spec.
type Spec struct {
	Box holdfast.BoxID
	// Dir is the box's directory on the host. Ensure creates workspace, home and state below
	// it, each with the right owner, when they are missing.
	Dir string
	// Workspace is the directory that the box shows as its workspace; empty is Dir/workspace.
	Workspace string
	// BoxdUID and ToolUID are the host uids (and gids) of boxd and of the tools, if the server
	// runs as root; other servers ignore them. Never 0.
	BoxdUID, ToolUID uint32
	Limits           Limits
	LimitsMode       LimitsMode
	// Landlock says whether the box may start without Landlock; empty is required.
	Landlock LandlockMode
	// OrphanAfter is how long boxd runs without a connection of a server; then the box ends.
	OrphanAfter time.Duration
	// SpoolBytes is how much output of a call boxd keeps, for each stream; 0 is boxd's
	// default, 8 MiB.
	SpoolBytes int64
	// Agent is a directory of the host with the files of the session's agent. The box shows
	// it at AgentDir, and nothing in the box can write there. Empty shows nothing. A driver
	// without walls ignores it.
	Agent string
	// Walls are path rules that the box's mounts enforce. A driver that cannot build walls
	// refuses a spec that has some.
	Walls Walls
}

// AgentDir is where a box shows Spec.Agent.
const AgentDir = "/run/holdfast/agent"

// Walls are path rules that a box enforces by its mounts; see wire.Walls.
type Walls = wire.Walls

// Capability is one measured ability of a driver on this machine.
type Capability struct {
	// Name is stable: "user-namespace", "landlock", "seccomp", "cgroup", "memory-limit",
	// "pids-limit", "cpu-limit", "freeze", …
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail is what was found, or the reason when OK is false.
	Detail string `json:"detail"`
	// Fix is what to do when OK is false; empty when nothing helps.
	Fix string `json:"fix,omitempty"`
	// Required: the driver refuses to start an untrusted box without it.
	Required bool `json:"required"`
	// Note: the driver never has this ability, on any machine; there is nothing to repair.
	Note bool `json:"note,omitempty"`
}

// Probe is what a driver can do on this machine, as measured by trying it, not concluded from
// versions.
type Probe struct {
	Driver       string       `json:"driver"`
	Usable       bool         `json:"usable"`
	Isolates     bool         `json:"isolates"`
	Capabilities []Capability `json:"capabilities"`
	// Reason and Hint say why the driver is not usable.
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// Info is what a driver knows of a box.
type Info struct {
	Box     holdfast.BoxID `json:"box"`
	Running bool           `json:"running"`
	Frozen  bool           `json:"frozen"`
	PID     int            `json:"pid"`
	// Boot is the id of this start of the box; empty if the driver does not know it.
	Boot      string    `json:"boot"`
	StartedAt time.Time `json:"started_at"`
	// Missing lists the limits and protections that are not in force, with reasons.
	Missing []string `json:"missing"`
	// Walls is the hash of the walls that the running box was started with.
	Walls string `json:"walls,omitempty"`
}

// Guard is implemented by drivers whose walls can be removed from outside of the box, by a
// rename on the host for example. It reports a removal.
type Guard interface {
	// WallsHold reports whether all walls of a running box are in force. It does no I/O:
	// it looks only at state that the driver keeps.
	WallsHold(box holdfast.BoxID) bool
}

// Driver starts boxes and opens pipes to the boxd inside. All methods are safe for concurrent
// use; the driver runs the calls for one box one after the other. Each call ends when ctx does.
// Errors have a Kind: unavailable when the machine cannot do it, not_found for an unknown box.
type Driver interface {
	// Name is the driver's name as in --driver.
	Name() string
	// Probe measures what the driver can do on this machine. It leaves nothing behind.
	Probe(ctx context.Context) Probe
	// Ensure starts the box, or finds it running (after a server restart too).
	// It is idempotent: concurrent calls start one box. On error nothing is left.
	Ensure(ctx context.Context, spec Spec) (Info, error)
	// Connect opens a new pipe to the running box's boxd, before any hello.
	// A box that does not run is not_found.
	Connect(ctx context.Context, box holdfast.BoxID) (net.Conn, error)
	// Stop ends the box and everything in it, and leaves no process, mount,
	// cgroup or socket. Directories stay. A frozen box is killed, then thawed.
	// Stopping a stopped or unknown box is no error.
	Stop(ctx context.Context, box holdfast.BoxID) error
	// Remove is Stop plus the driver's own records of the box. The directories
	// of Spec.Dir belong to the caller and stay.
	Remove(ctx context.Context, box holdfast.BoxID) error
	// List returns the boxes of this data directory, running or not, that the driver has
	// records of. A process counts as a box only if its owner id and start time are those of
	// the record, so that a reused pid is never taken for a box.
	List(ctx context.Context) ([]Info, error)
}

// Freezer is implemented by drivers that can freeze all processes of a box but boxd. The
// caller closes boxd's gate before Freeze and opens it after Thaw: see Box.Gate.
type Freezer interface {
	// Freeze returns when every such process stands still.
	Freeze(ctx context.Context, box holdfast.BoxID) error
	// Thaw lets them run again. A box that is not frozen is no error.
	Thaw(ctx context.Context, box holdfast.BoxID) error
}

// Holder is implemented by drivers that can measure the deleted files that the processes of a
// box still have open: a walk through its directories does not find them.
type Holder interface {
	// Held measures the files without a name that processes of the box have open or
	// mapped, each once, outside of its memory-backed directories, and how much its
	// processes wrote so far. Hidden: there may be more, in a process that cannot be
	// looked into, on its way from one to another, or beyond what is looked at. A box
	// that does not run is not_found.
	Held(ctx context.Context, box holdfast.BoxID) (DiskUsage, error)
}

// DiskUsage is the disk space that a box takes, in bytes and in files. Hidden: there may be
// more, in places that could not be looked at.
type DiskUsage struct {
	Bytes, Files int64
	Hidden       bool
	// Written is how many bytes its processes wrote so far, deleted ones included, as far as
	// it is known.
	Written int64
}

// Prewarmer is implemented by drivers that can start a boxd ahead, before it is known for
// which box: a ready boot. Safe for concurrent use.
type Prewarmer interface {
	// Prewarm starts or ends ready boots until n are free. The server calls it at its
	// start, after each start of a box, and with 0 at its end.
	Prewarm(ctx context.Context, n int) error
	// Reserve gives a new box a ready boot that has the limits of spec, if there is one. Then
	// spec.Dir, where nothing was, is a directory with the right owners, and reserved is spec
	// with the uids of its files, which the caller has to keep. The next Ensure of the box uses
	// the boot; Stop and Remove end it; the directory stays in any case. If there is no such
	// boot, or something exists at spec.Dir, ok is false and nothing happened. A second call
	// for the same box returns the same.
	Reserve(spec Spec) (reserved Spec, ok bool)
}

// Sweeper is implemented by drivers that keep more on the host than the records of their
// boxes: files, cgroups, ready boots.
type Sweeper interface {
	// Leftovers lists what servers and boxes that are gone left behind: never anything
	// of a recorded box, of a living server, or of a start under way.
	Leftovers(ctx context.Context) ([]Leftover, error)
	// Sweep removes what Leftovers finds and returns what it removed. Idempotent.
	Sweep(ctx context.Context) ([]Leftover, error)
}

// Leftover is one thing on the host that no box or server owns any more.
type Leftover struct{ Name, Reason string }
