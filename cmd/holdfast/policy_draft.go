package main

import (
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/settings"
	"github.com/holdfast-run/holdfast/policy"
)

// policyDraft holds the flags that describe a policy to try out, which no server needs to use.
type policyDraft struct {
	Config string   `placeholder:"FILE" help:"The server's settings, as for serve."`
	Set    []string `placeholder:"KEY=VALUE" sep:"none" help:"Any setting, as permissions.deny=Bash(rm *); repeatable."`
	Agent  string   `placeholder:"DIR" help:"An agent's folder, whose settings are added."`
}

// engine returns the policy that the flags describe, and the settings of the folder that --agent names; without --agent
// these are empty.
func (d policyDraft) engine(e *env) (*policy.Engine, settings.Settings, error) {
	var none settings.Settings
	flags, err := settingFlags(d.Set)
	if err != nil {
		return nil, none, err
	}
	cfg, err := config.Load(config.Source{File: d.Config, Getenv: e.getenv, Flags: flags})
	if err != nil {
		return nil, none, err
	}
	p, err := app.Policy(cfg)
	if err != nil || d.Agent == "" {
		return p, none, err
	}
	s, err := settings.ReadDir(d.Agent, app.Tools())
	if err != nil {
		return nil, none, err
	}
	p, err = p.With(s.Layer())
	return p, s, err
}
