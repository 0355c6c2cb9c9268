// Package sandbox is for authors of drivers, which start boxes, and of tools, which work in
// boxes. A box is an isolated place for processes and files; boxd is the program inside that
// carries out the server's requests. A Driver starts boxes, and may implement optional
// interfaces (Freezer, Holder, Prewarmer, Sweeper, Guard, Sharer, RootTrees); a Box is a connection
// to the boxd of a running box.
//
// It imports the wire protocol and the vocabulary, never a driver. Invariant (I-14): a box is
// reached only through a Box whose hello carried the server's fencing token.
package sandbox

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox/wire"
)

// Limits are the resource limits of a box. A zero field means the value in DefaultLimits.
type Limits struct {
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	Pids        int64   `json:"pids"`
	NofileSoft  uint64  `json:"nofile_soft"`
	NofileHard  uint64  `json:"nofile_hard"`
	TmpBytes    int64   `json:"tmp_bytes"`
	DiskBytes   int64   `json:"disk_bytes"`
}

// DefaultLimits returns the limits of a box that sets none: memory 4 GiB without swap, 2 CPUs,
// 512 processes, 4096/8192 open files (soft/hard), /tmp 512 MiB, disk 10 GiB.
func DefaultLimits() Limits {
	return Limits{MemoryBytes: 4 << 30, CPUs: 2, Pids: 512, NofileSoft: 4096, NofileHard: 8192, TmpBytes: 512 << 20, DiskBytes: 10 << 30}
}

// LimitsMode says what happens if a limit cannot be enforced on this machine.
type LimitsMode string

// If a limit cannot be enforced, a box with LimitsRequired does not start; a box with LimitsBestEffort
// starts, and Info.Missing lists the limit.
const (
	LimitsRequired   LimitsMode = "required"
	LimitsBestEffort LimitsMode = "best-effort"
)

// LandlockMode says whether a box may start on a kernel without Landlock.
type LandlockMode string

// On a kernel without Landlock, a box with LandlockRequired does not start if its tools run as a user of
// the host: if the server does not run as root, or if Spec.HostUser is set. Other boxes have users
// of their own, and start. A box with LandlockBestEffort starts, and Info.Missing lists the missing protections.
const (
	LandlockRequired   LandlockMode = "required"
	LandlockBestEffort LandlockMode = "best-effort"
)

// Spec holds everything that a driver needs to start a box. Ensure ignores it if the box runs
// already.
type Spec struct {
	Box holdfast.BoxID
	// Dir is the box's directory on the host. Ensure creates in it the directories that the box uses and that are
	// missing, such as workspace, home and state, each with the right owner.
	Dir string
	// Workspace is the host directory that becomes the box's workspace; empty: Dir/workspace.
	Workspace string
	// BoxdUID and ToolUID are the host uids of boxd and of the tools, ToolGID is the host gid of the tools; 0 means
	// ToolUID. Boxd's gid is BoxdUID. These ids are used only if the server runs as root; then BoxdUID and ToolUID must
	// not be 0 in an isolated box. A driver without isolation runs boxd, too, as ToolUID. If ToolUID is 0, it runs both as
	// the server's user, but a server that runs as root refuses that if Workspace or HostUser is set.
	BoxdUID, ToolUID, ToolGID uint32
	// HostUser is true if Workspace is a directory of a user of the host, who owns files outside of the box.
	HostUser bool
	// RootTree describes a Workspace that belongs to root of the host; nil if the Workspace belongs to another
	// user. A driver that does not implement RootTrees refuses a spec with a RootTree.
	RootTree *RootTree
	// Umask is the umask of the processes in the box, and of the files that file operations make. Nil means 022 in an
	// isolated box, and the server's own umask in a box without isolation.
	Umask *uint32

	Limits     Limits
	LimitsMode LimitsMode
	// Landlock says whether the box may start without Landlock, if its tools run as a user of the host; empty
	// means required.
	Landlock LandlockMode
	// OrphanAfter is how long boxd waits without a connection from a server before it ends the
	// box.
	OrphanAfter time.Duration
	// SpoolBytes is how many bytes of output boxd stores for each of stdout and stderr of a
	// call; 0 means boxd's default, 8 MiB.
	SpoolBytes int64
	// Agent is a host directory with the files of the session's agent; empty adds no directory. In an isolated box it
	// is mounted read-only at AgentDir. In a shared box it is not mounted for all (see Member.Agent). A box without
	// isolation has it at its own path on the host.
	Agent string
	// Tree is a host directory that the box has read-only at TreeDir, without file systems that are mounted below it.
	// Empty adds no directory. A driver that cannot keep every process of the box from writing refuses such a spec.
	Tree string
	// Shared is true if several sessions use the box, each with a home and temporary directories of
	// its own; then the box has none itself, and each session must Join before its first request.
	// A driver that does not implement Sharer refuses such a spec.
	Shared bool
	// Walls are path rules that the box's mounts enforce. A driver that cannot enforce them
	// refuses a spec with walls.
	Walls Walls
}

