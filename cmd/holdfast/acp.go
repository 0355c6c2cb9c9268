package main

import (
	"log/slog"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/acpserver"
	"github.com/holdfast-run/holdfast/internal/app"
)

type acpCmd struct {
	Agent    string   `placeholder:"NAME" help:"The agent of new sessions."`
	Runtime  string   `placeholder:"NAME" help:"How the agent of new sessions runs: native, claude or acp:NAME."`
	Trust    string   `placeholder:"TRUST" help:"The trust of new sessions: untrusted or trusted."`
	Model    string   `placeholder:"NAME" help:"The model of new sessions."`
	Models   []string `placeholder:"NAME" help:"More models for the editor to offer, separated by commas."`
	Mode     string   `placeholder:"MODE" help:"The permission mode of new sessions: ${modes}."`
	Tag      []string `placeholder:"TAG" help:"A tag for new sessions; repeatable."`
	OwnFiles bool     `help:"New sessions get files of their own, not the editor's directory."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*acpCmd) Help() string {
	return `Speaks the Agent Client Protocol on stdin and stdout: an editor starts it and uses the server's sessions as those of an agent. They continue when the editor is closed, and load with the whole conversation. They work in the editor's directory, in a box that has nothing else of this machine. With a server on another machine, or with --own-files, each has files of its own.

In Zed's settings:
  "agent_servers": {"Holdfast": {"type": "custom", "command": "holdfast", "args": ["acp"], "env": {}}}`
}

// Run serves one editor.
func (a *acpCmd) Run(e *env) error {
	e.keepSmall()
	log := e.logger()
	c, err := e.clientWith(client.Config{Waiting: logWaits(log)})
	if err != nil {
		return err
	}
	defer c.Close()
	if a.Trust != "" {
		trust, err := holdfast.Parse[holdfast.Trust](a.Trust)
		if err != nil {
			return err
		}
		e.warnTrust(trust, runsAsAny)
	}
	if a.Mode != "" {
		if _, err := holdfast.Parse[holdfast.Mode](a.Mode); err != nil {
			return err
		}
	}
	cfg := acpserver.Config{
		API: c, Version: programVersion(), Models: a.Models, Tools: app.Tools(), NewKey: newKey, Log: log,
		Create: holdfast.CreateSession{Agent: a.Agent, Runtime: a.Runtime, Trust: a.Trust, Model: a.Model, Mode: a.Mode, Tags: a.Tag},
	}
	if c.Local() && !a.OwnFiles {
		cfg.Workspace, cfg.Editor, cfg.Umask = c.Workspace, c.Editor, umaskFor(".")
	}
	return acpserver.Serve(e.ctx, cfg, e.stdin, e.stdout)
}

// logWaits returns a function that logs each wait for the server as a warning.
func logWaits(log *slog.Logger) func(client.Wait) {
	return func(w client.Wait) { log.Warn(w.String()) }
}

// logger returns a logger that writes warnings to stderr, for commands whose stdout carries a
// protocol. It quotes values that come from other parties.
func (e *env) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}
