package app_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/client"
	"github.com/holdfast-run/holdfast/internal/app"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// outside is a server with a real sandbox for whose boxes the world is one site.
func outside(t *testing.T, tune func(*config.Config)) (config.Config, func(*app.Options)) {
	t.Helper()
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprintf(w, "hello from %s%s", r.Host, r.URL.Path)
	}))
	t.Cleanup(site.Close)
	cfg := settings(t, "local")
	if tune != nil {
		tune(&cfg)
	}
	return cfg, func(o *app.Options) {
		o.Resolve = func(_ context.Context, host string) ([]netip.Addr, error) {
			if !strings.HasSuffix(host, ".example") {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr("93.184.215.14")}, nil
		}
		o.Dial = func(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "tcp", site.Listener.Addr().String())
		}
	}
}

// get is a request as a program in the box makes it, through the proxy that its
// environment names, by the shell alone.
func get(url string) string {
	return `[ -n "$http_proxy" ] || { echo no proxy; exit 0; }; p=${http_proxy#http://}; exec 3<>/dev/tcp/${p%:*}/${p#*:} && printf 'GET ` + url +
		` HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3 && cat <&3`
}

func inside(t *testing.T, c *client.Client, id holdfast.SessionID, command string) string {
	t.Helper()
	res, err := c.Exec(t.Context(), id, holdfast.ExecRequest{Argv: []string{"bash", "-c", command}})
	if err != nil {
		t.Fatal(err)
	}
	return string(res.Stdout) + string(res.Stderr)
}

// TestHZ7_ABoxReachesWhatItWasGranted: by default nothing, and no proxy; then what the
// session names within what the server allows, from the next connection on; each
// decision is in the log.
//
// WS-R121.
func TestHZ7_ABoxReachesWhatItWasGranted(t *testing.T) {
	cfg, world := outside(t, func(c *config.Config) { c.Network.Allow = []string{"*.example"} })
	c, _, _ := serveWith(t, cfg, world)
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	if out := inside(t, c, ses.ID, get("http://a.example/")); out != "no proxy\n" {
		t.Fatalf("without a grant: %q", out)
	}
	if out := inside(t, c, ses.ID, "exec 3<>/dev/tcp/127.0.0.1/3128"); !strings.Contains(out, "refused") {
		t.Errorf("something listens: %q", out)
	}
	update := func(req holdfast.UpdateSession) {
		t.Helper()
		if _, err := c.UpdateSession(t.Context(), ses.ID, req); err != nil {
			t.Fatal(err)
		}
	}
	update(holdfast.UpdateSession{AllowNet: []string{"a.example"}})
	_, err = c.UpdateSession(t.Context(), ses.ID, holdfast.UpdateSession{AllowNet: []string{"evil.test"}})
	refusedWith(t, err, holdfast.KindDenied, `"evil.test"`, "network.allow=")
	if out := inside(t, c, ses.ID, get("http://a.example/path")); !strings.Contains(out, "hello from a.example/path") {
		t.Errorf("granted: %q", out)
	}
	for _, host := range []string{"b.example", "evil.test", "127.0.0.1", "a.example:22"} {
		if out := inside(t, c, ses.ID, get("http://"+host+"/")); !strings.Contains(out, "403 Forbidden") {
			t.Errorf("%s: %q", host, out)
		}
	}
	update(holdfast.UpdateSession{DenyNet: []string{"a.example"}})
	if out := inside(t, c, ses.ID, strings.Replace(get("http://a.example/"), "[ -n", "http_proxy=http://127.0.0.1:3128; [ -n", 1)); !strings.Contains(out, "403 Forbidden") {
		t.Errorf("taken back: %q", out)
	}
	testkit.Eventually(t, "the decisions are in the log", func() bool {
		allowed := logged[holdfast.EgressDecision](t, c, ses.ID, holdfast.EventEgressAllowed)
		denied := logged[holdfast.EgressDecision](t, c, ses.ID, holdfast.EventEgressDenied)
		return len(allowed) == 1 && allowed[0].Host == "a.example" && allowed[0].Address == "93.184.215.14" && allowed[0].Received > 10 && len(denied) == 5
	})

	none, err := c.CreateSession(t.Context(), holdfast.CreateSession{Network: []string{}}, "")
	if err != nil {
		t.Fatal(err)
	}
	if out := inside(t, c, none.ID, get("http://a.example/")); out != "no proxy\n" {
		t.Errorf("%q", out)
	}
	if _, err := c.CreateSession(t.Context(), holdfast.CreateSession{Network: []string{"10.0.0.1"}}, ""); !holdfast.IsKind(err, holdfast.KindInvalid) {
		t.Errorf("an address: %v", err)
	}
}

// TestATakenProxyPortIsANotice: if a program in the box has the port of the proxy, a grant has no effect, and the log says so.
func TestATakenProxyPortIsANotice(t *testing.T) {
	cfg, world := outside(t, func(c *config.Config) { c.Network.Allow = []string{"*.example"} })
	c, _, _ := serveWith(t, cfg, world)
	id := newSession(t, c, "untrusted")
	const takes = `use IO::Socket::INET; $s = IO::Socket::INET->new(Listen => 1, LocalAddr => "127.0.0.1:3128") or die $!; open F, ">taken"; sleep 600`
	inside(t, c, id, "setsid perl -e '"+takes+"' > /dev/null 2> why < /dev/null & until [ -e taken ]; do [ ! -s why ] || exit; sleep 0.02; done")
	if _, err := c.UpdateSession(t.Context(), id, holdfast.UpdateSession{AllowNet: []string{"a.example"}}); err != nil {
		t.Fatal(err)
	}
	if out := inside(t, c, id, get("http://a.example/")); out != "no proxy\n" {
		t.Errorf("the port was not taken: %q, %q", out, inside(t, c, id, "cat why"))
	}
	said := logged[holdfast.Notice](t, c, id, holdfast.EventNotice)
	if len(said) != 1 || said[0].Code != "network.unavailable" || said[0].Level != "warning" || !strings.Contains(said[0].Text, "127.0.0.1:3128") {
		t.Errorf("notices %+v", said)
	}
}

