package main

import (
	"io"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agents"
	"github.com/holdfast-run/holdfast/internal/demo"
)

type demoCmd struct {
	Dir  string `placeholder:"DIR" help:"Where the demo's directory is made; the system's temporary directory by default."`
	Live bool   `help:"Use a real model instead of the scripted one."`

	Runtime string `enum:"native,claude" default:"native" help:"How the agent runs: native, or claude for the real Claude Code CLI against the scripted model."`
}

// Help is shown below the one-line description.
func (*demoCmd) Help() string {
	return `Starts a server of its own in a temporary directory, offline, and shows step by step what survives the death of a box and of the server. Ends with 1 if any step fails.

Examples:
  holdfast demo
  holdfast runtime install claude && holdfast demo --runtime claude`
}

// Run plays the demo.
func (d *demoCmd) Run(e *env) error {
	if d.Live {
		return holdfast.Errorf(holdfast.KindUnavailable, "demo", "the demo with a real model is not there yet").
			WithHint("holdfast demo")
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
	cfg := demo.Config{
		Runtime: runtime, Runtimes: runtimes,
		Binary: s.binary, Env: s.env, Dir: s.dir,
		Style: demo.Style{Good: e.style(green), Bad: e.style(red), Dim: e.style(dim), End: e.style(reset)},
		Pack:  func(dir string) (io.ReadCloser, error) { return agents.PackDir(dir), nil },
	}
	if !e.json {
		cfg.Out = e.stdout
	}
	res := demo.Run(e.ctx, cfg)
	s.remove(e, !res.OK)
	if err := e.say(res, "\n%s in %.1f s", verdict(res.OK, "nothing was lost, nothing ran twice", "the demo failed"), res.MS/1000); err != nil {
		return err
	}
	if !res.OK {
		return &exitError{1}
	}
	return nil
}

func verdict(ok bool, yes, no string) string {
	if ok {
		return yes
	}
	return no
}
