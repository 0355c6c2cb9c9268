//go:build linux

package acp_test

import (
	"crypto/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/agentcli"
	"github.com/holdfast-run/holdfast/internal/double"
	"github.com/holdfast-run/holdfast/internal/driver/local"
	"github.com/holdfast-run/holdfast/internal/runtime"
	"github.com/holdfast-run/holdfast/internal/runtime/acp"
	"github.com/holdfast-run/holdfast/internal/runtime/runtimetest"
	"github.com/holdfast-run/holdfast/internal/testkit"
	"github.com/holdfast-run/holdfast/sandbox"
	"github.com/holdfast-run/holdfast/sandbox/boxd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// suiteUID is the first of the host ids of these boxes.
const suiteUID = 1_878_600_000

// boxes gives local boxes that see a directory of runtimes.
func boxes(runtimes string, more ...string) func(t *testing.T) (sandbox.Driver, string) {
	return func(t *testing.T) (sandbox.Driver, string) {
		t.Helper()
		program := testkit.Boxd(t)
		dir := testkit.BaseDir(t)
		d, err := local.New(local.Config{
			Home: dir, Boxd: boxd.File(program),
			ReadOnly:   append([]string{runtimes + ":/opt/holdfast"}, more...),
			LimitsMode: sandbox.LimitsBestEffort, Now: time.Now, Rand: rand.Reader, Owner: testkit.Owner(dir),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		return d, filepath.Join(dir, "s")
	}
}

// found is the program of an installed CLI, as boxes see it.
func found(t *testing.T, runtimes, name string) func(holdfast.Trust) (acp.Program, error) {
	t.Helper()
	in, err := agentcli.New(agentcli.Config{Dir: runtimes}).Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return func(holdfast.Trust) (acp.Program, error) {
		argv, env := in.At("/opt/holdfast")
		return acp.Program{Argv: argv, Env: env, Version: in.Version}, nil
	}
}

// models is a handler for the connections that boxes make to their model.
func models(t *testing.T, h http.Handler) sandbox.Handler {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	addr := srv.Listener.Addr().String()
	return func(_ holdfast.SessionID, name string, conn net.Conn) {
		if name != acp.ModelListener {
			_ = conn.Close()
			return
		}
		testkit.Forward(conn, addr)
	}
}

// scripted is the double behind a translator of tool names.
func scripted(t *testing.T, names map[string]string, fields map[string]string) http.Handler {
	t.Helper()
	l, err := double.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	model := double.Serve(l, double.Config{})
	t.Cleanup(func() { _ = model.Close() })
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: l.Addr().String()})
	proxy.FlushInterval = -1
	proxy.ModifyResponse = func(resp *http.Response) error {
		if len(names) > 0 {
			resp.Body = translate(resp.Body, names, fields)
		}
		return nil
	}
	proxy.ErrorLog = nil
	return proxy
}

// suite is the contract for one real agent.
func suite(t *testing.T, name string, profile func(find func(holdfast.Trust) (acp.Program, error)) acp.Profile, model http.Handler, lost string, exempt map[string]string) {
	runtimes := testkit.Runtimes(t, name)
	runtimetest.Run(t, runtimetest.Config{
		New: func(t *testing.T) runtime.Runtime {
			r, err := acp.New(acp.Config{Profile: profile(found(t, runtimes, name)), Now: time.Now})
			if err != nil {
				t.Fatal(err)
			}
			return r
		},
		InBox: true, Runtime: "acp:" + name, Boxes: boxes(runtimes), UID: suiteUID, Accepted: models(t, model), Points: 6,
		Lost: lost, Exempt: exempt,
	})
}

// TestClaudeCodeContract: claude-code-acp keeps the contract of a runtime.
func TestClaudeCodeContract(t *testing.T) {
	testkit.Long(t)
	suite(t, "claude-code-acp", acp.ClaudeCode, scripted(t, nil, nil), "API Error: Connection lost mid-response. The response above may be incomplete.\n", map[string]string{
		"Works": "the protocol does not say where an answer of the model ends, so steps cannot be counted; internal/app TestACPTurns",
		"Fails": "the CLI asks again without what the model refused, and has an answer then",
	})
}

// TestOpenCodeContract: opencode does.
func TestOpenCodeContract(t *testing.T) {
	testkit.Long(t)
	suite(t, "opencode", acp.OpenCode, scripted(t, map[string]string{"Bash": "bash", "Read": "read"}, map[string]string{"file_path": "filePath"}), "", map[string]string{
		"Works":  "it runs the calls of one answer side by side",
		"Denies": "it ends its turn with the first denial; internal/app TestACPDecisions",
		"Fails":  "its error names no kind; TestBadAgents/ERROR",
	})
}
