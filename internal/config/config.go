// Package config loads the server's settings: one typed value made from flags,
// environment, a YAML file and defaults, in that order of precedence.
//
// cmd and app import it; it imports the vocabulary, the sandbox's limits and
// the YAML reader. It reads the environment only through a function that the
// caller passes. Invariant: a Config that Load returned is valid as a whole; an
// unknown key, a value out of range or a contradiction is refused with an error
// that names it.
package config

import (
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Config holds every setting of `holdfast serve`. docs/config.md describes each
// key; values are set only through the table in keys.go.
type Config struct {
	// Listen is the address of the HTTP API, host:port; port 0 picks a free one.
	Listen string
	// MetricsListen is the address of a separate listener that serves the metrics
	// without a token; empty starts none.
	MetricsListen string
	// Hosts and Origins are further host names and web origins that the API
	// accepts when it listens on loopback; nil allows only loopback's own.
	Hosts, Origins []string
	// RateLimit is the most requests of a key per second, AuthFailures the most
	// requests from an address per minute that fail to authenticate, MaxConnections
	// the most connected clients. 0 in one of the first two sets no limit.
	RateLimit, AuthFailures, MaxConnections int
	// Data is the data directory, absolute and clean.
	Data string
	// Driver is the name of the driver that starts untrusted sessions' boxes: local, host or mem.
	Driver string
	// Store is the kind of store for the server's state: sqlite.
	Store string
	// RootDir is the directory that boxes get as their root file system; empty builds
	// one from an allow-list of the host's programs and libraries.
	RootDir string

	DefaultTrust   holdfast.Trust
	DefaultModel   string
	DefaultRuntime string

	Permissions Permissions
	// Hooks are the hooks of the server's owner. Their commands run on the host unless set otherwise.
	Hooks hook.Config
	// Webhooks are the receivers of events by HTTP.
	Webhooks []Webhook
	// ACP are the configured agents that speak the Agent Client Protocol, by name.
	ACP map[string]ACPAgent

	Models  Models
	Network Network
	Limits  Limits

	// MaxBoxes is how many boxes may run at once, MaxTurns how many turns may use one
	// box at once, Prewarm how many boxes are started ahead for new sessions.
	MaxBoxes, MaxTurns, Prewarm int
	// ClaudeWarm is how many Claude Code agents may be started ahead of their session's first turn.
	ClaudeWarm int
	// FreezeAfter and StopAfter are the times after which an idle box is frozen and
	// stopped; OrphanAfter is the time after which a box without a server stops
	// itself. 0 is never.
	FreezeAfter, StopAfter, OrphanAfter time.Duration

	OnStart    OnStart
	OnShutdown OnShutdown
	// DrainTimeout is how long running turns get to finish at shutdown.
	DrainTimeout time.Duration
	// TurnSilence is the time without progress after which a turn is interrupted.
	TurnSilence time.Duration
	// ApprovalTimeout is how long a question to a person stays open; 0 is for ever.
	ApprovalTimeout time.Duration

	// UIDBase is the first host uid of boxes when the server runs as root.
	UIDBase uint32
	// DiskReserve is the part of the data directory's disk that stays free, in
	// percent; DiskPoll is how often the disk is checked.
	DiskReserve float64
	DiskPoll    time.Duration
	// SpoolBytes is the most output that is kept of one output stream of a call.
	SpoolBytes Size
	// Tail is how many recent events of a followed session stay in memory.
	Tail int

	LogFormat string
	LogLevel  string
}

// Permissions are the server's rules for tool calls, such as Bash(git *), and the path of the
// file of sandbox settings, empty for none.
type Permissions struct {
	Allow, Ask, Deny []string
	Sandbox          string
}

// Limits are the limits of each box.
type Limits struct {
	Memory     Size
	CPUs       float64
	Pids       int64
	NofileSoft uint64
	NofileHard uint64
	Tmp        Size
	Disk       Size
	// Copy is the largest content that one operation may copy into a session.
	Copy Size
	// Mode tells whether a box may start if a limit cannot be enforced.
	Mode sandbox.LimitsMode
	// Landlock tells whether a box of a server without root may start on a kernel without
	// Landlock. Its key is landlock, not limits.landlock.
	Landlock sandbox.LandlockMode
}

// Box returns the limits as the type that drivers use.
func (l Limits) Box() sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes: int64(l.Memory), CPUs: l.CPUs, Pids: l.Pids,
		NofileSoft: l.NofileSoft, NofileHard: l.NofileHard,
		TmpBytes: int64(l.Tmp), DiskBytes: int64(l.Disk),
	}
}

// OnStart tells what the server does at its start with boxes that a former server left running.
type OnStart string

// StartAdopt reconnects to the boxes, StartStop stops them.
const (
	StartAdopt OnStart = "adopt"
	StartStop  OnStart = "stop"
)

// OnShutdown tells what the server does with running boxes when it shuts down.
type OnShutdown string

// ShutdownStop stops the boxes after the drain, ShutdownKeep leaves them for the next server.
const (
	ShutdownStop OnShutdown = "stop"
	ShutdownKeep OnShutdown = "keep"
)

// Defaults returns the configuration in which every setting has its default. Only the data directory
// is empty.
func Defaults() Config {
	box := sandbox.DefaultLimits()
	return Config{
		Listen:         "127.0.0.1:4100",
		RateLimit:      10_000,
		AuthFailures:   30,
		MaxConnections: 8192,
		Driver:         "local",
		Store:          "sqlite",
		DefaultTrust:   holdfast.Untrusted,
		DefaultModel:   "auto",
		DefaultRuntime: "native",
		Models:         defaultModels(),
		Network:        Network{Content: Off},
		Limits: Limits{
			Memory: Size(box.MemoryBytes), CPUs: box.CPUs, Pids: box.Pids,
			NofileSoft: box.NofileSoft, NofileHard: box.NofileHard,
			Tmp: Size(box.TmpBytes), Disk: Size(box.DiskBytes), Copy: 20 << 30,
			Mode: sandbox.LimitsRequired, Landlock: sandbox.LandlockRequired,
		},
		MaxBoxes: 64, MaxTurns: 3,
		FreezeAfter: time.Minute, StopAfter: 15 * time.Minute, OrphanAfter: time.Hour,
		OnStart: StartAdopt, OnShutdown: ShutdownStop,
		DrainTimeout: 30 * time.Second, TurnSilence: 15 * time.Minute, ApprovalTimeout: 10 * time.Minute,
		UIDBase: 1_879_048_192, SpoolBytes: 16 << 20, Tail: 256,
		DiskReserve: 5, DiskPoll: 2 * time.Second,
		LogFormat: "text", LogLevel: "info",
	}
}
