package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/app/apptest"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/lifecycle"
	"github.com/holdfast-run/holdfast/sandbox"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"holdfast": program{drivers: apptest.Drivers()}.main})
}

// run runs the program of the tests, which has the drivers of tests.
func run(ctx context.Context, args []string, getenv func(string) string, stdin io.Reader, stdout, stderr io.Writer) int {
	return program{drivers: apptest.Drivers()}.run(ctx, args, getenv, stdin, stdout, stderr)
}

// TestScripts runs each script against a server of its own, over the mem driver
// and the scripted model.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:             filepath.Join("..", "..", "testdata", "scripts"),
		ContinueOnError: true,
		Setup:           func(e *testscript.Env) error { return setup(t, e) },
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"session":  scriptSession,
			"wait_for": scriptWaitFor,
			"set":      scriptSet,
			"up":       scriptUp,
			"down":     scriptDown,
			"get":      scriptGet,
			"damage":   scriptDamage,
		},
	})
}

func setup(t *testing.T, e *testscript.Env) error {
	cfg := config.Defaults()
	cfg.Data, cfg.Listen, cfg.Driver = filepath.Join(e.WorkDir, ".home"), "127.0.0.1:0", "mem"
	cfg.Limits.Mode = sandbox.LimitsBestEffort
	cfg.Network.Allow = []string{"*.org", "*.npmjs.org", "example.com:8443"}
	vars, err := startServer(t, cfg, e.Defer)
	for k, v := range vars {
		e.Setenv(k, v)
	}
	return err
}

// scriptSession makes a session and puts its id into a variable:
// session NAME [flags…].
func scriptSession(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: session NAME [flags…]")
	}
	ts.Check(ts.Exec("holdfast", append([]string{"session", "create"}, args[1:]...)...))
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// scriptSet puts the last output, trimmed, into a variable.
func scriptSet(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: set NAME")
	}
	ts.Setenv(args[0], strings.TrimSpace(ts.ReadFile("stdout")))
}

// scriptWaitFor runs a command until its output holds a text:
// wait_for TEXT COMMAND….
func scriptWaitFor(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: wait_for TEXT COMMAND…")
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); <-tick.C {
		if ts.Exec(args[1], args[2:]...) == nil && strings.Contains(ts.ReadFile("stdout"), args[0]) {
			return
		}
	}
	ts.Fatalf("%q did not come within 30 s", args[0])
}

// runCLI runs the program in this process.
func runCLI(t *testing.T, vars map[string]string, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, func(k string) string { return vars[k] }, strings.NewReader(stdin), &out, &errs)
	return code, out.String(), errs.String()
}

// TestHelpIsGolden holds every help page; go test ./cmd/holdfast -run Golden -update
// rewrites them.
func TestHelpIsGolden(t *testing.T) {
	var all strings.Builder
	for _, node := range commands(model(t)) {
		cmd := commandOf(node)
		code, out, errs := runCLI(t, nil, "", append(strings.Fields(cmd), "--help")...)
		if code != 0 || errs != "" {
			t.Errorf("%q: code %d, %s", cmd, code, errs)
		}
		all.WriteString("$ " + strings.TrimSpace("holdfast "+cmd) + " --help\n" + out + "\n")
	}
	name := filepath.Join("testdata", "help.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(all.String(), "\n")); d != "" {
		t.Errorf("help changed; look at it, then run with -update:\n%s", d)
	}
}

