package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/checks"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/plain"
)

type doctorCmd struct {
	Config string   `placeholder:"FILE" help:"The server's settings, as for serve."`
	Data   string   `placeholder:"DIR" help:"The server's data directory, as for serve."`
	Driver string   `placeholder:"NAME" help:"Ask for another driver than the configured one."`
	Verify bool     `help:"Check everything in the data directory instead: pages, checksums, logs, audit log, keys, boxes, files."`
	Set    []string `placeholder:"KEY=VALUE" sep:"none" help:"Any other setting, as for serve; repeatable."`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*doctorCmd) Help() string {
	return `Tries out what this machine can do, and says what is missing and what to type to get it: drivers, directories, disk, address, and whether a server answers. A note describes intended behaviour and needs no action. Exits with 1 if the configured driver cannot run, with the configured limits, the boxes of sessions that name no trust level.

Examples:
  holdfast doctor
  holdfast doctor --data /srv/holdfast --set limits.mode=best-effort
  holdfast doctor --verify --json`
}

// Run checks this machine, or with --verify the data directory, and reports the result.
func (d *doctorCmd) Run(e *env) error {
	flags, err := (&serveCmd{Data: d.Data, Driver: d.Driver, Set: d.Set}).flags()
	if err != nil {
		return err
	}
	cfg, err := config.Load(config.Source{File: d.Config, Getenv: e.getenv, Flags: flags})
	if err != nil {
		return err
	}
	if d.Data != "" { // with --data, use the server and the token of that data directory
		here, getenv := *e, e.getenv
		here.getenv = func(name string) string {
			if name == "HOLDFAST_HOME" {
				return cfg.Data
			}
			return getenv(name)
		}
		e = &here
	}
	if d.Verify {
		return d.verify(e, cfg)
	}
	check, address, server := d.server(e)
	found, err := app.Diagnose(e.ctx, e.drivers, cfg, os.Environ(), address)
	if err != nil {
		return err
	}
	found.Checks, found.Server = append(found.Checks, check), server
	return e.judge(found, found.OK, func() error { d.show(e, found); return nil })
}

// verify reads a whole data directory, whether or not a server runs on it.
func (d *doctorCmd) verify(e *env, cfg config.Config) error {
	found, err := app.Verify(e.ctx, cfg, os.Environ())
	if err != nil {
		return err
	}
	return e.judge(found, found.OK, func() error { d.showChecks(e, found.Checks); return nil })
}

// server checks that a server answers and accepts the token, and returns its address and its
// description. Most commands need a server, and holdfast acp and mcp, which editors and agents
// start, have little room to say why none answers.
func (d *doctorCmd) server(e *env) (check checks.Check, address string, server *holdfast.Server) {
	check = checks.Check{Name: "server", Fix: "holdfast serve"}
	c, err := e.client()
	if err == nil {
		defer c.Close()
		ctx, cancel := context.WithTimeout(e.ctx, 2*time.Second)
		defer cancel()
		var h holdfast.Health
		if h, err = c.Health(ctx); err == nil {
			if u, uerr := url.Parse(e.serverURL()); uerr == nil {
				address = u.Host
			}
			// The call Server takes longer than Health: the server tries out a box and asks the providers of models.
			patient, cancel := context.WithTimeout(e.ctx, 40*time.Second)
			defer cancel()
			var s holdfast.Server
			s, err = c.Server(patient)
			server = &s
		}
		if err == nil {
			return checks.Check{Name: check.Name, OK: true, Detail: fmt.Sprintf("version %s answers and takes the token, for holdfast acp and mcp as well", h.Version)}, address, server
		}
	}
	if hint := holdfast.HintOf(err); hint != "" {
		check.Fix = strings.TrimPrefix(hint, "start it with: ")
	}
	check.Detail = err.Error()
	return check, address, nil
}

