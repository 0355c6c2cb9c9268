package wire

import "time"

// Config is the configuration that a driver sends boxd at its start, as JSON through the control
// socket (never in arguments or environment). Paths are those by which boxd reaches the files. Open
// files are sent with the JSON: a field for a file holds the file's position among them, from 1 on, until
// Control.Config replaces the position by the descriptor.
type Config struct {
	// Box is the box's id; empty for a ready boot, which waits for its Claim.
	Box string `json:"box"`
	// Listener is the socket on which boxd accepts servers.
	Listener int `json:"listener"`
	// State is the directory on disk for the fencing token (TokenFile), spools and saved
	// outcomes. boxd owns it, and tools cannot access it. StateFD is a descriptor of the same
	// directory, for a boxd that cannot reach it by its path.
	State     string `json:"state"`
	StateFD   int    `json:"state_fd,omitempty"`
	Workspace string `json:"workspace"`
	Home      string `json:"home"`
	Tmp       string `json:"tmp"`
	// Env is the base environment of every child, as NAME=value.
	Env []string `json:"env"`
	// Umask is the umask of processes and of file operations. Nil means 022 in a box with a jail. In a box without one,
	// nil means boxd's own umask, but 022 for the mode of a file that a write creates.
	Umask *uint32 `json:"umask,omitempty"`
	// SpoolBytes is how many bytes of one output stream boxd stores. If the output is longer, one half
	// of them is its beginning and the other half its end; for a line protocol see ExecRequest.Lines.
	SpoolBytes int64 `json:"spool_bytes"`
	// MaxHeld is how many unreleased calls boxd holds; beyond that new calls fail with busy.
	MaxHeld int `json:"max_held"`
	// OrphanAfter is how long boxd waits without a server before it stops the box; 0 means forever.
	OrphanAfter time.Duration `json:"orphan_after"`
	// Jail describes the isolation; nil for the host driver, which has none.
	Jail *Jail `json:"jail,omitempty"`
	// Lend makes this boxd a helper that never becomes a box. It has namespaces of its own, in which it clones this mount,
	// sends it with its JailStatus, and exits. A server of an ordinary user may not clone mounts itself.
	Lend *Mount `json:"lend,omitempty"`
}

// Mask returns the umask for a box that has a jail: Umask, or 022 if it is nil.
func (c *Config) Mask() uint32 {
	if c.Umask == nil {
		return 0o022
	}
	return *c.Umask & 0o777
}

// TokenFile is the name of the file in the state directory that holds the fencing token. A driver
// may create it in advance, empty and writable for boxd, because creating a file is slow on some
// disks.
const TokenFile = "token"

