package main

import (
	"context"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/bench"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/internal/obs"
	"github.com/holdfast-run/holdfast/internal/torture"
)

type serveCmd struct {
	Listen    string   `placeholder:"ADDR" help:"Address of the API; port 0 picks a free port."`
	Data      string   `placeholder:"DIR" help:"Data directory; HOLDFAST_HOME, else $XDG_DATA_HOME/holdfast, else ~/.holdfast."`
	Config    string   `placeholder:"FILE" help:"Settings as YAML; docs/config.md lists them."`
	Driver    string   `placeholder:"NAME" help:"What boxes are made of: local or host."`
	LogFormat string   `placeholder:"FORMAT" help:"Format of the log on stderr: text, json, or journal for systemd."`
	LogLevel  string   `placeholder:"LEVEL" help:"Least level that is logged: debug, info, warn or error."`
	Set       []string `placeholder:"KEY=VALUE" sep:"none" help:"Any other setting, as limits.memory=2GiB; repeatable."`

	AcceptCopy bool `help:"Let a copied or restored data directory work as a server of its own; without it such a copy only shows its sessions."`

	KillPoints string `hidden:"" placeholder:"SOCKET"`
	SoakProbe  string `hidden:"" placeholder:"SOCKET"`
}

// Help returns the text that the help shows below the one-line description of the command.
func (*serveCmd) Help() string {
	return `Prints one line with the URL when it is ready. The first Ctrl-C or SIGTERM drains: running turns may finish, for drain_timeout at most; what still runs then goes on at the next start. A second Ctrl-C or SIGTERM ends the server at once. A server that is killed loses nothing: the next start continues its turns. On a full disk it refuses writes until there is space; after a failed write or fsync it ends with 7, its boxes go on, and it is to be started again.

Examples:
  holdfast serve
  holdfast serve --listen 127.0.0.1:0 --data /tmp/hf --set limits.mode=best-effort`
}

// exitDisk is the exit code of a server whose disk failed during work, for the supervisor that
// starts it.
const exitDisk = 7

// gcPercent is by how many percent of the live bytes the heap grows between two collections. A busy
// server has some 15 MB of live bytes, so that twice as much costs little memory and saves half of the
// collector's work. 400 was tried: the server took 45 MB more and no less time.
const gcPercent = 200

// Run runs the server until a signal ends it.
func (s *serveCmd) Run(e *env) error {
	lifecycle.CalmMonitor()
	if e.getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	e.keepSmall()
	flags, err := s.flags()
	if err != nil {
		return err
	}
	cfg, err := config.Load(config.Source{File: s.Config, Getenv: e.getenv, Flags: flags})
	if err != nil {
		return err
	}
	log, err := obs.NewLogger(e.stderr, cfg.LogFormat, cfg.LogLevel)
	if err != nil {
		return err
	}
	if err := lifecycle.NoDumps(); err != nil {
		log.Warn("a crash may leave keys in a core file", "error", err)
	}
	manager := e.getenv("NOTIFY_SOCKET")
	tell := func(state string) {
		if err := lifecycle.Notify(manager, state); err != nil {
			log.Warn("systemd was not notified", "error", err)
		}
	}
	opt := app.Options{Version: programVersion(), Environ: os.Environ(), Drivers: e.drivers, Log: log, AcceptCopy: s.AcceptCopy, Ready: func(url string) {
		// A failed write to stdout is ignored: the server runs whether or not anybody reads its URL.
		_ = e.say(map[string]string{"url": url}, "holdfast is ready at %s", url)
		tell("READY=1")
	}, Models: func(m holdfast.Models) {
		_ = e.say(map[string]any{"models": m}, "%s", modelLine(m))
	}}
	// SIGPIPE is caught: when the reader of stdout is gone, writes fail, and the server goes on.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	opt.Died = func(err error) {
		log.Error("the disk failed: the server ends, its boxes go on", "error", err, "hint", holdfast.HintOf(err))
		os.Exit(exitDisk)
	}
	unhook := context.AfterFunc(e.ctx, func() { tell("STOPPING=1") })
	defer unhook()
	if s.KillPoints != "" {
		opt.At = torture.Report(s.KillPoints)
	}
	if s.SoakProbe != "" {
		if err := bench.Probe(s.SoakProbe); err != nil {
			return err
		}
	}
	return app.Run(e.ctx, cfg, opt)
}

// keepSmall bounds the heap of a command that handles large messages, unless GOMEMLIMIT
// is set.
func (e *env) keepSmall() {
	if e.getenv("GOMEMLIMIT") == "" {
		lifecycle.KeepSmall()
	}
}

// flags returns the settings given on the command line, by key.
func (s *serveCmd) flags() (map[string]string, error) {
	out, err := settingFlags(s.Set)
	if err != nil {
		return nil, err
	}
	for k, v := range map[string]string{"listen": s.Listen, "data": s.Data, "driver": s.Driver, "log_format": s.LogFormat, "log_level": s.LogLevel} {
		if v == "" {
			continue
		}
		if _, twice := out[k]; twice {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "serve", "the setting %s is given both by --%s and by --set", holdfast.Quote(k), strings.ReplaceAll(k, "_", "-"))
		}
		out[k] = v
	}
	return out, nil
}

// settingFlags returns the settings of --set, by key.
func settingFlags(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, kv := range list {
		k, v, ok := strings.Cut(kv, "=")
		if !ok || k == "" {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "serve", "--set %s is not KEY=VALUE", holdfast.Quote(kv)).
				WithHint("holdfast serve --set limits.memory=2GiB")
		}
		if _, twice := out[k]; twice {
			return nil, holdfast.Errorf(holdfast.KindInvalid, "serve", "--set gives the setting %s twice", holdfast.Quote(k))
		}
		out[k] = v
	}
	return out, nil
}