func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, want, hint string }{
		{"bogus", "unexpected argument bogus", "holdfast --help"},
		{"session list --bogus", "unknown flag --bogus", "holdfast session list --help"},
		{"session show", `expected "<id>"`, "holdfast session show --help"},
		{"send x y --steer --interrupt", "--interrupt and --steer can't be used together", "holdfast send --help"},
		{"agent deploy .", "missing flags: --name=NAME", "holdfast agent deploy --help"},
		{"session list --limit=-3", "--limit -3 is negative", ""},
		{"session show @x", `"@x" cannot name a session`, "holdfast session list"},
		{"session events 01 --after=-1", "--after -1 is negative", ""},
		{"session update 01", "no change to the session is given", "--mode plan"},
		{"exec 01 --", "no command", "holdfast exec 01"},
		{"files put 01 a b --mode 9", `mode "9" is not octal permission bits`, "0644"},
		{"containers stop", "no box to stop is named", "containers stop --all"},
		{"containers stop a --all", "--all stops every box, and boxes are named as well", ""},
		{"workspace create", "the workspace has no name: neither a name, a title nor a directory is given", "holdfast workspace create site"},
		{"workspace create --title=", "the workspace has no name: neither a name, a title nor a directory is given", ""},
		{"workspace create --dir=", "--dir: the flag's value is empty", "holdfast workspace create --help"},
		{"session create --dir=", "--dir: the flag's value is empty", "holdfast session create --help"},
		{"session create --workspace=", "--workspace: the flag's value is empty", ""},
		{"session create --from=", "--from: the flag's value is empty", ""},
		{"chat --git=", "--git: the flag's value is empty", ""},
		{"agent show ../x", `"../x" is not an agent name`, "a-z"},
		{"terminal 01 --json", "no JSON form", "holdfast exec 01"},
		{"serve --set x", `--set "x" is not KEY=VALUE`, ""},
		{"serve --set listen=a --listen b", `"listen" is given both by`, ""},
		{"serve --set a=1 --set a=2", `gives the setting "a" twice`, ""},
		{"serve --set no.such=1", "no.such", ""},
		{"session list --url ftp://x", `"ftp://x" is not an http or https URL of a server`, "HOLDFAST_URL"},
	} {
		vars := map[string]string{"HOLDFAST_HOME": t.TempDir(), "HOLDFAST_TOKEN": "t"}
		code, out, errs := runCLI(t, vars, "", strings.Fields(c.args)...)
		if code != holdfast.KindInvalid.ExitCode() || out != "" || !strings.Contains(errs, c.want) || !strings.Contains(errs, c.hint) {
			t.Errorf("%s: code %d, %q %q", c.args, code, out, errs)
		}
		if !strings.HasPrefix(errs, "holdfast: ") && !strings.HasPrefix(errs, "{") {
			t.Errorf("%s: %q", c.args, errs)
		}
	}
}

// TestOtherWordsForHelpAndVersion: what people type first works.
func TestOtherWordsForHelpAndVersion(t *testing.T) {
	for _, c := range []struct{ args, same string }{
		{"help", "--help"}, {"help session create", "session create --help"}, {"--version", "version"}, {"--version --json", "version --json"},
	} {
		code, out, errs := runCLI(t, nil, "", strings.Fields(c.args)...)
		if _, want, _ := runCLI(t, nil, "", strings.Fields(c.same)...); code != 0 || out != want || out == "" || errs != "" {
			t.Errorf("%s: %d %q %q", c.args, code, out, errs)
		}
	}
}

// TestTokenStaysOnThisMachine: the owner's token of the default data directory
// is not sent to whatever HOLDFAST_URL names.
func TestTokenStaysOnThisMachine(t *testing.T) {
	home := t.TempDir()
	dir := filepath.Join(home, ".holdfast")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	token, err := lifecycle.OwnerToken(filepath.Join(dir, "token"), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		url  string
		vars map[string]string
		want string
	}{
		{"", nil, token},
		{"http://127.0.0.1:9", nil, token},
		{"http://[::1]:9", nil, token},
		{"http://localhost:9", nil, token},
		{"http://example.com", nil, ""},
		{"http://127.0.0.1.example.com", nil, ""},
		{"http://example.com", map[string]string{"HOLDFAST_HOME": dir}, token},
		{"http://example.com", map[string]string{"HOLDFAST_TOKEN": "given"}, "given"},
	} {
		e := &env{getenv: func(k string) string {
			if k == "HOME" {
				return home
			}
			if k == "HOLDFAST_URL" {
				return c.url
			}
			return c.vars[k]
		}}
		got, err := e.token(e.serverURL(), nil)
		if err != nil || got != c.want {
			t.Errorf("%s %v: %q %v", c.url, c.vars, got, err)
		}
	}
	if err := os.Chmod(filepath.Join(dir, "token"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, errs := runCLI(t, map[string]string{"HOME": home}, "", "session", "list")
	if code != holdfast.KindDenied.ExitCode() || !strings.Contains(errs, "users other than its owner can access") {
		t.Errorf("an open token: %d %s", code, errs)
	}
}
