package app

import (
	"crypto/rand"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/runtime/claude"
)

// claude returns the runtime that runs the Claude Code CLI. The CLI is looked up at each start,
// so one that is installed later is found.
func (s *server) claude() (*claude.Runtime, error) {
	store := agentcli.New(agentcli.Config{Dir: RuntimesDir(s.cfg)})
	return claude.New(claude.Config{
		Program: func(trust holdfast.Trust) (claude.Program, error) {
			in, err := store.Find(claude.Name)
			if err != nil {
				return claude.Program{}, err
			}
			argv, env := in.At(runtimesFor(s.cfg, trust))
			p := claude.Program{Argv: argv, Version: in.Version}
			for k, v := range env {
				p.Env = append(p.Env, k+"="+v)
			}
			return p, nil
		},
		Limits: s.out.broker, NoPark: s.cfg.Models.Park == config.Off, Now: time.Now, Rand: rand.Reader,
	})
}
