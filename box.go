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
	// PID is boxd's process id on the host; 0 where the driver has none.
	PID       int       `json:"pid,omitempty"`
	Boot      string    `json:"boot,omitempty"`
	StartedAt time.Time `json:"started_at"`
	LastUsed  time.Time `json:"last_used_at"`
	// Calls is how many calls run in the box now; Queued how many wait.
	Calls  int `json:"calls"`
	Queued int `json:"queued"`
}
