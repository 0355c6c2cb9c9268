package config

import (
	"fmt"
	"math"
	"net"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/policy"
	"github.com/holdfast-run/holdfast/sandbox"
)

// key is one setting: its name in the file and as a flag, its description, and the functions
// that set it in a Config and read it.
type key struct {
	name  string
	doc   string
	value string // the allowed values in words, for docs and hints
	list  bool   // a file may give the value as a YAML list
	quiet bool   // errors must not show the value, which may hold secrets
	set   func(c *Config, s string) error
	get   func(c *Config) string
}

// env returns the environment variable that sets the key: HOLDFAST_ and the name in capitals.
func (k key) env() string {
	return "HOLDFAST_" + strings.ToUpper(strings.ReplaceAll(k.name, ".", "_"))
}

// Keys lists the names of all settings, in the order of docs/config.md.
func Keys() []string {
	var out []string
	for _, k := range keys() {
		out = append(out, k.name)
	}
	return out
}

func keys() []key {
	return slices.Concat(serverKeys(), sessionKeys(), permissionKeys(), hookKeys(), webhookKeys(), acpKeys(), modelKeys(), networkKeys(), limitKeys(), boxKeys(), lifeKeys(), logKeys())
}

func serverKeys() []key {
	return []key{
		text("listen", "Address of the HTTP API. Port 0 picks a free port. Every request needs an API key or the owner token, whatever the address; beyond loopback there must be a key.",
			"host:port", func(c *Config) *string { return &c.Listen }, listenAddress),
		text("metrics_listen", "Address of a second listener, which serves only /metrics, without a token. If empty, the server has no such listener. It exposes counters without names. On an address beyond loopback anyone who can reach it can read them. The API has /metrics too, for keys that may read.",
			"host:port", func(c *Config) *string { return &c.MetricsListen }, func(s string) error {
				if s == "" {
					return nil
				}
				return listenAddress(s)
			}),
		list("hosts", "Further host names that requests may use while the API listens on loopback; others are refused, since a web page could have chosen them.",
			"names", func(c *Config) *[]string { return &c.Hosts }, hostName),
		list("origins", "Web origins besides the API's own whose pages may call it.",
			"origins", func(c *Config) *[]string { return &c.Origins }, webOrigin),
		count("rate_limit", "Requests that one API key may send per second; 0 is no limit.",
			func(c *Config) *int { return &c.RateLimit }, 0, 1_000_000_000),
		count("auth_failures", "Requests without a valid token that one address may send per minute; more are answered 429. 0 is no limit.",
			func(c *Config) *int { return &c.AuthFailures }, 0, 1_000_000_000),
		count("max_connections", "Clients that may be connected at once; more wait until one leaves.",
			func(c *Config) *int { return &c.MaxConnections }, 16, 10_000_000),
		text("data", "Data directory: database, agents, sessions, sockets, the owner token. It must belong to the server's user; if other users have access to it, the server takes that access away. Also set by HOLDFAST_HOME.",
			"directory", func(c *Config) *string { return &c.Data }, nil),
		oneOf("driver", "Driver of the boxes of untrusted sessions. host isolates nothing and serves trusted sessions only; mem is for tests.",
			func(c *Config) *string { return &c.Driver }, "local", "host", "mem"),
		oneOf("store", "Where state lives.", func(c *Config) *string { return &c.Store }, "sqlite"),
		text("root_dir", "Directory that boxes get as their root file system, read-only. Empty builds one from an allow-list of the host's programs and libraries.",
			"directory", func(c *Config) *string { return &c.RootDir }, absolutePath),
	}
}

