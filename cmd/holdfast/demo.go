package main

import (
	"io"
	"os"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agents"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/demo"
)

type demoCmd struct {
	Dir  string `placeholder:"DIR" help:"Where the demo's directory is made; the system's temporary directory by default."`
	Live bool   `help:"Use the real model that a key in the environment is for, instead of the scripted one. It costs some cents."`

	Runtime string `enum:"native,claude" default:"native" help:"How the agent runs: native, or claude for the real Claude Code CLI against the scripted model."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*demoCmd) Help() string {
	return `Starts a server of its own in a temporary directory, offline, and shows step by step what survives the death of a box and of the server. Ends with 1 if any step fails.

Examples:
  holdfast demo
  ANTHROPIC_API_KEY=… holdfast demo --live
  holdfast runtime install claude && holdfast demo --runtime claude`
}

// Run plays the demo.
func (d *demoCmd) Run(e *env) error {
	model, err := d.model(e)
	if err != nil {
		return err
	}
	var runtime, runtimes string
	if d.Runtime != "native" {
		store, dir, err := runtimeDir{}.store(e)
		if err == nil {
			_, err = store.Find(d.Runtime)
		}
		if err != nil {
			return err
		}
		runtime, runtimes = d.Runtime, dir
	}
	s, err := newSubject(d.Dir)
	if err != nil {
		return err
	}
	defer e.endWithReader()()
	if d.Live {
		s.env = append(s.env, "HOLDFAST_DEFAULT_MODEL="+model)
		for _, name := range []string{
			"HOLDFAST_ANTHROPIC_URL", "HOLDFAST_ANTHROPIC_KEY_FILE", "HOLDFAST_ANTHROPIC_THINKING", "HOLDFAST_OPENAI_URL", "HOLDFAST_OPENAI_KEY_FILE",
		} {
			if v := e.getenv(name); v != "" {
				s.env = append(s.env, name+"="+v)
			}
		}
	}
	cfg := demo.Config{
		Runtime: runtime, Runtimes: runtimes, Live: d.Live,
		Binary: s.binary, Env: s.env, Dir: s.dir,
		Style: demo.Style{Good: e.style(green), Bad: e.style(red), Dim: e.style(dim), End: e.style(reset)},
		Pack:  func(dir string) (io.ReadCloser, error) { return agents.PackDir(e.ctx, dir), nil },
	}
	if !e.json {
		cfg.Out = e.stdout
	}
	res := demo.Run(e.ctx, cfg)
	s.remove(e, !res.OK)
	outcome := "nothing was lost, nothing ran twice"
	if !res.OK {
		outcome = "the demo failed"
	}
	return verdict(res.OK, e.say(res, "\n%s in %.1f s", outcome, res.MS/1000))
}

// model returns the name of the real model for --live, the default model of a server with this
// environment; without --live it returns "".
func (d *demoCmd) model(e *env) (string, error) {
	if !d.Live {
		return "", nil
	}
	if d.Runtime != "native" {
		return "", holdfast.Errorf(holdfast.KindInvalid, "demo", "--live works with the native agent only, not with --runtime %s", d.Runtime).
			WithHint("holdfast demo --live")
	}
	cfg, err := config.Load(config.Source{Getenv: e.getenv})
	if err != nil {
		return "", err
	}
	return app.RealModel(e.ctx, cfg, os.Environ())
}
