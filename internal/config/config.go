// Package config loads the server's settings: one typed value made from flags,
// environment, a YAML file and defaults, in that order of precedence.
//
// The tags of Config's fields are the only table of settings. One walk over them
// (setting.go) finds the keys, and everything else is derived from it: the defaults,
// the variables, the checks, and docs/config.md. A new setting is a new field.
//
// The command line, internal/app and internal/checks import it; it imports the root package, packages of the sandbox,
// the policy and hooks, and the YAML reader. It reads the environment only through a function that the caller passes.
// Invariant: a Config that Load returned is valid as a whole; an unknown key, a value out of range or a contradiction
// is refused with an error that names it.
package config

import (
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/sandbox"
)

// Config holds every setting of `holdfast serve`. The tags of a field mean:
//
//	yaml     the name of the key; a struct adds its name and a dot, or nothing if it is inline
//	doc      what the setting does, for docs/config.md and `holdfast config explain`
//	default  the value if no source gives one; without it the value is empty or 0
//	oneof    all allowed texts
//	kind     what the value is, in words; for a text, and each text of a list, a name in the table kinds
//	min, max the bounds of a number, a size or a time
//	secret   "true" if the value is never shown, because it may hold a secret
type Config struct {
	Listen        string   `yaml:"listen" default:"127.0.0.1:4100" kind:"host:port" doc:"Address of the HTTP API. Port 0 picks a free port. Every request needs an API key or the owner token, whatever the address; beyond loopback there must be a key."`
	MetricsListen string   `yaml:"metrics_listen" kind:"host:port" doc:"Address of a second listener, which serves only /metrics, without a token. If empty, the server has no such listener. It exposes counters without names. On an address beyond loopback anyone who can reach it can read them. The API has /metrics too, for keys that may read."`
	Hosts         []string `yaml:"hosts" kind:"names" doc:"Further host names that requests may use while the API listens on loopback; others are refused, since a web page could have chosen them."`
	Origins       []string `yaml:"origins" kind:"origins" doc:"Web origins besides the API's own whose pages may call it."`

	RateLimit      int `yaml:"rate_limit" default:"10000" min:"0" max:"1000000000" doc:"Requests that one API key may send per second; 0 means no limit."`
	AuthFailures   int `yaml:"auth_failures" default:"30" min:"0" max:"1000000000" doc:"Requests without a valid token that one address may send per minute; more are answered 429. 0 means no limit."`
	MaxConnections int `yaml:"max_connections" default:"8192" min:"16" max:"10000000" doc:"Clients that may be connected at once; more wait until one leaves."`

	// Data is absolute and clean after Load.
	Data string `yaml:"data" kind:"path" doc:"Data directory: database, agents, sessions, sockets, the owner token. It must belong to the server's user; if other users have access to it, the server takes that access away. Also set by HOLDFAST_HOME."`
	// Driver is any name after Load: the program that links the drivers refuses a name that it does
	// not know.
	Driver  string  `yaml:"driver" default:"local" kind:"local, host" doc:"Driver of the boxes of untrusted sessions. host isolates nothing and serves trusted sessions only."`
	Mounted Mounted `yaml:",inline"`

	DefaultTrust   holdfast.Trust `yaml:"default_trust" default:"untrusted" oneof:"untrusted, trusted" doc:"Trust of sessions that name none. Trusted tools can do everything the server's user can do."`
	DefaultModel   string         `yaml:"default_model" default:"auto" kind:"model name" doc:"Model of sessions that name none: auto, scripted, anthropic/NAME, openai/NAME. auto means the first configured provider's default: Anthropic's, then OpenAI's, then the first model that a compatible server lists; otherwise scripted."`
	DefaultRuntime string         `yaml:"default_runtime" default:"native" kind:"native, claude, acp:NAME" doc:"Runtime of sessions that name none."`

	MaxTurns        int           `yaml:"max_turns" default:"3" min:"1" max:"1000" doc:"Turns that may use one box at once; more wait in order."`
	TurnSilence     time.Duration `yaml:"turn_silence" default:"15m" min:"1s" max:"87600h" doc:"A turn that shows no progress for that long is interrupted, then killed, then failed; its session stays usable."`
	ApprovalTimeout time.Duration `yaml:"approval_timeout" kind:"duration, never" default:"never" min:"1s" max:"87600h" doc:"A question to a person that nobody answers in that time is denied; with never it stays open until it is answered or its turn ends. Restarts do not extend it."`
	Claude          Claude        `yaml:"claude"`

	Permissions Permissions `yaml:"permissions"`
	Hooks       Hooks       `yaml:"hooks" kind:"tree" doc:"Commands and addresses that hear of events: {event: [{matcher, hooks: [{type: command or http, command or url, timeout (ms), fail_closed, where, secret_file}]}]}. Commands run on the host as the server's user, with where: box in the session's sandbox. See docs/hooks.md."`
	Webhooks    Webhooks    `yaml:"webhooks" secret:"true" kind:"list of {url, secret_file, events}" doc:"Receivers of events, which get them as signed POST requests; docs/webhooks.md says how. secret_file is an absolute path, mode 0600."`
	ACP         ACPAgents   `yaml:"acp" secret:"true" kind:"tree" doc:"Agents of your own that speak the Agent Client Protocol: {NAME: {command: [PROGRAM, ARG], env: {KEY: VALUE}, state: DIR, mode: MODE}}. A session names one as runtime acp:NAME. The command's path is the one in the box, for trusted sessions the one on the host; {model}, {model_url} and {model_key} in env stand for the session's model, the address of the model broker and the key to send there, {home} and {temp} for the session's home and directory for temporary files; state is the directory below the home where the agent keeps its sessions. See docs/acp.md."`

	Models  Models  `yaml:",inline"`
	Network Network `yaml:"network"`
	Broker  Broker  `yaml:"broker"`
	Limits  Limits  `yaml:"limits"`
	// Snapshots says how many checkpoints are kept, and which files they leave out.
	Snapshots Snapshots `yaml:"snapshots"`
	// Landlock tells whether a box of a server without root may start on a kernel without Landlock.
	Landlock sandbox.LandlockMode `yaml:"landlock" default:"required" oneof:"required, best-effort" doc:"required refuses to start an untrusted box of a server that an ordinary user runs when the kernel has no Landlock; best-effort starts it and lists what is missing. A root server's boxes have users of their own, and start either way."`

	MaxBoxes    int           `yaml:"max_boxes" default:"64" min:"1" max:"100000" doc:"Boxes that may run at once. At the limit the box that is idle longest is stopped; a running one never is: new messages are then refused with 503."`
	Prewarm     int           `yaml:"prewarm" default:"0" min:"0" max:"1000" doc:"Boxes that stand ready for new sessions."`
	FreezeAfter time.Duration `yaml:"freeze_after" kind:"duration, never" default:"1m" min:"1ms" max:"87600h" doc:"An idle box is frozen after that time."`
	StopAfter   time.Duration `yaml:"stop_after" kind:"duration, never" default:"15m" min:"1ms" max:"87600h" doc:"An idle box is stopped after that time."`
	OrphanAfter time.Duration `yaml:"orphan_after" kind:"duration, never" default:"1h" min:"1s" max:"87600h" doc:"A box whose server does not return stops itself after that time."`
	KeepTrash   time.Duration `yaml:"keep_trash" default:"168h" min:"0s" max:"87600h" doc:"How long a deleted session can be restored before it is gone for good."`
	DiskReserve Percent       `yaml:"disk_reserve" default:"5" min:"0" max:"90" doc:"Part of the data directory's disk that stays free, in percent. Below it no box starts, and the running box that grew most is stopped. 0 means none."`
	Root        Root          `yaml:",inline"`

	OnStart      OnStart       `yaml:"on_start" default:"adopt" oneof:"adopt, stop" doc:"What becomes of boxes that a former server left."`
	OnShutdown   OnShutdown    `yaml:"on_shutdown" default:"stop" oneof:"stop, keep" doc:"What becomes of boxes when the server is told to end."`
	DrainTimeout time.Duration `yaml:"drain_timeout" default:"30s" min:"0s" max:"87600h" doc:"How long running turns may finish at shutdown before they are left to the next start."`

	LogFormat string `yaml:"log_format" default:"text" oneof:"text, json, journal" doc:"Format of the server's log on stderr; journal is text as systemd takes it: the level as a prefix, no time."`
	LogLevel  string `yaml:"log_level" default:"info" oneof:"debug, info, warn, error" doc:"Least level that is logged."`
}

