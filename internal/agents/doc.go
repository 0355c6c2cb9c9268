// Package agents keeps deployed agents: it takes an agent's folder as a tar,
// checks it, stores it under the hash of its content, and gives its files,
// instructions and settings back.
//
// The app opens the Registry; engine and httpapi use it through interfaces of
// their own; the CLI packs folders with PackDir. It imports rooted, settings and
// the vocabulary. Invariants: a version is visible whole or not at all, wherever the
// machine stops; it never changes; what is read back has the hash it was stored
// under.
package agents

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

const (
	// MaxBytes is the most content a version may have.
	MaxBytes = 50 << 20
	// MaxFiles is the most files a version may have.
	MaxFiles = 5000
	// maxEntries bounds the entries of a tar, directories included.
	maxEntries = 4 * MaxFiles
	// maxPath and maxName bound a path and each of its components, in bytes.
	maxPath = 1000
	maxName = 255
	// maxInstructions is how much of CLAUDE.md or AGENTS.md a model is given.
	maxInstructions = 128 << 10
)

// instructions are the files an agent is recognised by, the first one found counts.
var instructions = [...]string{"CLAUDE.md", "AGENTS.md"}

// Store is what the registry keeps in the database. Unknown names are not_found.
type Store interface {
	// PutAgentVersion records a deployment as the agent's newest version; Number
	// and CreatedAt are the store's.
	PutAgentVersion(ctx context.Context, v holdfast.AgentVersion) (holdfast.Agent, error)
	Agent(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error)
	// Agents lists the deployed agents by name.
	Agents(ctx context.Context) ([]holdfast.Agent, error)
	// AgentVersions lists an agent's versions, newest first.
	AgentVersions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error)
	// UpdateAgent sets what wins over the settings of the agent's versions.
	UpdateAgent(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error)
	// DeleteAgent takes an agent out of the list; its versions stay.
	DeleteAgent(ctx context.Context, name holdfast.AgentName) error
}
