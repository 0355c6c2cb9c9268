package main

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type runtimeCmd struct {
	List    runtimeListCmd    `cmd:"" help:"Say which agent CLIs are pinned and which are installed."`
	Install runtimeInstallCmd `cmd:"" help:"Fetch agent CLIs; needs no server."`
	Path    runtimePathCmd    `cmd:"" help:"Print the command of an installed agent CLI."`
}

// runtimeDir holds the flags for the data directory and the settings of the server whose agent CLIs a command works
// with.
type runtimeDir struct {
	Data   string `placeholder:"DIR" help:"The server's data directory; HOLDFAST_HOME, else $XDG_DATA_HOME/holdfast, else ~/.holdfast."`
	Config string `placeholder:"FILE" help:"The server's settings, as for serve."`
}

func (d runtimeDir) store(e *env) (*agentcli.Store, string, error) {
	flags := map[string]string{}
	if d.Data != "" {
		flags["data"] = d.Data
	}
	cfg, err := config.Load(config.Source{File: d.Config, Getenv: e.getenv, Flags: flags})
	if err != nil {
		return nil, "", err
	}
	dir := app.RuntimesDir(cfg)
	return agentcli.New(agentcli.Config{Dir: dir, Registry: e.getenv("npm_config_registry")}), dir, nil
}

type runtimeListCmd struct{ runtimeDir }

// Run lists the agent CLIs.
func (c *runtimeListCmd) Run(e *env) error {
	store, _, err := c.store(e)
	if err != nil {
		return err
	}
	list, err := store.List()
	if err != nil {
		return err
	}
	var rows [][]string
	for _, s := range list {
		installed := s.Installed
		switch {
		case s.Problem != "":
			installed = "broken: " + s.Problem
		case installed == "":
			installed = "-"
		case !s.Current:
			installed += " (old)"
		}
		rows = append(rows, []string{s.Name, installed, cmp.Or(s.Pinned, "-"), s.About})
	}
	return e.listing(map[string]any{"runtimes": list}, []string{"NAME", "INSTALLED", "PINNED", "WHAT"}, rows)
}

type runtimeInstallCmd struct {
	runtimeDir
	Names []string `arg:"" name:"name" help:"As holdfast runtime list names them."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*runtimeInstallCmd) Help() string {
	return `Fetches the pinned npm packages, checks each against its pinned hash and unpacks them below the data directory. Neither node nor npm is needed. Boxes see them read-only at /opt/holdfast; a running server needs no restart. npm_config_registry names another registry.

Examples:
  holdfast runtime install claude
  holdfast runtime install claude-code-acp opencode`
}

// Run installs the named agent CLIs.
func (c *runtimeInstallCmd) Run(e *env) error {
	store, dir, err := c.store(e)
	if err != nil {
		return err
	}
	// Before the server's first start, MkdirAll also makes the data directory; mode 0700 keeps other users out of it.
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return holdfast.Errorf(holdfast.KindUnavailable, "runtime", "the directory for agent CLIs cannot be made: %w", err).WithHint("holdfast runtime install %s --data DIR", word(c.Names[0]))
	}
	var done []agentcli.Installed
	for _, name := range c.Names {
		tell, clear := e.fetching(time.Now)
		in, err := store.Install(e.ctx, name, tell)
		clear()
		if err != nil {
			return err
		}
		done = append(done, in)
		if !e.json {
			fmt.Fprintf(e.stdout, "%s %s\n", in.Name, in.Version)
		}
	}
	if e.json {
		return e.print(map[string]any{"installed": done})
	}
	return nil
}

// fetching returns tell, which shows the progress of downloads on a line of stderr, and done, which
// removes the line. tell is nil with --json, or if stderr is not a terminal.
func (e *env) fetching(now func() time.Time) (tell func(agentcli.Progress), done func()) {
	if e.json || !isTerminal(e.stderr) {
		return nil, func() {}
	}
	var next time.Time
	tell = func(p agentcli.Progress) {
		if t := now(); t.Before(next) && p.Got != p.Total {
			return
		}
		next = now().Add(progressEvery)
		of := ""
		if p.Total > 0 {
			of = " of " + plain.Size(p.Total)
		}
		fmt.Fprintf(e.stderr, "\r\x1b[K%s: %s %s%s", p.Name, p.Package, plain.Size(p.Got), of)
	}
	return tell, func() { fmt.Fprint(e.stderr, "\r\x1b[K") }
}

type runtimePathCmd struct {
	runtimeDir
	Name string `arg:"" help:"As holdfast runtime list names it."`
}

// Run prints the command that starts an agent CLI, with its path on this machine. The path in a box
// begins with /opt/holdfast instead.
func (c *runtimePathCmd) Run(e *env) error {
	store, dir, err := c.store(e)
	if err != nil {
		return err
	}
	in, err := store.Find(c.Name)
	if err != nil {
		return err
	}
	argv, env := in.At(dir)
	box, _ := in.At(app.RuntimesInBox)
	return e.say(struct {
		agentcli.Installed
		Dir   string            `json:"dir"`
		Argv  []string          `json:"argv"`
		Set   map[string]string `json:"set,omitempty"`
		InBox []string          `json:"in_box"`
	}{in, filepath.Join(dir, in.Tree), argv, env, box}, "%s", strings.Join(argv, " "))
}