// Root are the settings that matter only if the server runs as root.
type Root struct {
	UIDBase int64 `yaml:"uid_base" default:"1879048192" min:"100000" max:"2147000000" doc:"First host uid of boxes when the server runs as root; each workspace takes two."`
	Trees   Flag  `yaml:"allow_root_trees" default:"false" oneof:"false, true" doc:"Whether sessions of a server that runs as root may work in a directory that belongs to root. What root later runs or opens in it, an agent may have written; see docs/workspaces.md."`
}

// Mounted are directories of this machine that boxes have.
type Mounted struct {
	Root string `yaml:"root_dir" kind:"directory" doc:"Directory that boxes get as their root file system, read-only. Empty builds one from an allow-list of the host's programs and libraries."`
	Tree string `yaml:"tree_root" kind:"directory" doc:"Directory that sessions with the mount scope tree-ro can read at /tree. Empty: no session can have that scope. It must not contain the data directory or a home directory, nor lie in one of the data directory."`
}

// Claude are the settings of the runtime claude.
type Claude struct {
	Warm int `yaml:"warm" default:"0" min:"0" max:"10000" doc:"Sessions of the runtime claude whose CLI may be started ahead of their first message; each takes memory. Beyond it the one that waits longest is stopped."`
}

// Permissions are the server's rules for tool calls, such as Bash(git *), and the path of the
// file of sandbox settings, empty for none.
type Permissions struct {
	Deny    []string `yaml:"deny" kind:"rules" doc:"Tool calls that are denied in every mode, as Bash(curl *) or Read(~/.ssh/**). What cannot be read and might be one of them is denied too."`
	Ask     []string `yaml:"ask" kind:"rules" doc:"Tool calls that a person has to allow in every mode. The call waits for holdfast approvals allow; see approval_timeout."`
	Allow   []string `yaml:"allow" kind:"rules" doc:"Tool calls that no mode has to allow. A rule for Bash has to match every command of a line."`
	Sandbox string   `yaml:"sandbox" kind:"file" doc:"File of sandbox settings (JSON) that hold in every mode; see holdfast check."`
}

