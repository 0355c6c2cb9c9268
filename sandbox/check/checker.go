package check

import (
	"errors"
	"fmt"
	"path"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
)

// Code says for what kind of reason something was denied. Codes may be added, but never removed or changed.
type Code string

// The codes of denials.
const (
	CodeDeniedCommand Code = "denied-command"   // the command is on the denylist
	CodeUnlisted      Code = "unlisted-command" // the command is not on the allowlist
	CodeUnparsable    Code = "unparsable"       // bash, or this checker, cannot parse the program
	CodeComputed      Code = "computed"         // a part of the program is known only at run time
	CodeProgram       Code = "hidden-program"   // the program runs code that this checker cannot read
	CodeLauncher      Code = "launcher"         // a command runs another one in a way that this checker does not know
	CodeRebinding     Code = "rebinding"        // the program changes what names or commands mean, as by a variable
	CodeDeniedPath    Code = "denied-path"
	CodeOutside       Code = "outside"
	CodePathInvalid   Code = "path-invalid"
	CodeDomain        Code = "domain"
	// CodeUnsure never denies: it explains why a command was not allowed automatically.
	CodeUnsure Code = "unsure"
)

// Verdict says whether a command, path or domain is allowed. A denial has a code and a
// reason; Subject is the denied part, Pos its byte offset in the command.
type Verdict struct {
	Allowed bool   `json:"allowed"`
	Code    Code   `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Subject string `json:"subject,omitempty"`
	Pos     int    `json:"pos,omitempty"`
}

var allowed = Verdict{Allowed: true}

// DeniedError is a denying Verdict as an error, to be found with errors.As.
type DeniedError struct {
	// Tool is the name of the tool whose call was denied: Bash, Read, Write or WebFetch.
	Tool string
	Verdict
}

func (e *DeniedError) Error() string {
	return e.Tool + ": " + holdfast.Quote(e.Subject) + " is denied: " + e.Reason
}

// Options describe the environment of the tools to a Checker.
type Options struct {
	// Cwd is the tools' working directory (default /workspace), Home their home directory (empty: unknown).
	Cwd, Home string
	// SearchPath lists the directories in which commands are found (nil: the usual ones).
	SearchPath []string
	// FS resolves links; with nil paths are used as written.
	FS FS
	// FoldCase makes path comparison ignore case; New sets it on macOS.
	FoldCase bool
}

// Checker applies one set of settings. It is safe for concurrent use.
type Checker struct {
	settings              Settings
	opt                   Options
	reads, writes         []tree
	denies, readOnly      []tree
	hasPaths, hasCommands bool
	// listed are the names of the allowed commands. pinned holds, by name, the file of each
	// allowed command that was given as a path. refused are the names of the denied commands.
	listed  map[string]bool
	pinned  map[string]string
	refused map[string]bool
}

// New returns a Checker. It fails if the settings are invalid.
func New(s Settings, o Options) (*Checker, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if o.Cwd == "" {
		o.Cwd = "/workspace"
	}
	if !strings.HasPrefix(o.Cwd, "/") {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "sandbox checker", "the tools' working directory %s is not an absolute path", holdfast.Quote(o.Cwd))
	}
	if o.Home != "" && !strings.HasPrefix(o.Home, "/") {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "sandbox checker", "the tools' home directory %s is not an absolute path", holdfast.Quote(o.Home))
	}
	if o.FS == nil {
		o.FS = none{}
	}
	if o.SearchPath == nil {
		o.SearchPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}
	}
	o.FoldCase = o.FoldCase || runtime.GOOS == "darwin"
	o.Home = strings.TrimSuffix(o.Home, "/")
	c := &Checker{settings: s, opt: o}
	for _, l := range []struct {
		field string
		rules []string
		trees *[]tree
	}{
		{"allowedReadPaths", s.AllowedReadPaths, &c.reads},
		{"allowedWritePaths", s.AllowedWritePaths, &c.writes},
		{"deniedPaths", s.DeniedPaths, &c.denies},
		{"deniedWritePaths", s.DeniedWritePaths, &c.readOnly},
	} {
		for i, rule := range l.rules {
			t, err := c.tree(rule)
			if err != nil {
				return nil, bad(l.field, i, err.Error(), rule)
			}
			t.field = l.field
			*l.trees = append(*l.trees, t)
		}
	}
	c.hasPaths = len(c.reads)+len(c.writes)+len(c.denies)+len(c.readOnly) > 0
	c.hasCommands = s.AllowedCommands != nil || len(s.DeniedCommands) > 0
	c.names()
	return c, nil
}

// tree returns the tree of a path rule, with links in the rule's path resolved.
func (c *Checker) tree(rule string) (tree, error) {
	if home, ok := c.underHome(rule); ok {
		rule = home
	} else if strings.HasPrefix(rule, "~") {
		return tree{}, holdfast.Errorf(holdfast.KindInvalid, op, "a path of the settings begins with ~, but the home directory is not known")
	}
	r, err := Normalize(c.opt.FS, rule)
	return tree{written: c.fold(r.Clean), physical: c.fold(r.Physical)}, err
}

// names prepares the lists of commands. A denied command that is given as a path denies all commands with the same
// base name; an allowed command that is given as a path allows only that one file.
func (c *Checker) names() {
	if c.settings.AllowedCommands == nil {
		c.refused = map[string]bool{}
		for _, d := range c.settings.DeniedCommands {
			c.refused[baseName(d)] = true
		}
		return
	}
	c.listed, c.pinned = map[string]bool{}, map[string]string{}
	for _, a := range c.settings.AllowedCommands {
		c.listed[baseName(a)] = true
		if strings.Contains(a, "/") {
			c.pinned[baseName(a)] = path.Clean(a)
		}
	}
}

func baseName(command string) string { return command[strings.LastIndexByte(command, '/')+1:] }

// CheckPath decides like Path, and returns a denial as an error of kind denied.
func (c *Checker) CheckPath(p string, o Op) error {
	tool := "Read"
	if o == Write {
		tool = "Write"
	}
	return asError(tool, c.Path(p, o))
}

// CheckCommand decides like Command, and returns a denial as an error of kind denied.
func (c *Checker) CheckCommand(cmd string) error { return asError("Bash", c.Command(cmd)) }

// CheckDomain decides like Domain, and returns a denial as an error of kind denied.
func (c *Checker) CheckDomain(host string) error { return asError("WebFetch", c.Domain(host)) }

func asError(tool string, v Verdict) error {
	if v.Allowed {
		return nil
	}
	return holdfast.Errorf(holdfast.KindDenied, "sandbox", "%w", &DeniedError{Tool: tool, Verdict: v})
}

// Command decides whether a bash program may run, without reading the scripts that the program runs from disk.
func (c *Checker) Command(cmd string) Verdict { return c.CommandWithin(nil, cmd) }

// CommandWithin is Command, but denies the program if ended returns an error before the decision is made.
func (c *Checker) CommandWithin(ended func() error, cmd string) (v Verdict) {
	if !c.hasCommands && !c.hasPaths {
		return allowed
	}
	an, err := AnalyzeWithin(ended, cmd, c.opt.Cwd, c.opt.Home)
	if err != nil {
		return Verdict{Code: CodeUnparsable, Subject: head(cmd), Reason: err.Error()}
	}
	defer func() {
		switch over := recover().(type) {
		case nil:
		case exceeded:
			v = Verdict{Code: CodeUnparsable, Subject: head(cmd), Reason: over.err.Error()}
		default:
			// A bug in the checker must not end the server; the command is denied instead.
			v = Verdict{Code: CodeUnparsable, Subject: head(cmd), Reason: fmt.Sprintf("the checker failed on this command: %v", over)}
		}
	}()
	for _, check := range []func(*Analysis) Verdict{c.judgeNames, c.judgeOpaque, c.judgePaths} {
		if v := check(an); !v.Allowed {
			return v
		}
	}
	return allowed
}

func (c *Checker) judgeNames(an *Analysis) Verdict {
	if !c.hasCommands {
		return allowed
	}
	for i := range an.Commands {
		cmd := &an.Commands[i]
		an.left.tick()
		if v := c.name(cmd); !v.Allowed {
			v.Pos = cmd.Pos
			return v
		}
	}
	return allowed
}

// name decides whether a command with this name may run.
func (c *Checker) name(cmd *Command) Verdict {
	name := cmd.Name
	base := baseName(name)
	if c.listed == nil {
		return c.notRefused(cmd, name, base)
	}
	if !c.listed[base] {
		return Verdict{Code: CodeUnlisted, Subject: name, Reason: base + " is not among allowedCommands"}
	}
	pin, pinned := c.pinned[base]
	if !pinned && !strings.Contains(name, "/") {
		return allowed
	}
	want := pin
	if !pinned {
		want = c.search(base)
	}
	got := c.search(name)
	if strings.Contains(name, "/") {
		got = c.absolute(cmd, name)
	}
	if got == "" || want == "" || c.physical(got) != c.physical(want) {
		return Verdict{Code: CodeUnlisted, Subject: name, Reason: "the command is another file than the " + base + " that allowedCommands allows"}
	}
	return allowed
}

func (c *Checker) notRefused(cmd *Command, name, base string) Verdict {
	if c.refused[base] {
		return Verdict{Code: CodeDeniedCommand, Subject: name, Reason: base + " is among deniedCommands"}
	}
	if !strings.Contains(name, "/") {
		return allowed
	}
	file := c.absolute(cmd, name)
	if file == "" {
		return Verdict{Code: CodeComputed, Subject: name, Reason: "the directory that the command's path is relative to is not known"}
	}
	target := baseName(c.physical(file))
	if target == "" {
		return Verdict{Code: CodePathInvalid, Subject: name, Reason: "where links in the command's path lead could not be read"}
	}
	if c.refused[target] {
		return Verdict{Code: CodeDeniedCommand, Subject: name, Reason: "the command leads to " + target + ", which is among deniedCommands"}
	}
	return allowed
}

// absolute returns a command's path as an absolute path; empty if its directory is not known.
func (c *Checker) absolute(cmd *Command, name string) string {
	if strings.HasPrefix(name, "/") {
		return name
	}
	if len(cmd.cwds) != 1 {
		return ""
	}
	return join(cmd.cwds[0], name)
}

// search returns the path of a command in the directories of SearchPath; empty if it is in none of them. If nothing
// is known about the file system, search assumes /usr/bin, if that is among the directories.
func (c *Checker) search(name string) string {
	for _, dir := range c.opt.SearchPath {
		_, err := c.opt.FS.Readlink(join(dir, name))
		switch {
		case err == nil || errors.Is(err, syscall.EINVAL):
			return join(dir, name)
		case errors.Is(err, ErrUnseen):
			return ""
		case errors.Is(err, ErrUnknown) && slices.Contains(c.opt.SearchPath, "/usr/bin"):
			return join("/usr/bin", name)
		}
	}
	return ""
}

// physical returns a file's path with links resolved; empty if they cannot be resolved.
func (c *Checker) physical(file string) string {
	r, err := Normalize(c.opt.FS, file)
	if err != nil || r.hidden {
		return ""
	}
	return r.Physical
}

// judgeOpaque denies programs with parts that could not be read, except code for an
// interpreter that is among the allowed commands.
func (c *Checker) judgeOpaque(an *Analysis) Verdict {
	for _, o := range an.Opaque {
		if o.interpreter != "" && c.listed[o.interpreter] {
			continue
		}
		return Verdict{Code: o.Code, Subject: o.Subject, Reason: o.Reason, Pos: o.Pos}
	}
	return allowed
}
