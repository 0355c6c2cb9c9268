package holdfast

import "time"

// Agent is a deployed agent: a name and its immutable versions.
type Agent struct {
	Name AgentName `json:"name"`
	// Version is the newest version's number, counting from 1.
	Version int64 `json:"version"`
	// VersionID is the newest version's content hash.
	VersionID VersionID `json:"version_id"`
	// Description, Model and Mode hold the value set by an update of the agent, else the value in the newest
	// version's settings; they are empty if neither sets one. New sessions that name no model or mode use these.
	Description string `json:"description,omitempty"`
	Model       string `json:"model,omitempty"`
	Mode        Mode   `json:"mode,omitempty"`
	// Runtime names the runtime in the newest version's settings; if it is empty, the
	// server's default runtime is used.
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
	// Settings are the settings in the version's holdfast.yaml and .claude/settings.json,
	// without permissions and hooks.
	Settings  AgentSettings `json:"settings,omitzero"`
	CreatedAt time.Time     `json:"created_at"`
}

// AgentSettings are an agent's defaults for its sessions. For an empty Runtime, Model or Mode the server chooses one.
type AgentSettings struct {
	Description string `json:"description,omitempty"`
	Runtime     string `json:"runtime,omitempty"`
	Model       string `json:"model,omitempty"`
	Mode        Mode   `json:"mode,omitempty"`
}

// Deployed is the result of a deployment: the agent as it is now. Notices name settings
// in the deployed folder that have no effect in Holdfast.
type Deployed struct {
	Agent
	// Unchanged is true if the folder equals the agent's newest version, so that no new version was made.
	Unchanged bool     `json:"unchanged,omitempty"`
	Notices   []string `json:"notices,omitempty"`
}

// UpdateAgent is the request to change an agent. A nil field stays as it is; an empty
// string resets the field to the value in the newest version's settings.
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

// DefaultAgent is the name of the built-in agent, which sessions use that name no agent.
const DefaultAgent AgentName = "default"
