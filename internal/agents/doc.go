// Package agents stores deployed agents: it receives an agent's folder as a tar, checks it, stores
// it under the hash of its content, and returns its files, instructions and settings.
//
// The app opens the Registry; engine and httpapi use it through interfaces of their own; the CLI
// packs folders with PackDir. It imports durable, rooted, settings, folder, versions, policy and the vocabulary.
// Invariants: a version is visible completely or not at all, wherever the machine stops; it never
// changes; content that is read has the hash that it was stored under.
package agents

import (
	"context"

	"github.com/holdfast-run/holdfast"
)

const (
	// MaxBytes is the largest total content of a version, in bytes.
	MaxBytes = 50 << 20
	// MaxFiles is the largest number of files of a version.
	MaxFiles = 5000
	// maxEntries is the largest number of entries of a tar, directories included.
	maxEntries = 4 * MaxFiles
	// maxPath and maxName are the largest lengths of a path and of each of its components, in bytes.
	maxPath = 1000
	maxName = 255
	// maxInstructions is the largest part of CLAUDE.md or AGENTS.md that a model gets, in bytes.
	maxInstructions = 128 << 10
)

// instructions are the files of which an agent's folder must have one; the first one found is used.
var instructions = [...]string{"CLAUDE.md", "AGENTS.md"}

// Store keeps the registry's records in the database. Unknown names are not_found.
type Store interface {
	// PutAgentVersion records a deployment as the agent's newest version; the store sets Number and
	// CreatedAt.
	PutAgentVersion(ctx context.Context, v holdfast.AgentVersion) (holdfast.Agent, error)
	Agent(ctx context.Context, name holdfast.AgentName) (holdfast.Agent, error)
	// Agents lists the deployed agents by name.
	Agents(ctx context.Context) ([]holdfast.Agent, error)
	// AgentVersions lists an agent's versions, newest first.
	AgentVersions(ctx context.Context, name holdfast.AgentName) ([]holdfast.AgentVersion, error)
	// UpdateAgent sets values that override the settings of the agent's versions.
	UpdateAgent(ctx context.Context, name holdfast.AgentName, req holdfast.UpdateAgent) (holdfast.Agent, error)
	// DeleteAgent removes an agent from the list; its versions stay stored.
	DeleteAgent(ctx context.Context, name holdfast.AgentName) error
}