func permissionKeys() []key {
	rules := func(name, doc string, at func(*Config) *[]string) key {
		return list("permissions."+name, doc, "rules", at, func(s string) error {
			if err := policy.CheckRule(s); err != nil {
				return fmt.Errorf("%w; %s. A comma separates rules", err, holdfast.HintOf(err))
			}
			return nil
		})
	}
	return []key{
		rules("deny", "Tool calls that are denied in every mode, as Bash(curl *) or Read(~/.ssh/**). What cannot be read and might be one of them is denied too.",
			func(c *Config) *[]string { return &c.Permissions.Deny }),
		rules("ask", "Tool calls that a person has to allow in every mode. The call waits for holdfast approvals allow; see approval_timeout.",
			func(c *Config) *[]string { return &c.Permissions.Ask }),
		rules("allow", "Tool calls that no mode has to allow. A rule for Bash has to match every command of a line.",
			func(c *Config) *[]string { return &c.Permissions.Allow }),
		text("permissions.sandbox", "File of sandbox settings (JSON) that hold in every mode; see holdfast check.", "file",
			func(c *Config) *string { return &c.Permissions.Sandbox }, absolutePath),
	}
}

func sessionKeys() []key {
	return []key{
		oneOf("default_trust", "Trust of sessions that name none. Trusted tools can do everything the server's user can do.",
			func(c *Config) *holdfast.Trust { return &c.DefaultTrust }, holdfast.Untrusted, holdfast.Trusted),
		text("default_model", "Model of sessions that name none: auto, scripted, anthropic/NAME, openai/NAME. auto means the first configured provider's default: Anthropic's, then OpenAI's, then the first model that a compatible server lists; otherwise scripted.", "model name",
			func(c *Config) *string { return &c.DefaultModel }, notEmpty),
		defaultRuntime(),
		count("max_turns", "Turns that may use one box at once; more wait in order.",
			func(c *Config) *int { return &c.MaxTurns }, 1, 1000),
		period("turn_silence", "A turn that shows no progress for that long is interrupted, then killed, then failed; its session stays usable.",
			func(c *Config) *time.Duration { return &c.TurnSilence }, time.Second, false),
		period("approval_timeout", "A question to a person that nobody answers is a denial after that time. Restarts do not extend it.",
			func(c *Config) *time.Duration { return &c.ApprovalTimeout }, time.Second, true),
		count("claude.warm", "Sessions of the runtime claude whose CLI may be started ahead of their first message; each takes memory. Beyond it the one that waits longest is stopped.",
			func(c *Config) *int { return &c.ClaudeWarm }, 0, 10_000),
		count("tail", "Recent events of a followed session that stay in memory.",
			func(c *Config) *int { return &c.Tail }, 1, 100_000),
	}
}

func limitKeys() []key {
	return []key{
		size("limits.memory", "Memory of a box, without swap.", func(c *Config) *Size { return &c.Limits.Memory }, 16<<20),
		{
			name: "limits.cpus", doc: "Processors of a box.", value: "number",
			get: func(c *Config) string { return strconv.FormatFloat(c.Limits.CPUs, 'g', -1, 64) },
			set: func(c *Config, s string) error {
				f, err := strconv.ParseFloat(s, 64)
				if err != nil || !(f >= 0.01 && f <= 4096) {
					return fmt.Errorf("use a number from 0.01 to 4096")
				}
				c.Limits.CPUs = f
				return nil
			},
		},
		count("limits.pids", "Processes and threads of a box.", func(c *Config) *int64 { return &c.Limits.Pids }, 8, 4_194_304),
		count("limits.nofile_soft", "Open files of a process, soft limit.", func(c *Config) *uint64 { return &c.Limits.NofileSoft }, 16, 1<<30),
		count("limits.nofile_hard", "Open files of a process, hard limit.", func(c *Config) *uint64 { return &c.Limits.NofileHard }, 16, 1<<30),
		size("limits.tmp", "Size of /tmp in a box.", func(c *Config) *Size { return &c.Limits.Tmp }, 1<<20),
		size("limits.disk", "Disk space of a workspace, in which each file counts what the disk has for one beside its content; checked, not reserved.", func(c *Config) *Size { return &c.Limits.Disk }, 1<<20),
		size("limits.copy", "Content of the files that may be copied into a session at once, as by holdfast cp and session create --from.",
			func(c *Config) *Size { return &c.Limits.Copy }, 1<<20),
		oneOf("limits.mode", "required refuses to start a box whose limits cannot be enforced; best-effort starts it and lists what is missing.",
			func(c *Config) *sandbox.LimitsMode { return &c.Limits.Mode }, sandbox.LimitsRequired, sandbox.LimitsBestEffort),
		oneOf("landlock", "required refuses to start an untrusted box of a server that an ordinary user runs when the kernel has no Landlock; best-effort starts it and lists what is missing. A root server's boxes have users of their own, and start either way.",
			func(c *Config) *sandbox.LandlockMode { return &c.Limits.Landlock }, sandbox.LandlockRequired, sandbox.LandlockBestEffort),
	}
}

