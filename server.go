package holdfast

import "time"

// Server describes a running server.
type Server struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	// Driver names the driver that makes the boxes of untrusted sessions.
	Driver string `json:"driver"`
	// Boxes says whether this machine can run boxes for untrusted sessions, and which
	// protections it lacks.
	Boxes  BoxSupport `json:"boxes"`
	Models Models     `json:"models"`
	// DefaultRuntime is the runtime of sessions that name none.
	DefaultRuntime string    `json:"default_runtime"`
	Runtimes       []Runtime `json:"runtimes"`
	Limits         Limits    `json:"limits"`
	Disk           Disk      `json:"disk"`
}

// BoxSupport is what the driver of untrusted sessions found out about its machine.
type BoxSupport struct {
	// Usable is true if boxes can start. If not, Problem says why and Hint what to do.
	Usable  bool   `json:"usable"`
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Missing lists limits and protections that the boxes lack, each with the reason.
	Missing []string `json:"missing,omitempty"`
}

// Runtime is a way to run agents that a server offers.
type Runtime struct {
	Name string `json:"name"`
	// Version is the version of the installed agent CLI; empty for the native runtime and
	// for a CLI that is not installed.
	Version string `json:"version,omitempty"`
	// Problem says why sessions cannot use the runtime; empty if they can.
	Problem string `json:"problem,omitempty"`
}

// Limits are the limits of a server's boxes; 0 means no limit.
type Limits struct {
	// Boxes is how many boxes may run at once, Turns how many turns may use one box at once.
	Boxes int `json:"boxes"`
	Turns int `json:"turns"`
	// MemoryBytes and the fields after it limit each single box.
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	Pids        int64   `json:"pids"`
	TmpBytes    int64   `json:"tmp_bytes"`
	DiskBytes   int64   `json:"disk_bytes"`
}

// Disk describes the file system that holds the server's data directory.
type Disk struct {
	Bytes     int64 `json:"bytes"`
	FreeBytes int64 `json:"free_bytes"`
	// ReserveBytes is the space that has to stay free: if less is free, the server stops
	// boxes that write.
	ReserveBytes int64 `json:"reserve_bytes"`
	// Error says why the disk could not be measured; empty if it was.
	Error string `json:"error,omitempty"`
}
