package wire

import "time"

// Config is what a driver hands to boxd at its start, as one frame of JSON through
// the control socket (never argv or environment). Paths are boxd's own view. Open
// files travel with it: a field that names one holds its place among them, from 1
// on, until Control.Config has put the descriptor there.
type Config struct {
	// Box is empty for a ready boot, which waits for its Claim.
	Box string `json:"box"`
	// Listener is the listening socket.
	Listener int `json:"listener"`
	// State is the directory for the token (TokenFile), spools and flushed outcomes;
	// on disk, owned by boxd, invisible to tools. StateFD is the same, opened: for a
	// boxd that cannot reach it by a path.
	State     string `json:"state"`
	StateFD   int    `json:"state_fd,omitempty"`
	Workspace string `json:"workspace"`
	Home      string `json:"home"`
	Tmp       string `json:"tmp"`
	// Env is the base environment of every child, as NAME=value.
	Env []string `json:"env"`
	// SpoolBytes caps the spool of one output stream: half head, half tail.
	SpoolBytes int64 `json:"spool_bytes"`
	// MaxHeld is how many unreleased calls are held before new ones are refused with busy.
	MaxHeld int `json:"max_held"`
	// OrphanAfter stops the box when no server connects for that long; 0 is never.
	OrphanAfter time.Duration `json:"orphan_after"`
	// Jail is nil for the host driver: no isolation.
	Jail *Jail `json:"jail,omitempty"`
}

// TokenFile is the fencing token in the state directory. A driver may make it
// ahead, empty and writable for boxd: on some disks making a file takes long.
const TokenFile = "token"

// Jail is the box around boxd: what it mounts, whom it runs tools as, which
// leaves and protections it must use.
type Jail struct {
	Hostname string `json:"hostname"`
	// ToolUID is the uid and gid of tools inside: 1000. SameUID: boxd has it too
	// (an ordinary user's box), so there is nothing to switch to.
	ToolUID int  `json:"tool_uid"`
	SameUID bool `json:"same_uid"`
	// Mounts are applied in order below the new root, then the root is pivoted.
	Mounts []Mount `json:"mounts"`
	// TmpBytes and the pids, memory and file limits that boxd itself applies.
	TmpBytes   int64  `json:"tmp_bytes"`
	NofileSoft uint64 `json:"nofile_soft"`
	NofileHard uint64 `json:"nofile_hard"`
	// WorkTasks are cgroup v1 "tasks" files of the work leaf, one per controller;
	// BoxdTasks those of boxd's own leaf, in the same order. Writing 0 moves the
	// calling thread.
	WorkTasks []int `json:"work_tasks,omitempty"`
	BoxdTasks []int `json:"boxd_tasks,omitempty"`
	// WorkCgroup is the work leaf's directory on cgroup v2; 0 without.
	WorkCgroup int `json:"work_cgroup,omitempty"`
	// Counters are readable cgroup files of the work leaf by name: "memory.events",
	// "pids.events", "memory.usage", "memory.limit", "pids.current", "pids.max", "cpu".
	Counters map[string]int `json:"counters,omitempty"`
	// RequireLandlock and RequireSeccomp refuse to start without them.
	RequireLandlock bool `json:"require_landlock"`
	RequireSeccomp  bool `json:"require_seccomp"`
	// BoxdProcs is the "cgroup.procs" of boxd's own leaf on cgroup v2; 0 without.
	// boxd moves itself there after its cgroup namespace was rooted above both leaves.
	BoxdProcs int `json:"boxd_procs,omitempty"`
	// InForce and Missing are what the driver itself verified, for the Welcome.
	InForce []string `json:"in_force,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Walls are path rules; nil means none, and costs nothing.
	Walls *Walls `json:"walls,omitempty"`
	// Built are the walls that boxd built; set once they are built.
	Built []Wall `json:"-"`
}

// Mount is one mount of the box's root.
type Mount struct {
	// TreeFD is a detached mount from open_tree; 0 without.
	TreeFD int `json:"tree_fd,omitempty"`
	// Source is a host path that boxd binds itself before the root is pivoted: the
	// way of an ordinary user's box, whose boxd may open what its user may.
	Source string `json:"source,omitempty"`
	FSType string `json:"fs_type,omitempty"`
	Data   string `json:"data,omitempty"`
	Target string `json:"target"`
	// Link makes Target a symlink to this instead of a mount.
	Link string `json:"link,omitempty"`
	// Content makes Target a regular file of the root with this text instead of a
	// mount. It travels behind the JSON, which has its Length.
	Content string `json:"-"`
	Length  int    `json:"length,omitempty"`
	// Dir makes Target a plain directory of the root instead of a mount.
	Dir bool `json:"dir,omitempty"`
	// File: the target is a file, not a directory.
	File     bool `json:"file,omitempty"`
	ReadOnly bool `json:"read_only,omitempty"`
	NoExec   bool `json:"no_exec,omitempty"`
	// Dev allows device nodes; otherwise nodev. All mounts are nosuid.
	Dev bool `json:"dev,omitempty"`
}

// Claim gives a ready boot its box. A ready boot is a boxd whose Config names no
// box: it closes its jail, answers with a JailStatus and waits. The status of the box
// itself follows, as it does for any other.
type Claim struct {
	Box         string        `json:"box"`
	Env         []string      `json:"env"`
	SpoolBytes  int64         `json:"spool_bytes"`
	OrphanAfter time.Duration `json:"orphan_after"`
	// InForce and Missing are the limits, as the driver found them.
	InForce []string `json:"in_force"`
	Missing []string `json:"missing"`
}

// JailStatus is what boxd tells the driver through the control socket, which it then
// closes: that it serves from here on and what protects the box, or why it cannot.
type JailStatus struct {
	Err     *Error   `json:"error,omitempty"`
	InForce []string `json:"in_force,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Walls are those that boxd built for Jail.Walls.
	Walls []Wall `json:"walls,omitempty"`
}
