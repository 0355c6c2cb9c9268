package holdfast

import "time"

// Agent is a deployed agent: a name and its immutable versions.
type Agent struct {
	Name AgentName `json:"name"`
	// Version is the newest version's number, counting from 1.
	Version int64 `json:"version"`
	// VersionID is the newest version's content hash.
	VersionID VersionID `json:"version_id"`
	// Description, Model and Mode are what an update of the agent set, else what the
	// newest version's settings say; empty for neither. Sessions that name no model
	// or mode take these.
	Description string `json:"description,omitempty"`
	Model       string `json:"model,omitempty"`
	Mode        Mode   `json:"mode,omitempty"`
	// Runtime is how the agent runs, as its newest version says; empty leaves it to
	// the server.
	Runtime   string    `json:"runtime,omitempty"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// AgentVersion is one immutable content-addressed state of an agent's folder.
type AgentVersion struct {
	Agent  AgentName   `json:"agent"`
	Number int64       `json:"number"`
	ID     VersionID   `json:"id"`
	Files  []AgentFile `json:"files"`
	// Settings are what the version's holdfast.yaml and .claude/settings.json say
	// beside permissions and hooks.
	Settings  AgentSettings `json:"settings,omitzero"`
	CreatedAt time.Time     `json:"created_at"`
}

// AgentSettings are the choices for an agent's sessions; empty ones leave the
// server's.
type AgentSettings struct {
	Description string `json:"description,omitempty"`
	Runtime     string `json:"runtime,omitempty"`
	Model       string `json:"model,omitempty"`
	Mode        Mode   `json:"mode,omitempty"`
}

// Deployed is an agent after a deployment. Notices say what of the folder's
// settings means nothing here.
type Deployed struct {
	Agent
	// Unchanged: the folder is the agent's newest version, and no other was made.
	Unchanged bool     `json:"unchanged,omitempty"`
	Notices   []string `json:"notices,omitempty"`
}

// UpdateAgent is the request to change an agent; nil leaves a field, empty goes
// back to what the newest version says.
type UpdateAgent struct {
	Description *string `json:"description,omitempty" doc:"For people; empty: the version's own again."`
	Model       *string `json:"model,omitempty" doc:"PROVIDER/MODEL of new sessions; empty: the version's own again."`
	Mode        *string `json:"mode,omitempty" doc:"The mode of new sessions; empty: the version's own again."`
}

// AgentFile is one file of a version.
type AgentFile struct {
	// Path is relative, slash-separated and clean.
	Path string `json:"path"`
	Size int64  `json:"size"`
	// Mode is 0644 or 0755.
	Mode   uint32 `json:"mode"`
	SHA256 string `json:"sha256"`
}

// DefaultAgent is the built-in agent of a session that names none.
const DefaultAgent AgentName = "default"