// Jail describes the isolation that boxd sets up: its mounts, the user that tools run as, the
// cgroup leaves for boxd and tools, and the protections that are required.
type Jail struct {
	Hostname string `json:"hostname"`
	// ToolUID is the uid and gid of tools in the box: 1000. SameUID is true if boxd has the
	// same ids (in the box of an ordinary user), so that it does not switch users.
	ToolUID int  `json:"tool_uid"`
	SameUID bool `json:"same_uid"`
	// Mounts are made in order below the new root, which then becomes the root (pivot_root).
	Mounts []Mount `json:"mounts"`
	// NofileSoft and NofileHard limit the open files of a process.
	// boxd applies these limits itself.
	NofileSoft uint64 `json:"nofile_soft"`
	NofileHard uint64 `json:"nofile_hard"`
	// WorkTasks are the cgroup v1 "tasks" files of the work leaf (the cgroup of the tools), one
	// for each controller, the freezer's first if there is one; BoxdTasks are those of boxd's own leaf, in
	// the same order. Writing 0 to such a file moves the calling thread into the cgroup.
	WorkTasks []int `json:"work_tasks,omitempty"`
	BoxdTasks []int `json:"boxd_tasks,omitempty"`
	// WorkCgroup is the directory of the work leaf on cgroup v2; 0 on cgroup v1.
	WorkCgroup int `json:"work_cgroup,omitempty"`
	// Counters are cgroup files of the work leaf that boxd reads, by name: "memory.events",
	// "pids.events", "memory.usage", "memory.limit", "pids.current", "pids.max", "cpu".
	Counters map[string]int `json:"counters,omitempty"`
	// RequireLandlock is true if boxd must not start on a kernel without Landlock.
	RequireLandlock bool `json:"require_landlock"`
	// BoxdProcs is the file "cgroup.procs" of boxd's own leaf on cgroup v2; 0 on cgroup v1. boxd moves
	// itself there after its forking thread has made a cgroup namespace that includes both leaves.
	BoxdProcs int `json:"boxd_procs,omitempty"`
	// InForce and Missing are the protections and limits that the driver itself verified; boxd
	// reports them in its Welcome.
	InForce []string `json:"in_force,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Shared describes the places of a box that several sessions use; nil for a box of one session.
	Shared *Shared `json:"shared,omitempty"`
	// RootTree is true if root of the host owns the workspace's files. boxd then proves, before it serves, that no
	// thread of tools can make a file set-uid or set-gid, or give it capabilities.
	RootTree bool `json:"root_tree,omitempty"`
	// Walls are path rules; nil means no rules.
	Walls *Walls `json:"walls,omitempty"`
	// Built are the walls that boxd has built; boxd sets it.
	Built []Wall `json:"-"`
}

// Shared describes what each session of a shared box has for itself: a home directory, which comes
// with its Join, and new, empty file systems. All lie at the usual paths, in a mount
// namespace that only the processes of this session have.
type Shared struct {
	// Private are the new, empty file systems that each session gets: mounts that have an FSType.
	Private []Mount `json:"private"`
	// Agent is the path at which a session has the directory of its agent.
	Agent string `json:"agent"`
}

// Mount is one mount of the box's root.
type Mount struct {
	// TreeFD is a detached mount made with open_tree; 0 if none is used.
	TreeFD int `json:"tree_fd,omitempty"`
	// Source is a host path that boxd bind-mounts itself before it changes the root. It is used
	// in the box of an ordinary user, where boxd has that user's access to the host's files.
	Source string `json:"source,omitempty"`
	FSType string `json:"fs_type,omitempty"`
	Data   string `json:"data,omitempty"`
	Target string `json:"target"`
	// Link, if set, makes Target a symbolic link to this path instead of a mount.
	Link string `json:"link,omitempty"`
	// Content, if set, makes Target a regular file with this text instead of a mount. It is sent
	// after the JSON, which contains only its Length.
	Content string `json:"-"`
	Length  int    `json:"length,omitempty"`
	// Dir, if set, makes Target an empty directory instead of a mount.
	Dir bool `json:"dir,omitempty"`
	// File is true if Target is a file, not a directory.
	File     bool `json:"file,omitempty"`
	ReadOnly bool `json:"read_only,omitempty"`
	NoExec   bool `json:"no_exec,omitempty"`
	// Flat leaves out the mounts below Source.
	Flat bool `json:"flat,omitempty"`
	// Dev allows device nodes in the mount; without it the mount is nodev. All are nosuid.
	Dev bool `json:"dev,omitempty"`
}

// Claim assigns a box to a ready boot: a boxd whose Config names no box, and which has set up its
// isolation, answered with a JailStatus and waited. After the Claim it answers with the
// JailStatus of the box, like any other boxd.
type Claim struct {
	Box         string        `json:"box"`
	Env         []string      `json:"env"`
	SpoolBytes  int64         `json:"spool_bytes"`
	OrphanAfter time.Duration `json:"orphan_after"`
	// InForce lists the limits that the driver has set, Missing those that it could not set.
	InForce []string `json:"in_force"`
	Missing []string `json:"missing"`
}

// JailStatus is boxd's message to the driver on the control socket. If Err is nil, boxd serves now, or
// waits for its Claim, and InForce and Missing list the protections that it has and lacks. If Err is
// set, it is why boxd cannot serve.
type JailStatus struct {
	Err     *Error   `json:"error,omitempty"`
	InForce []string `json:"in_force,omitempty"`
	Missing []string `json:"missing,omitempty"`
	// Walls are the walls that boxd built for Jail.Walls.
	Walls []Wall `json:"walls,omitempty"`
}
