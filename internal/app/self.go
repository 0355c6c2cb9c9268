package app

import (
	"context"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/rooted"
	"github.com/holdfast-run/holdfast/sandbox"
)

// probeTime is the longest time in which a driver may try out a box.
const probeTime = 30 * time.Second

// health returns the answer to health checks.
func (s *server) health(ctx context.Context) holdfast.Health {
	h := s.engine.Health(ctx)
	h.Version, h.Driver, h.PID = s.opt.Version, s.cfg.Driver, os.Getpid()
	h.Damaged = s.store.Damaged()
	if err := s.store.Healthy(); err != nil {
		h.Status, h.ReadOnly = "read-only", err.Error()
	}
	return h
}

// describe returns the description of the running server.
func (s *server) describe(ctx context.Context) (holdfast.Server, error) {
	runtimes, err := s.describeRuntimes()
	if err != nil {
		return holdfast.Server{}, err
	}
	limits := s.cfg.Limits.Box()
	return holdfast.Server{
		Version: s.opt.Version, PID: os.Getpid(), StartedAt: s.about.started,
		Driver: s.cfg.Driver, Boxes: s.about.support(), Models: s.models(ctx),
		DefaultRuntime: s.cfg.DefaultRuntime, Runtimes: runtimes,
		Limits: holdfast.Limits{
			Boxes: s.cfg.MaxBoxes, Turns: s.cfg.MaxTurns, MemoryBytes: limits.MemoryBytes, CPUs: limits.CPUs, Pids: limits.Pids,
			TmpBytes: limits.TmpBytes, DiskBytes: limits.DiskBytes,
		},
		Disk: s.describeDisk(),
	}, nil
}

// describeRuntimes returns the runtimes with the versions of the installed CLIs.
func (s *server) describeRuntimes() ([]holdfast.Runtime, error) {
	out := s.engine.Runtimes().List()
	installed, err := agentcli.New(agentcli.Config{Dir: RuntimesDir(s.cfg)}).List()
	for i := range out {
		for _, cli := range installed {
			if cli.Name == strings.TrimPrefix(out[i].Name, "acp:") {
				out[i].Version = cli.Installed
			}
		}
	}
	return out, err
}

func (s *server) describeDisk() holdfast.Disk {
	space, err := rooted.DiskSpace(s.cfg.Data)
	if err != nil {
		return holdfast.Disk{Error: err.Error()}
	}
	return holdfast.Disk{
		Bytes: space.Bytes, FreeBytes: space.Free, ReserveBytes: int64(float64(s.cfg.DiskReserve) / 100 * float64(space.Bytes)),
	}
}

// supportOf returns a function that tries out a box of the driver for untrusted sessions at its
// first call, and returns the same result from then on. The first call takes at most probeTime,
// and ends with ctx.
func supportOf(ctx context.Context, drivers map[holdfast.Trust]sandbox.Driver) func() holdfast.BoxSupport {
	return sync.OnceValue(func() holdfast.BoxSupport {
		driver := drivers[holdfast.Untrusted]
		if driver == nil {
			return holdfast.BoxSupport{
				Problem: "no driver of this server isolates its boxes: untrusted sessions are refused",
				Hint:    "holdfast serve --driver local",
			}
		}
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		defer cancel()
		p := driver.Probe(ctx)
		out := holdfast.BoxSupport{Usable: p.Usable, Problem: p.Reason, Hint: p.Hint}
		for _, c := range p.Capabilities {
			if c.OK || c.Note {
				continue
			}
			out.Missing = append(out.Missing, c.Name+": "+c.Detail)
			if out.Hint == "" {
				out.Hint = c.Fix
			}
		}
		return out
	})
}

// tell passes the models to Options.Models, and logs what boxes lack if the server runs as an ordinary user.
// It runs after the server is ready, because both may take long.
func (s *server) tell(ctx context.Context) {
	if s.opt.Models != nil {
		if m := s.models(ctx); ctx.Err() == nil {
			s.opt.Models(m)
		}
	}
	if os.Getuid() == 0 || s.identity.Copy {
		return
	}
	boxes := s.about.support()
	switch {
	case ctx.Err() != nil:
	case !boxes.Usable:
		s.opt.Log.Warn("no box can start here, so only trusted sessions can run", "why", boxes.Problem, "hint", boxes.Hint)
	case len(boxes.Missing) > 0:
		var names []string
		for _, m := range boxes.Missing {
			name, _, _ := strings.Cut(m, ":")
			names = append(names, name)
		}
		s.opt.Log.Info("boxes start here, without "+strings.Join(names, ", "), "hint", "holdfast doctor says why")
	}
}
