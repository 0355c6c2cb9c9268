package holdfast

import "time"

// Agent is a deployed agent: a name and its immutable versions.
type Agent struct {
	Name AgentName `json:"name"`
	// Version is the newest version's number, counting from 1.
	Version int64 `json:"version"`
	// VersionID is the newest version's content hash.
	VersionID VersionID `json:"version_id"`
	// Runtime is how the agent runs; "native" in this release.
	Runtime   string    `json:"runtime"`
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// AgentVersion is one immutable content-addressed state of an agent's folder.
type AgentVersion struct {
	Agent     AgentName   `json:"agent"`
	Number    int64       `json:"number"`
	ID        VersionID   `json:"id"`
	Files     []AgentFile `json:"files"`
	CreatedAt time.Time   `json:"created_at"`
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