func (d *doctorCmd) show(e *env, found app.Diagnosis) {
	for _, p := range found.Probes {
		state := e.style(green) + "usable" + e.style(reset)
		if !p.Usable {
			state = e.style(red) + "not usable" + e.style(reset)
		}
		role := ""
		switch {
		case !p.Isolates:
			role = ", for trusted sessions only"
		case p.Driver == found.Driver:
			role = ", the driver of untrusted sessions"
		}
		fmt.Fprintf(e.stdout, "driver %s: %s%s\n", p.Driver, state, role)
		if p.Reason != "" {
			fmt.Fprintf(e.stdout, "  %s\n", line(p.Reason))
		}
		if p.Hint != "" {
			fmt.Fprintf(e.stdout, "  hint: %s\n", line(p.Hint))
		}
		for _, c := range p.Capabilities {
			mark := e.style(green) + "ok" + e.style(reset) + "     "
			switch {
			case !c.OK && c.Note:
				mark = e.style(dim) + "note" + e.style(reset) + "   "
			case !c.OK && c.Required:
				mark = e.style(red) + "MISSING" + e.style(reset)
			case !c.OK:
				mark = e.style(dim) + "missing" + e.style(reset)
			}
			fmt.Fprintf(e.stdout, "  %s %-20s %s\n", mark, c.Name, line(c.Detail))
			showFix(e, c.Fix)
		}
	}
	fmt.Fprintln(e.stdout, "around it")
	d.showChecks(e, found.Checks)
	d.showServer(e, found)
	for _, r := range found.Runtimes {
		state := "not installed, holdfast runtime install " + r.Name
		switch {
		case r.Problem != "":
			state = "broken: " + line(r.Problem) + ", holdfast runtime install " + r.Name
		case r.Installed != "":
			state = r.Installed
		case r.Pinned == "":
			state = "not offered for this machine"
		}
		fmt.Fprintf(e.stdout, "runtime %s: %s\n", r.Name, state)
	}
	fmt.Fprintf(e.stdout, "data directory %s\n", line(found.Data))
	for _, s := range found.Sizes {
		fmt.Fprintf(e.stdout, "  %-20s %s\n", s.Name, plain.Size(s.Bytes))
	}
	if len(found.Sizes) == 0 {
		fmt.Fprintln(e.stdout, "  nothing there yet")
	}
}

// showServer prints the state of the server that answers; if none does, it prints the models
// that a server with this configuration would have.
func (*doctorCmd) showServer(e *env, found app.Diagnosis) {
	s := found.Server
	if s == nil {
		showConfigured(e, found)
		return
	}
	fmt.Fprintf(e.stdout, "the server that answers: version %s, process %d, since %s, driver %s\n", line(s.Version), s.PID, when(s.StartedAt), line(s.Driver))
	if !s.Boxes.Usable {
		fmt.Fprintf(e.stdout, "  %sno box can start%s: %s\n", e.style(red), e.style(reset), line(s.Boxes.Problem))
	}
	for _, p := range s.Models.Providers {
		fmt.Fprintf(e.stdout, "  models %s: %s\n", line(p.Name), line(providerState(p)))
	}
	fmt.Fprintf(e.stdout, "  %s\n", line(modelLine(s.Models)))
	for _, r := range s.Runtimes {
		state := cmp.Or(r.Problem, r.Version, "built in")
		if r.Name == s.DefaultRuntime {
			state += ", of sessions that name none"
		}
		fmt.Fprintf(e.stdout, "  runtime %s: %s\n", line(r.Name), line(state))
	}
	l := s.Limits
	fmt.Fprintf(e.stdout, "  limits: %s at once; each: %s of memory, %g CPUs, %s, /tmp %s, disk %s, %s at once\n",
		count(l.Boxes, "box", "boxes"), plain.Size(l.MemoryBytes), l.CPUs, count(int(l.Pids), "process", "processes"), plain.Size(l.TmpBytes), plain.Size(l.DiskBytes), count(l.Turns, "turn", "turns"))
	fmt.Fprintf(e.stdout, "  disk: %s\n", line(cmp.Or(s.Disk.Error, fmt.Sprintf("%s of %s are free, %s stay free", plain.Size(s.Disk.FreeBytes), plain.Size(s.Disk.Bytes), plain.Size(s.Disk.ReserveBytes)))))
}

func showConfigured(e *env, found app.Diagnosis) {
	for _, p := range found.Models {
		state := "no key"
		switch {
		case p.KeyFrom != "":
			state = "key from " + line(p.KeyFrom)
		case p.Configured:
			state = "without a key"
		}
		fmt.Fprintf(e.stdout, "models %s: %s, %s\n", p.Name, state, line(p.URL))
	}
	if found.ModelError != "" {
		fmt.Fprintf(e.stdout, "default model: none, %s\n", line(found.ModelError))
		return
	}
	fmt.Fprintf(e.stdout, "default model %s\n", line(found.DefaultModel))
}

func (d *doctorCmd) showChecks(e *env, list []checks.Check) {
	no := "missing"
	if d.Verify {
		no = "DAMAGED"
	}
	for _, c := range list {
		mark := e.style(green) + "ok" + e.style(reset) + "     "
		if !c.OK {
			mark = e.style(red) + no + e.style(reset)
		}
		fmt.Fprintf(e.stdout, "  %s %-20s %s\n", mark, c.Name, line(c.Detail))
		showFix(e, c.Fix)
	}
}

func showFix(e *env, fix string) {
	if fix != "" {
		fmt.Fprintf(e.stdout, "          fix: %s\n", line(fix))
	}
}