// Models are the settings of models and their providers. API keys are not settings:
// they come from the environment or from key files.
type Models struct {
	MaxTokens  int           `yaml:"max_tokens" default:"16384" min:"16" max:"1000000" doc:"Tokens an answer of a model may have; a budget sets them aside before each call."`
	Silence    time.Duration `yaml:"model_silence" default:"1m30s" min:"1s" max:"87600h" doc:"After how long without any data a model call is canceled and tried again."`
	Park       Switch        `yaml:"park" default:"on" oneof:"on, off" doc:"Whether a turn waits when its provider asks for more than a minute. With off, the turn fails with kind busy and names the time."`
	Prices     []string      `yaml:"prices" kind:"NAME=INPUT/OUTPUT" doc:"Own prices of models in dollars per million tokens, as openai/my-model=0.5/1.5 (input/output) or with the cache's read and write after them. A name may end in *. They win over the built-in table; a model in neither has no known price."`
	Anthropic  Anthropic     `yaml:"anthropic"`
	OpenAI     OpenAI        `yaml:"openai"`
	Budget     Budget        `yaml:"budget"`
	TurnBudget Budget        `yaml:"turn_budget"`
}

// Anthropic are the settings of the Anthropic API.
type Anthropic struct {
	URL      string `yaml:"url" kind:"URL" doc:"Base URL of the Anthropic API. Empty is ANTHROPIC_BASE_URL of the server's environment, else the provider's own. The key is ANTHROPIC_API_KEY there."`
	KeyFile  string `yaml:"key_file" kind:"file" doc:"File with the key, mode 0600; it wins over the environment."`
	Thinking string `yaml:"thinking" default:"off" kind:"off, adaptive, number" doc:"Extended thinking: off, adaptive, or a number of tokens, which max_tokens holds with 1024 more for the answer."`
}

