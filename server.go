package holdfast

import "time"

// Server describes a running server.
type Server struct {
	Version   string    `json:"version"`
	PID       int       `json:"pid"`
	StartedAt time.Time `json:"started_at"`
	// Driver makes the boxes of untrusted sessions.
	Driver string `json:"driver"`
	// Boxes says whether untrusted sessions can have boxes here, and what is missing.
	Boxes  BoxSupport `json:"boxes"`
	Models Models     `json:"models"`
	// DefaultRuntime is the runtime of sessions that name none.
	DefaultRuntime string    `json:"default_runtime"`
	Runtimes       []Runtime `json:"runtimes"`
	Limits         Limits    `json:"limits"`
	Disk           Disk      `json:"disk"`
}

// BoxSupport is what the driver of untrusted sessions measured on its machine.
type BoxSupport struct {
	// Usable: boxes can start. If not, Problem says why and Hint what to do.
	Usable  bool   `json:"usable"`
	Problem string `json:"problem,omitempty"`
	Hint    string `json:"hint,omitempty"`
	// Missing are limits and protections that boxes start without, each with its reason.
	Missing []string `json:"missing,omitempty"`
}

// Runtime is a way to run agents that a server offers.
type Runtime struct {
	Name string `json:"name"`
	// Version is that of the installed agent CLI. It is empty for the server's own agent,
	// and for a CLI that is not installed.
	Version string `json:"version,omitempty"`
	// Problem says why sessions cannot use it; empty if they can.
	Problem string `json:"problem,omitempty"`
}

// Limits are the bounds of a server's boxes; 0 is none.
type Limits struct {
	// Boxes may run at once, and Turns may use one box at once.
	Boxes int `json:"boxes"`
	Turns int `json:"turns"`
	// The rest is for each box.
	MemoryBytes int64   `json:"memory_bytes"`
	CPUs        float64 `json:"cpus"`
	Pids        int64   `json:"pids"`
	TmpBytes    int64   `json:"tmp_bytes"`
	DiskBytes   int64   `json:"disk_bytes"`
}

// Disk is the disk of the data directory.
type Disk struct {
	Bytes     int64 `json:"bytes"`
	FreeBytes int64 `json:"free_bytes"`
	// ReserveBytes stay free: the server stops boxes before they take them.
	ReserveBytes int64 `json:"reserve_bytes"`
	// Error says why the disk was not measured.
	Error string `json:"error,omitempty"`
}