func boxKeys() []key {
	return []key{
		count("max_boxes", "Boxes that may run at once. At the limit the box that is idle longest is stopped; a running one never is: new messages are then refused with 503.",
			func(c *Config) *int { return &c.MaxBoxes }, 1, 100_000),
		count("prewarm", "Boxes that stand ready for new sessions.", func(c *Config) *int { return &c.Prewarm }, 0, 1000),
		period("freeze_after", "An idle box is frozen after that time.", func(c *Config) *time.Duration { return &c.FreezeAfter }, time.Millisecond, true),
		period("stop_after", "An idle box is stopped after that time.", func(c *Config) *time.Duration { return &c.StopAfter }, time.Millisecond, true),
		period("orphan_after", "A box whose server does not return stops itself after that time.", func(c *Config) *time.Duration { return &c.OrphanAfter }, time.Second, true),
		size("spool_bytes", "Output of a call that is kept and can be read again, per stream; beyond it head and tail stay.",
			func(c *Config) *Size { return &c.SpoolBytes }, 64<<10),
		{
			name: "disk_reserve", doc: "Part of the data directory's disk that stays free, in percent. Below it no box starts, and the running box that grew most is stopped. 0 is none.", value: "percent",
			get: func(c *Config) string { return strconv.FormatFloat(c.DiskReserve, 'g', -1, 64) },
			set: func(c *Config, s string) error {
				f, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(s, "%")), 64)
				if err != nil || !(f >= 0 && f <= 90) {
					return fmt.Errorf("use a number from 0 to 90")
				}
				c.DiskReserve = f
				return nil
			},
		},
		period("disk_poll", "How often the disk is looked at while boxes run: what a box writes beyond limits.disk or into disk_reserve between two looks is its overshoot.",
			func(c *Config) *time.Duration { return &c.DiskPoll }, 10*time.Millisecond, false),
		count("uid_base", "First host uid of boxes when the server runs as root; each workspace takes two.",
			func(c *Config) *uint32 { return &c.UIDBase }, 100_000, 2_147_000_000),
	}
}

func lifeKeys() []key {
	return []key{
		oneOf("on_start", "What becomes of boxes that a former server left.", func(c *Config) *OnStart { return &c.OnStart }, StartAdopt, StartStop),
		oneOf("on_shutdown", "What becomes of boxes when the server is told to end.", func(c *Config) *OnShutdown { return &c.OnShutdown }, ShutdownStop, ShutdownKeep),
		period("drain_timeout", "How long running turns may finish at shutdown before they are left to the next start.",
			func(c *Config) *time.Duration { return &c.DrainTimeout }, 0, false),
	}
}

func logKeys() []key {
	return []key{
		oneOf("log_format", "Format of the server's log on stderr; journal is text as systemd takes it: the level as a prefix, no time.",
			func(c *Config) *string { return &c.LogFormat }, "text", "json", "journal"),
		oneOf("log_level", "Least level that is logged.", func(c *Config) *string { return &c.LogLevel }, "debug", "info", "warn", "error"),
	}
}

func text(name, doc, value string, at func(*Config) *string, check func(string) error) key {
	return key{
		name: name, doc: doc, value: value,
		get: func(c *Config) string { return *at(c) },
		set: func(c *Config, s string) error {
			if strings.ContainsAny(s, "\x00\n\r") {
				return fmt.Errorf("write a value without control characters")
			}
			if check != nil {
				if err := check(s); err != nil {
					return err
				}
			}
			*at(c) = s
			return nil
		},
	}
}

