package holdfast

import "time"

// BoxState is the state of a managed box as `containers list` shows it.
type BoxState string

// The box states.
const (
	BoxStarting BoxState = "starting"
	BoxRunning  BoxState = "running"
	BoxIdle     BoxState = "idle"
	BoxFrozen   BoxState = "frozen"
	BoxStopped  BoxState = "stopped"
)

// Container is the wire type of GET /v1/containers: a managed box.
type Container struct {
	ID      BoxID     `json:"id"`
	Driver  string    `json:"driver"`
	State   BoxState  `json:"state"`
	Session SessionID `json:"session_id,omitempty"`
	// PID is boxd's process id on the host; 0 if the driver runs no such process.
	PID       int       `json:"pid,omitempty"`
	Boot      string    `json:"boot,omitempty"`
	StartedAt time.Time `json:"started_at"`
	LastUsed  time.Time `json:"last_used_at"`
	// Calls is how many turns, and commands or file requests of people outside of turns, use the box now, Queued how many turns
	// wait for it.
	Calls  int `json:"calls"`
	Queued int `json:"queued"`
}

// Pruned is a box, or a leftover of a box, that a prune removes.
type Pruned struct {
	// Name is the box's id, or the name of a leftover file or cgroup of the driver.
	Name    string    `json:"name"`
	Driver  string    `json:"driver"`
	Session SessionID `json:"session_id,omitempty"`
	Reason  string    `json:"reason"`
}

// PrunedContainers is the answer to POST /v1/containers/prune: the boxes, and the leftovers of boxes, that the prune
// removed, or with DryRun would remove.
type PrunedContainers struct {
	DryRun bool     `json:"dry_run"`
	Pruned []Pruned `json:"pruned"`
}