// Hash returns a short hash of the spec without Box, Dir and Walls, which have a hash of their own, and in a shared box
// without Agent, which each session brings when it joins. A running box whose Info.Spec is another hash differs from
// the spec.
func (s Spec) Hash() string {
	s.Box, s.Dir, s.Walls = "", "", Walls{}
	if s.Shared {
		s.Agent = ""
	}
	// Marshal cannot fail: the spec contains only texts, numbers and booleans.
	raw, _ := json.Marshal(s)
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// RootTree is a directory of root of the host. In a box its files are those of the tools, although no process of the
// box has an id of root.
type RootTree struct {
	// Inode is the number of the directory's inode: another directory in its place is refused. GID is its group.
	Inode uint64
	GID   uint32
}

// AgentDir is the path in a box at which it has the directory Spec.Agent.
const AgentDir = "/run/holdfast/agent"

// TreeDir is the path in a box at which it has the directory Spec.Tree.
const TreeDir = "/tree"

// Walls are path rules that a box enforces by its mounts; see wire.Walls.
type Walls = wire.Walls

// Capability is one feature of a driver, with the result of testing it on this machine.
type Capability struct {
	// Name identifies the feature and never changes: "user-namespace", "landlock", "seccomp",
	// "cgroup", "memory-limit", "pids-limit", "cpu-limit", "freeze", …
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Detail describes the test's result, or says why OK is false.
	Detail string `json:"detail"`
	// Fix says what to do if OK is false; empty if nothing helps.
	Fix string `json:"fix,omitempty"`
	// Required is true if the driver refuses to start an untrusted box without the feature.
	Required bool `json:"required"`
	// Note is true if the driver lacks the feature on every machine, so that nothing is to be
	// repaired.
	Note bool `json:"note,omitempty"`
}

// Probe says what a driver can do on this machine. It is found out by trying, not from version
// numbers.
type Probe struct {
	Driver       string       `json:"driver"`
	Usable       bool         `json:"usable"`
	Isolates     bool         `json:"isolates"`
	Capabilities []Capability `json:"capabilities"`
	// Reason says why the driver is not usable, Hint what to do about that.
	Reason string `json:"reason,omitempty"`
	Hint   string `json:"hint,omitempty"`
}

// Info is what a driver knows about a box.
type Info struct {
	Box     holdfast.BoxID `json:"box"`
	Running bool           `json:"running"`
	Frozen  bool           `json:"frozen"`
	PID     int            `json:"pid"`
	// Boot is the id of the box's current boot, new with each start; empty if not known.
	Boot      string    `json:"boot"`
	StartedAt time.Time `json:"started_at"`
	// Missing lists the limits and protections that the box lacks, each with the reason.
	Missing []string `json:"missing"`
	// Walls is the hash of the walls that the running box was started with, Spec the hash of the rest of its spec; Spec
	// is empty if it is not known.
	Walls string `json:"walls,omitempty"`
	Spec  string `json:"spec,omitempty"`
	// Tree is the Spec.Tree that the running box was started with.
	Tree string `json:"tree,omitempty"`
}

// Guard is implemented by drivers whose walls (the path rules of a box) can be removed from
// outside of the box, for example by a rename on the host. It detects such a removal.
type Guard interface {
	// WallsHold reports whether all walls of a running box are in force. It does no I/O:
	// it looks only at state that the driver keeps.
	WallsHold(box holdfast.BoxID) bool
}

// Sharer is implemented by drivers that can start shared boxes (Spec.Shared). The sessions of such
// a box have the same workspace, limits, network and loopback ports. Each sees at the usual paths its own home, and a
// /tmp, /dev/shm and /run/holdfast of its own, which are empty at first. It cannot get into those of another session.
type Sharer interface {
	// Join gives a session its place in a running shared box: its own home and temporary directories. If
	// the session has a place, it keeps it, so the server calls Join after each connection to the box, also
	// to one that an earlier server started. Requests of a session without a place fail with unavailable.
	// Box.Leave ends the place. Errors: not_found if the box does not run; invalid if the box is not
	// shared, or if the home is not a directory that the box's tools may own; conflict for the token of a
	// stale server; busy while the session is leaving.
	Join(ctx context.Context, box holdfast.BoxID, m Member) error
}

// RootTrees is implemented by drivers whose boxes can have a directory of root of the host.
type RootTrees interface {
	// TryRootTree fails unless boxes can have the directory dir. It mounts dir, and tests in a box that tools can neither
	// make files set-uid or set-gid nor give them capabilities. Errors: denied if the driver's configuration does not
	// allow directories of root, or if dir has such files; unavailable if kernel or file system do not support this
	// mount; conflict if dir is not the directory that tree describes.
	TryRootTree(ctx context.Context, dir string, tree RootTree) error
}

// Member is a session that joins a shared box.
type Member struct {
	Session holdfast.SessionID
	// Home is the session's home directory on the host, an absolute path; Join creates the missing
	// last part. It may lie anywhere: the box gets only this directory.
	Home string
	// Agent is a host directory that the session has read-only at AgentDir; empty: none.
	Agent string
	// Token is the fencing token with which the server has connected to the box.
	Token uint64
}

// Driver starts boxes and opens connections to the boxd inside. All methods are safe for
// concurrent use; the driver executes the calls for one box one after the other. Each call ends
// when ctx ends. Errors have a Kind: unavailable if the machine cannot do it, not_found for an
// unknown box.
type Driver interface {
	// Name returns the driver's name, as given to --driver.
	Name() string
	// Probe finds out what the driver can do on this machine. It leaves nothing behind.
	Probe(ctx context.Context) Probe
	// Ensure starts the box unless it runs already, also if an earlier server started it. It is
	// idempotent: concurrent calls start one box. After a failed start no part of the box is left. If Ensure cannot
	// find out whether the box runs, it fails and changes nothing.
	Ensure(ctx context.Context, spec Spec) (Info, error)
	// Connect opens a new connection to the boxd of a running box, on which no hello was sent.
	// A box that does not run is not_found. Busy means that the server cannot connect now, for example
	// because it has no file descriptors left; that says nothing about the box.
	Connect(ctx context.Context, box holdfast.BoxID) (net.Conn, error)
	// Stop ends the box and everything in it, and leaves no process, mount, cgroup or socket.
	// Directories stay. A frozen box is killed, then thawed. Stopping a stopped or unknown box
	// is not an error.
	Stop(ctx context.Context, box holdfast.BoxID) error
	// Remove does what Stop does, and also removes the driver's own records of the box. The directories
	// in Spec.Dir belong to the caller and stay.
	Remove(ctx context.Context, box holdfast.BoxID) error
	// List returns the boxes of this data directory, running or not, that the driver has
	// recorded. A process counts as a recorded box only if its owner id and start time match
	// the record, so that a reused pid is never mistaken for a box.
	List(ctx context.Context) ([]Info, error)
}

// Freezer is implemented by drivers that can freeze all processes of a box except boxd. The
// caller closes boxd's gate (Box.Gate) before Freeze and opens it after Thaw.
type Freezer interface {
	// Freeze suspends the processes and returns when all of them have stopped running.
	Freeze(ctx context.Context, box holdfast.BoxID) error
	// Thaw lets the processes run again. Thawing a box that is not frozen is not an error.
	Thaw(ctx context.Context, box holdfast.BoxID) error
}

// Holder is implemented by drivers that can measure the deleted files which processes of a box
// still have open. They take disk space, but a walk through the box's directories does not
// find them.
type Holder interface {
	// Held measures the files without a name that processes of the box have open or mapped
	// (each once, without memory-backed directories), and how many bytes the processes wrote
	// so far. Hidden is true if there may be more such files: in a process that cannot be
	// examined, in transit between processes, or beyond the number that is examined. A box
	// that does not run is not_found.
	Held(ctx context.Context, box holdfast.BoxID) (DiskUsage, error)
}

// DiskUsage is the disk space that a box uses, in bytes and in number of files. Hidden is true
// if there may be more, in places that could not be examined.
type DiskUsage struct {
	Bytes, Files int64
	Hidden       bool
	// Written is how many bytes the box's processes wrote so far, including data that was
	// deleted since, as far as this is known.
	Written int64
}

// Prewarmer is implemented by drivers that can start a boxd in advance, before it is known for
// which box it will be used. Such a boxd is called a ready boot. Safe for concurrent use.
type Prewarmer interface {
	// Prewarm starts or ends ready boots until n are free. The server calls it at its start and
	// after each start of a box, and with 0 when it ends.
	Prewarm(ctx context.Context, n int) error
	// Reserve assigns a ready boot with the limits of spec to a new box, if one is free. It then
	// has created the directory spec.Dir with the right owners, and returns spec with the uids
	// of the files in it, which the caller has to store. The next Ensure of the box uses the
	// ready boot; Stop and Remove end it; the directory stays in any case. If no such boot is
	// free, or something exists at spec.Dir, ok is false and nothing has happened. A second
	// call for the same box returns the same result.
	Reserve(spec Spec) (reserved Spec, ok bool)
}

// Sweeper is implemented by drivers that create more on the host than the records of their
// boxes: files, cgroups, ready boots.
type Sweeper interface {
	// Leftovers lists the things that dead servers and boxes left behind. It never lists a
	// thing that belongs to a recorded box, a living server, or a start in progress.
	Leftovers(ctx context.Context) ([]Leftover, error)
	// Sweep removes all leftovers and returns the removed ones. It is idempotent.
	Sweep(ctx context.Context) ([]Leftover, error)
}

// Leftover is one thing on the host that no longer belongs to any box or server.
type Leftover struct{ Name, Reason string }
