package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/policy"
)

type policyCmd struct {
	Explain policyExplainCmd `cmd:"" help:"Say how a tool call would be decided, and by what."`
}

type policyExplainCmd struct {
	Mode   string   `default:"bypassPermissions" placeholder:"MODE" help:"Permission mode (${default})."`
	Trust  string   `default:"untrusted" placeholder:"TRUST" help:"untrusted: in a box. trusted: on the host (${default})."`
	Config string   `placeholder:"FILE" help:"The server's settings, as for serve."`
	Set    []string `placeholder:"KEY=VALUE" sep:"none" help:"Any setting, as permissions.deny=Bash(rm *); repeatable."`
	Tool   string   `arg:"" help:"The tool: Bash, Read, Write, WebFetch or another one."`
	Input  string   `arg:"" help:"Its input as JSON, or for the common tools the command, file or address alone; put -- before it."`
}

// Help is shown below the one-line description.
func (*policyExplainCmd) Help() string {
	return `Needs no server: it reads the settings that a server would start with. Shows every stage that was asked, in order; the last one decided. Ends with 0 if the call is allowed, 1 if it is denied.

Examples:
  holdfast policy explain --mode default Bash -- 'git push'
  holdfast policy explain --set 'permissions.deny=Read(~/.ssh/**)' Read -- '~/.ssh/id_rsa'`
}

// explained is the answer as JSON.
type explained struct {
	Verdict string       `json:"verdict"`
	By      string       `json:"by"`
	Rule    string       `json:"rule,omitempty"`
	Reason  string       `json:"reason,omitempty"`
	Trace   policy.Trace `json:"trace"`
}

// Run asks the policy.
func (c *policyExplainCmd) Run(e *env) error {
	flags, err := settingFlags(c.Set)
	if err != nil {
		return err
	}
	cfg, err := config.Load(config.Source{File: c.Config, Getenv: e.getenv, Flags: flags})
	if err != nil {
		return err
	}
	engine, err := app.Policy(cfg.Permissions)
	if err != nil {
		return err
	}
	mode, err := holdfast.ParseMode(c.Mode)
	if err != nil {
		return err
	}
	trust, err := holdfast.ParseTrust(c.Trust)
	if err != nil {
		return err
	}
	input, err := toolInput(c.Tool, c.Input)
	if err != nil {
		return err
	}
	d, trace, err := engine.Explain(e.ctx, policy.Request{
		Session: "SESSION", Mode: mode, Tool: c.Tool, ReadOnly: policy.Reads(c.Tool), Input: input, Sandboxed: trust == holdfast.Untrusted,
	})
	if err != nil {
		return err
	}
	line := fmt.Sprintf("%s%s by %s", trace, d.Verdict, d.By)
	if err := e.say(explained{Verdict: d.Verdict.String(), By: d.By, Rule: d.Rule, Reason: d.Reason, Trace: trace}, "%s", line); err != nil {
		return err
	}
	if d.Verdict != policy.Allowed {
		return &exitError{1}
	}
	return nil
}

// plainField is the field that an input which is no JSON stands for.
var plainField = map[string]string{
	"Bash": "command", "Read": "file_path", "Write": "file_path", "Edit": "file_path",
	"Glob": "path", "Grep": "path", "LS": "path", "WebFetch": "url", "Task": "subagent_type",
}

func toolInput(tool, s string) (json.RawMessage, error) {
	if strings.HasPrefix(strings.TrimSpace(s), "{") {
		if !json.Valid([]byte(s)) {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "policy", "the input %s is not JSON", holdfast.Quote(s))
		}
		return json.RawMessage(s), nil
	}
	field, ok := plainField[tool]
	if !ok {
		return nil, holdfast.Errorf(holdfast.KindInvalid, "policy", "the input of %s has to be a JSON object", holdfast.Quote(tool)).
			WithHint(`write it as '{"field": "value"}'`)
	}
	return json.Marshal(map[string]string{field: s})
}
