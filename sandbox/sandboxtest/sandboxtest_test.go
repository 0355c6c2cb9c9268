package sandboxtest_test

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/driver/mem"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/sandboxtest"
)

func TestNamesAreManyAndUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range sandboxtest.Names() {
		if seen[name] {
			t.Errorf("two cases are named %s", name)
		}
		seen[name] = true
	}
	if len(seen) < 40 {
		t.Fatalf("%d cases, at least 40 asked", len(seen))
	}
	for _, row := range []string{"HZ3", "HZ4", "HZ9", "HZ10", "HZ15"} {
		if !strings.Contains(strings.Join(sandboxtest.Names(), " "), row+"_") {
			t.Errorf("no case bears %s", row)
		}
	}
}

// broken is the mem driver with one promise broken.
type broken struct {
	*mem.Driver
	how, dir string
}

func (b *broken) Probe(ctx context.Context) sandbox.Probe {
	p := b.Driver.Probe(ctx)
	if b.how == "claims to isolate" {
		p.Isolates = !p.Isolates
	}
	if b.how == "says nothing of a capability" {
		p.Capabilities = append(p.Capabilities, sandbox.Capability{Name: "landlock"})
	}
	return p
}

func (b *broken) Ensure(ctx context.Context, s sandbox.Spec) (sandbox.Info, error) {
	switch b.how {
	case "starts a second box":
		if err := b.Driver.Stop(ctx, s.Box); err != nil {
			return sandbox.Info{}, err
		}
	case "starts without a context":
		ctx = context.WithoutCancel(ctx)
	}
	return b.Driver.Ensure(ctx, s)
}

func (b *broken) Connect(ctx context.Context, id holdfast.BoxID) (net.Conn, error) {
	c, err := b.Driver.Connect(ctx, id)
	if err != nil && b.how == "unknown is internal" {
		return nil, holdfast.Errorf(holdfast.KindInternal, "broken", "what?")
	}
	return c, err
}

func (b *broken) Stop(ctx context.Context, id holdfast.BoxID) error {
	switch b.how {
	case "stop only hangs up":
		b.DropConnection(id)
		return nil
	case "stop of a stopped box fails":
		if _, err := b.Driver.Connect(ctx, id); err != nil {
			return err
		}
	}
	return b.Driver.Stop(ctx, id)
}

func (b *broken) Remove(ctx context.Context, id holdfast.BoxID) error {
	if b.how == "remove only stops" {
		return b.Driver.Stop(ctx, id)
	}
	return b.Driver.Remove(ctx, id)
}

func (b *broken) Freeze(ctx context.Context, id holdfast.BoxID) error {
	if b.how == "freeze does nothing" {
		return nil
	}
	return b.Driver.Freeze(ctx, id)
}

func (b *broken) Thaw(ctx context.Context, id holdfast.BoxID) error {
	if b.how == "thaw does nothing" {
		return nil
	}
	return b.Driver.Thaw(ctx, id)
}

func (b *broken) List(ctx context.Context) ([]sandbox.Info, error) {
	infos, err := b.Driver.List(ctx)
	if b.how == "all are listed as running" {
		for i := range infos {
			infos[i].Running = true
		}
	}
	return infos, err
}

func (b *broken) Prewarm(ctx context.Context, n int) error {
	if b.how == "lists ready boots" && n > 0 {
		_, err := b.Driver.Ensure(ctx, sandbox.Spec{Box: "w-ready", Dir: filepath.Join(b.dir, "ready")})
		return err
	}
	return nil
}

func (b *broken) Reserve(s sandbox.Spec) (sandbox.Spec, bool) { return s, false }

const brokenEnv = "SANDBOXTEST_BROKEN"

// TestBroken is run by TestSuiteNotices in a process of its own, and fails.
func TestBroken(t *testing.T) {
	how := os.Getenv(brokenEnv)
	if how == "" {
		t.Skip("only as a part of TestSuiteNotices")
	}
	dirs := map[sandbox.Driver]string{}
	sandboxtest.Run(t, sandboxtest.Config{
		New: func(t *testing.T) sandbox.Driver {
			d := &broken{mem.New(mem.Config{}), how, t.TempDir()}
			dirs[d] = d.dir
			return d
		},
		Again: func(t *testing.T, d sandbox.Driver) sandbox.Driver {
			if how == "forgets at a restart" {
				return &broken{mem.New(mem.Config{}), how, t.TempDir()}
			}
			return &broken{d.(*broken).Reopen(), how, t.TempDir()}
		},
		Spec: func(_ *testing.T, d sandbox.Driver, name string) sandbox.Spec {
			dir := filepath.Join(dirs[d], name)
			if how == "shares directories" {
				dir = dirs[d]
			}
			return sandbox.Spec{Box: holdfast.BoxID("w-" + name), Dir: dir}
		},
		Kill: func(_ *testing.T, d sandbox.Driver, id holdfast.BoxID) {
			if how == "keeps outcomes of a killed box" {
				if err := d.Stop(context.Background(), id); err != nil {
					t.Error(err)
				}
				return
			}
			d.(*broken).KillBox(id)
		},
		Isolates: true, FixedPaths: true, Wait: 2 * time.Second,
	})
}

// The suite is a test: a driver that breaks a promise must not pass it.
func TestSuiteNotices(t *testing.T) {
	for how, by := range map[string]string{
		"claims to isolate":              "Probe/TellsTheTruth",
		"says nothing of a capability":   "Probe/TellsTheTruth",
		"starts a second box":            "Ensure/Idempotent",
		"starts without a context":       "Ensure/EndsWithContext",
		"unknown is internal":            "Connect/UnknownIsNotFound",
		"stop only hangs up":             "Stop/EndsEverything",
		"stop of a stopped box fails":    "Stop/Idempotent",
		"remove only stops":              "Remove/ForgetsAndKeepsFiles",
		"freeze does nothing":            "Freeze/HZ10_WorkStandsStill",
		"thaw does nothing":              "Freeze/HZ10_NextServerThaws",
		"all are listed as running":      "List/RunningAndStopped",
		"forgets at a restart":           "Adopt/SecondInstanceFindsTheBox",
		"lists ready boots":              "Prewarm/ReadyBootsAreNoBoxes",
		"shares directories":             "Ensure/ManyBoxes",
		"keeps outcomes of a killed box": "Killed/NextLifeIsNew",
	} {
		t.Run(how, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run", "^TestBroken$/^"+strings.ReplaceAll(by, "/", "$/^")+"$")
			cmd.Env = append(os.Environ(), brokenEnv+"="+how)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestBroken/"+by) {
				t.Fatalf("%s does not notice a driver that %s: %v\n%s", by, how, err, out)
			}
		})
	}
}