// OpenAI are the settings of the OpenAI API or of a server that is compatible with it.
type OpenAI struct {
	URL     string `yaml:"url" kind:"URL" doc:"Base URL of an OpenAI-compatible API, as http://127.0.0.1:11434/v1. Empty is OPENAI_BASE_URL of the server's environment, else OpenAI's own. The key is OPENAI_API_KEY there; other servers may need none."`
	KeyFile string `yaml:"key_file" kind:"file" doc:"File with the key, mode 0600; it wins over the environment."`
}

// Budget is the budget of sessions, or of turns, that set none themselves. Its fields are those of
// holdfast.Budget, so that it converts to one.
type Budget struct {
	Turns   int64   `yaml:"turns" default:"0" min:"0" max:"1125899906842624" doc:"Turns of a session, or in turn_budget model calls of a turn, unless it has a budget of its own. 0 means no bound."`
	Tokens  int64   `yaml:"tokens" default:"0" min:"0" max:"1125899906842624" doc:"Tokens of a session or turn, unless it has a budget of its own. 0 means no bound."`
	USD     float64 `yaml:"usd" default:"0" min:"0" max:"100000000" doc:"Dollars of a session or turn, unless it has a budget of its own. 0 means no bound."`
	Seconds float64 `yaml:"seconds" default:"0" min:"0" max:"100000000" doc:"Seconds that a session or turn may run, unless it has a budget of its own. 0 means no bound."`
}

// Network are the settings of the boxes' access to the network.
type Network struct {
	Allow   []string `yaml:"allow" kind:"destinations" doc:"What the boxes of this server may be granted at the most, as pypi.org, *.npmjs.org, example.com:8443, or * for every public name. If the list is empty, no box has a network. A session gets the destinations of this list that it names, see network.default and docs/egress.md."`
	Default []string `yaml:"default" kind:"destinations" doc:"What sessions are granted that name nothing and whose agent names nothing, within network.allow."`
}

// Broker are the settings of the model requests that boxes make.
type Broker struct {
	Allow   []string `yaml:"allow" kind:"grants" doc:"What requests of boxes to models may ask for beyond the list: web_search, web_fetch, code_execution or another server tool by its name, mcp_servers, container, url_sources, files, or field:NAME for a field that is not known. The provider then reaches out itself, and past network.allow."`
	Content Switch   `yaml:"content" default:"off" oneof:"off, on" doc:"Whether model.request events of boxes hold what was sent and answered, and not only how much it was."`
}

