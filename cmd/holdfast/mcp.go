package main

import (
	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/mcpserver"
)

type mcpCmd struct {
	MaxTrust     string `placeholder:"TRUST" help:"The highest trust of sessions that are made or worked in: untrusted (the default) or trusted."`
	AllowApprove bool   `help:"Also offer the tool that answers approvals, which are questions to a person. The agent that uses these tools can then approve in your place."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*mcpCmd) Help() string {
	return `Speaks the Model Context Protocol on stdin and stdout: another agent starts it and has the server's sessions as tools: create_session, list_sessions, send_message, read_events, list_files, read_file, write_file, interrupt and end_session. The tools have the rights of the token that the command uses.

Examples:
  claude mcp add holdfast -- holdfast mcp
  HOLDFAST_TOKEN=$(holdfast key create --name other-agent) holdfast mcp`
}

// Run serves one agent.
func (m *mcpCmd) Run(e *env) error {
	e.keepSmall()
	cfg := mcpserver.Config{Version: programVersion(), AllowApprove: m.AllowApprove, NewKey: newKey, Log: e.logger()}
	if m.MaxTrust != "" {
		var err error
		if cfg.MaxTrust, err = holdfast.Parse[holdfast.Trust](m.MaxTrust); err != nil {
			return err
		}
		e.warnTrust(cfg.MaxTrust, runsAsAny)
	}
	c, err := e.clientWith(client.Config{Waiting: logWaits(cfg.Log)})
	if err != nil {
		return err
	}
	defer c.Close()
	cfg.API, cfg.Approvals, cfg.Files = c, c, c
	return mcpserver.Serve(e.ctx, cfg, e.stdin, e.stdout)
}