// list returns the key of a setting with several values, separated by commas or as a list in a
// file. check checks each value.
func list(name, doc, value string, at func(*Config) *[]string, check func(string) error) key {
	return key{
		name: name, doc: doc, value: value, list: true,
		get: func(c *Config) string { return strings.Join(*at(c), ",") },
		set: func(c *Config, s string) error {
			var out []string
			for _, v := range items(s) {
				v = strings.TrimSpace(v)
				if err := check(v); err != nil {
					return err
				}
				out = append(out, v)
			}
			*at(c) = out
			return nil
		},
	}
}

func oneOf[T ~string](name, doc string, at func(*Config) *T, allowed ...T) key {
	var names []string
	for _, a := range allowed {
		names = append(names, string(a))
	}
	return key{
		name: name, doc: doc, value: strings.Join(names, ", "),
		get: func(c *Config) string { return string(*at(c)) },
		set: func(c *Config, s string) error {
			if !slices.Contains(names, s) {
				return fmt.Errorf("use %s", strings.Join(names, " or "))
			}
			*at(c) = T(s)
			return nil
		},
	}
}

func count[T int | int64 | uint32 | uint64](name, doc string, at func(*Config) *T, least, most int64) key {
	return key{
		name: name, doc: doc, value: "number",
		get: func(c *Config) string { return fmt.Sprint(*at(c)) },
		set: func(c *Config, s string) error {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < least || n > most {
				return fmt.Errorf("use a whole number from %d to %d", least, most)
			}
			*at(c) = T(n)
			return nil
		},
	}
}

func size(name, doc string, at func(*Config) *Size, least Size) key {
	return key{
		name: name, doc: doc, value: "size",
		get: func(c *Config) string { return at(c).String() },
		set: func(c *Config, s string) error {
			n, err := ParseSize(s)
			if err != nil {
				return fmt.Errorf("%s", holdfast.HintOf(err))
			}
			if n < least || n > math.MaxInt64/4 {
				return fmt.Errorf("use at least %s", least)
			}
			*at(c) = n
			return nil
		},
	}
}

func period(name, doc string, at func(*Config) *time.Duration, least time.Duration, never bool) key {
	value := "duration"
	if never {
		value = "duration, never"
	}
	return key{
		name: name, doc: doc, value: value,
		get: func(c *Config) string {
			if *at(c) == 0 && never {
				return "never"
			}
			return shortDuration(*at(c))
		},
		set: func(c *Config, s string) error {
			if never && (s == "never" || s == "0") {
				*at(c) = 0
				return nil
			}
			d, err := time.ParseDuration(s)
			if err != nil || d < least || d > 10*365*24*time.Hour {
				hint := "use a time as 90s, 15m or 1h, at least " + shortDuration(least)
				if never {
					hint += ", or never"
				}
				return fmt.Errorf("%s", hint)
			}
			*at(c) = d
			return nil
		},
	}
}

// shortDuration returns a duration as text without trailing zero units: 1h0m0s becomes 1h.
func shortDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

func listenAddress(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err == nil {
		n, perr := strconv.ParseUint(port, 10, 16)
		if perr == nil && strconv.FormatUint(n, 10) == port && !strings.ContainsAny(host, " /") {
			return nil
		}
	}
	return fmt.Errorf("use host:port, as 127.0.0.1:4100")
}

func hostName(s string) error {
	if s == "" || len(s) > 253 || strings.Trim(strings.ToLower(s), "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" {
		return fmt.Errorf("use host names without a port, as holdfast.example, separated by commas")
	}
	return nil
}

func webOrigin(s string) error {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || s != u.Scheme+"://"+u.Host {
		return fmt.Errorf("use origins as https://holdfast.example, separated by commas")
	}
	return nil
}

func absolutePath(s string) error {
	if s != "" && (!filepath.IsAbs(s) || filepath.Clean(s) != s) {
		return fmt.Errorf("use an absolute path without dot segments")
	}
	return nil
}

func notEmpty(s string) error {
	if strings.TrimSpace(s) == "" {
		return fmt.Errorf("write a value that is not empty")
	}
	return nil
}