// Limits are the limits of each box, of the disk space of a workspace, and of what is copied into a session.
type Limits struct {
	Memory     Size    `yaml:"memory" default:"4GiB" min:"16MiB" max:"1024TiB" doc:"Memory of a box, without swap."`
	CPUs       float64 `yaml:"cpus" default:"2" min:"0.01" max:"4096" doc:"Processors of a box."`
	Pids       int64   `yaml:"pids" default:"512" min:"8" max:"4194304" doc:"Processes and threads of a box."`
	NofileSoft int64   `yaml:"nofile_soft" default:"4096" min:"16" max:"1073741824" doc:"Open files of a process, soft limit."`
	NofileHard int64   `yaml:"nofile_hard" default:"8192" min:"16" max:"1073741824" doc:"Open files of a process, hard limit."`
	Tmp        Size    `yaml:"tmp" default:"512MiB" min:"1MiB" max:"1024TiB" doc:"Size of /tmp in a box."`
	Disk       Size    `yaml:"disk" default:"10GiB" min:"1MiB" max:"1024TiB" doc:"Disk space of a workspace, in which each file counts what the disk has for one beside its content; checked, not reserved."`
	Copy       Size    `yaml:"copy" default:"20GiB" min:"1MiB" max:"1024TiB" doc:"Content of the files that may be copied into a session at once, as by holdfast cp and session create --from."`

	Mode   sandbox.LimitsMode `yaml:"mode" default:"required" oneof:"required, best-effort" doc:"required refuses to start a box whose limits cannot be enforced; best-effort starts it and lists what is missing."`
	Shared Switch             `yaml:"shared" default:"on" oneof:"on, off" doc:"Whether the untrusted sessions of a workspace share one box and its limits; each has a home and a /tmp of its own there. With off, and where the machine cannot keep their homes apart, each has a box of its own."`
}

// Box returns the limits as the type that drivers use.
func (l Limits) Box() sandbox.Limits {
	return sandbox.Limits{
		MemoryBytes: int64(l.Memory), CPUs: l.CPUs, Pids: l.Pids,
		NofileSoft: uint64(l.NofileSoft), NofileHard: uint64(l.NofileHard),
		TmpBytes: int64(l.Tmp), DiskBytes: int64(l.Disk),
	}
}

// Snapshots are the settings of the snapshot store. The newest checkpoint of each session is kept, whatever
// these settings say.
type Snapshots struct {
	Keep   int           `yaml:"keep" default:"100" min:"0" max:"1000000000" doc:"How many checkpoints of a session the server keeps. If a session has more, the server removes its oldest ones. 0 means no limit. The newest checkpoint of each session always stays."`
	MaxAge time.Duration `yaml:"max_age" kind:"duration, never" default:"720h" min:"1s" max:"87600h" doc:"The server removes checkpoints that are older, but never the newest one of a session. never, or 0, is no limit."`
	Quota  Size          `yaml:"quota" default:"0B" min:"0B" max:"1024TiB" doc:"If the snapshot store is larger, the server removes the oldest checkpoints, but never the newest one of a session. The store can be larger for some minutes. 0 means no limit."`

	Exclude []string `yaml:"exclude" kind:"patterns" doc:"Paths of workspaces that checkpoints leave out, with everything below them, as node_modules, build/cache or **/*.o. A pattern without a / holds at every depth. A restore or a fork does not bring back what is left out."`

	Ignored Switch `yaml:"ignored" default:"off" oneof:"off, on" doc:"Whether checkpoints of a named workspace, and so of a directory of the user's own, hold what its .gitignore files name. With off they leave it out, and a rewind does not touch it."`
}

// Flag is a setting that is true or false.
type Flag string

// True is the value of a Flag that is true.
const True Flag = "true"

// Switch is a setting that is on or off.
type Switch string

// The values of a Switch.
const (
	On  Switch = "on"
	Off Switch = "off"
)

// OnStart tells what the server does at its start with boxes that a former server left running.
type OnStart string

// StartAdopt reconnects to the boxes of a former server and uses them again; StartStop stops them.
const (
	StartAdopt OnStart = "adopt"
	StartStop  OnStart = "stop"
)

// OnShutdown tells what the server does with running boxes when it shuts down.
type OnShutdown string

// ShutdownStop stops the boxes once running turns had time to end; ShutdownKeep leaves them for the next server.
const (
	ShutdownStop OnShutdown = "stop"
	ShutdownKeep OnShutdown = "keep"
)