// TestWhatCannotWorkIsRefusedAtCreate: destinations that nothing can grant, and runtimes
// that cannot work, are refused before there is a session: with the value, and a hint.
func TestWhatCannotWorkIsRefusedAtCreate(t *testing.T) {
	cfg, world := outside(t, func(c *config.Config) { c.Network.Allow = []string{"*.example", "b.test:8443"} })
	c, _, stop := serveWith(t, cfg, world)
	create := func(req holdfast.CreateSession) error {
		_, err := c.CreateSession(t.Context(), req, "")
		return err
	}
	for _, list := range [][]string{{"a.example"}, {"*"}, {"*.a.example"}, {"b.test:8443"}, {"*.test:8443"}} {
		if err := create(holdfast.CreateSession{Network: list}); err != nil {
			t.Errorf("%v: %v", list, err)
		}
	}
	for _, one := range []string{"example", "a.test", "b.test", "a.example:22", "*.test"} {
		refusedWith(t, create(holdfast.CreateSession{Network: []string{"a.example", one}}), holdfast.KindDenied, holdfast.Quote(one), "network.allow=*.example,b.test:8443,"+one)
	}
	refusedWith(t, create(holdfast.CreateSession{Trust: "trusted", Network: []string{"a.example"}}), holdfast.KindInvalid, `"a.example"`, "--trust untrusted")
	for name, install := range map[string]string{"claude": "claude", "acp:opencode": "opencode", "acp:claude-code-acp": "claude-code-acp"} {
		for _, trust := range []string{"", "trusted"} {
			refusedWith(t, create(holdfast.CreateSession{Runtime: name, Trust: trust}), holdfast.KindUnavailable, "not installed", "holdfast runtime install "+install)
		}
	}
	refusedWith(t, create(holdfast.CreateSession{Runtime: "none"}), holdfast.KindInvalid, `"none"`, "use one of")
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{}, "")
	if err != nil {
		t.Fatal(err)
	}
	claude := "claude"
	_, err = c.UpdateSession(t.Context(), ses.ID, holdfast.UpdateSession{Runtime: &claude})
	refusedWith(t, err, holdfast.KindUnavailable, "not installed", "holdfast runtime install claude")
	stop()

	cfg.Network.Allow = nil
	c, _, _ = serveWith(t, cfg, world)
	refusedWith(t, create(holdfast.CreateSession{Network: []string{"a.example"}}), holdfast.KindDenied, `"a.example"`, "network.allow=a.example")
	if _, err = c.UpdateSession(t.Context(), ses.ID, holdfast.UpdateSession{AllowNet: []string{"a.example"}}); !holdfast.IsKind(err, holdfast.KindDenied) {
		t.Errorf("an update: %v", err)
	}
}

// TestHZ7_SettingsNameAndBoundTheNetwork: an agent's settings (allowedDomains, SDK-B12)
// name what programs in the boxes of its sessions reach, and bound what a session may name;
// settings in the workspace, which the agent can write, only take away.
func TestHZ7_SettingsNameAndBoundTheNetwork(t *testing.T) {
	cfg, world := outside(t, func(c *config.Config) { c.Network.Allow = []string{"*"} })
	c, _, stop := serveWith(t, cfg, world)
	if _, err := c.DeployAgent(t.Context(), "net", tarOf(t, entry{name: "CLAUDE.md", data: "x"},
		entry{name: "holdfast.yaml", data: "permissions:\n  sandbox:\n    network:\n      allowedDomains: [a.example, b.example]\n"})); err != nil {
		t.Fatal(err)
	}
	ses, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "net"}, "")
	if err != nil {
		t.Fatal(err)
	}
	wider, err := c.CreateSession(t.Context(), holdfast.CreateSession{Agent: "net", Network: []string{"a.example", "c.example"}}, "")
	if err != nil {
		t.Fatal(err)
	}
	try := func(id holdfast.SessionID, host string, ok bool) {
		t.Helper()
		if out := inside(t, c, id, get("http://"+host+"/")); strings.Contains(out, "hello from") != ok {
			t.Errorf("%s: %q", host, out)
		}
	}
	try(ses.ID, "a.example", true)
	try(ses.ID, "c.example", false)
	try(wider.ID, "a.example", true)
	try(wider.ID, "b.example", false)
	try(wider.ID, "c.example", false)
	inside(t, c, ses.ID, `printf 'permissions:\n  sandbox:\n    network:\n      allowedDomains: [b.example, c.example]\n' > holdfast.yaml`)
	try(ses.ID, "a.example", false)
	try(ses.ID, "b.example", true)
	try(ses.ID, "c.example", false)
	// The next server finds all of it.
	stop()
	c, _, _ = serveWith(t, cfg, world)
	try(wider.ID, "a.example", true)
	try(wider.ID, "c.example", false)
}
