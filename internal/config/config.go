// Package config is the server's settings: one typed value made from flags,
// environment, a YAML file and defaults, in that order of precedence.
//
// cmd and app import it; it imports the vocabulary, the sandbox's limits and
// the YAML reader. It reads the environment only through the function it is
// given. Invariant: a Config that Load returned is valid as a whole; an unknown
// key, a value out of range or a contradiction is refused by name, never
// guessed around.
package config

import (
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/hook"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Config holds every setting of `holdfast serve`. docs/config.md describes each
// key; the table in keys.go is the only way in.
type Config struct {
	// Listen is the address of the HTTP API, host:port; port 0 picks a free one.
	Listen string
	// MetricsListen is the address of a listener that serves the metrics without a
	// token; empty is none.
	MetricsListen string
	// Hosts and Origins are further host names and web origins that the API
	// answers to when it listens on loopback; nil is loopback's own.
	Hosts, Origins []string
	// RateLimit is how many requests a key may send per second, AuthFailures how
	// many an address may fail to authenticate per minute, MaxConnections how many
	// clients may be connected; 0 of the first two is no limit.
	RateLimit, AuthFailures, MaxConnections int
	// Data is the data directory, absolute and clean.
	Data string
	// Driver starts the boxes of untrusted sessions: local, host or mem.
	Driver string
	// Store is where state lives: sqlite.
	Store string
	// RootDir is a directory to build box roots from instead of the host's
	// allow-list; empty is the allow-list.
	RootDir string

	DefaultTrust   holdfast.Trust
	DefaultModel   string
	DefaultRuntime string

	Permissions Permissions
	// Hooks are the owner's; commands run on the host unless they say otherwise.
	Hooks hook.Config
	// Webhooks are told of events.
	Webhooks []Webhook
	// ACP are agents of the owner's, by name.
	ACP map[string]ACPAgent

	Models  Models
	Network Network
	Limits  Limits

	// MaxBoxes is how many boxes may run at once, MaxTurns how many turns one box
	// carries at once, Prewarm how many boxes stand ready.
	MaxBoxes, MaxTurns, Prewarm int
	// ClaudeWarm is how many agents may wait, started, for their session's first turn.
	ClaudeWarm int
	// FreezeAfter and StopAfter are for idle boxes; OrphanAfter is for boxes whose
	// server does not return. 0 is never.
	FreezeAfter, StopAfter, OrphanAfter time.Duration

	OnStart    OnStart
	OnShutdown OnShutdown
	// DrainTimeout bounds how long running turns may finish at shutdown.
	DrainTimeout time.Duration
	// TurnSilence interrupts a turn that shows no progress for that long.
	TurnSilence time.Duration
	// ApprovalTimeout is how long a question to a person stays open; 0 is for ever.
	ApprovalTimeout time.Duration

	// UIDBase is the first host uid of boxes when the server runs as root.
	UIDBase uint32
	// DiskReserve is the part of the data directory's disk that stays free, in
	// percent; DiskPoll is how often that is looked at.
	DiskReserve float64
	DiskPoll    time.Duration
	// SpoolBytes caps the spool of one output stream of a call.
	SpoolBytes Size
	// Tail is how many recent events of a followed session stay in memory.
	Tail int

	LogFormat string
	LogLevel  string
}

// Permissions are the standing rules for tool calls, as Bash(git *), and the file
// of sandbox settings; empty is none.
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
	// Copy bounds what is copied into a session at once.
	Copy Size
	// Mode says whether a box may start when a limit cannot be enforced.
	Mode sandbox.LimitsMode
	// Landlock says whether an ordinary user's box may start without it; its key is
	// landlock.
	Landlock sandbox.LandlockMode
}

// Box gives the limits in the shape that drivers take.
func (l Limits) Box() sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes: int64(l.Memory), CPUs: l.CPUs, Pids: l.Pids,
		NofileSoft: l.NofileSoft, NofileHard: l.NofileHard,
		TmpBytes: int64(l.Tmp), DiskBytes: int64(l.Disk),
	}
}

// OnStart says what becomes of boxes that a former server left.
type OnStart string

// Adopt reconnects to them; stop ends them.
const (
	StartAdopt OnStart = "adopt"
	StartStop  OnStart = "stop"
)

// OnShutdown says what becomes of boxes when the server is told to end.
type OnShutdown string

// Stop ends them after the drain; keep leaves them for the next server.
const (
	ShutdownStop OnShutdown = "stop"
	ShutdownKeep OnShutdown = "keep"
)

// Defaults is the configuration of a server that was told nothing but its data
// directory, which is left empty here.
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
