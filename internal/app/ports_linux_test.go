package app_test

import (
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/config"
	"github.com/holdfast-run/holdfast/internal/testkit"
)

// getAt is a request through a proxy at $at, with the user and password $as.
func getAt(url string) string {
	return `p=${http_proxy#http://}; at=${at-${p#*@}}; as=${as-${p%@*}}; exec 3<>/dev/tcp/${at%:*}/${at#*:} && printf 'GET ` + url +
		` HTTP/1.1\r\nHost: x\r\nProxy-Authorization: Basic %s\r\nConnection: close\r\n\r\n' "$(printf %s "$as" | base64)" >&3 && cat <&3`
}

// TestHZ22_PortsOfSiblings: in a shared box each session reaches what it was granted itself, at a port of its own, which a
// sibling can connect to and not use.
func TestHZ22_PortsOfSiblings(t *testing.T) {
	cfg, world := outside(t, func(c *config.Config) { c.Network.Allow = []string{"*.example"} })
	c, _, stop := serveWith(t, cfg, world)
	ids := sessionsOf(t, c, "site", 2)
	hosts, at, as := []string{"a.example", "b.example"}, make([]string, 2), make([]string, 2)
	for i, id := range ids {
		if _, err := c.UpdateSession(t.Context(), id, holdfast.UpdateSession{AllowNet: hosts[i : i+1]}); err != nil {
			t.Fatal(err)
		}
	}
	for i, id := range ids {
		if out := inside(t, c, id, getAt("http://"+hosts[i]+"/")); !strings.Contains(out, "hello from "+hosts[i]) {
			t.Errorf("session %d, its own: %q", i, out)
		}
		if out := inside(t, c, id, getAt("http://"+hosts[1-i]+"/")); !strings.Contains(out, "403 Forbidden") {
			t.Errorf("session %d, its sibling's: %q", i, out)
		}
		as[i], at[i], _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(inside(t, c, id, `echo "$http_proxy"`)), "http://"), "@")
	}
	if at[0] == at[1] || as[0] == as[1] || !strings.HasPrefix(as[0], "holdfast:") {
		t.Errorf("ports %q, keys %q", at, as)
	}
	for _, key := range []string{"", "as=" + as[1] + "; "} {
		if out := inside(t, c, ids[1], "at="+at[0]+"; "+key+getAt("http://a.example/")); !strings.Contains(out, "407 ") || strings.Contains(out, "hello") {
			t.Errorf("through the sibling's port, %q: %q", key, out)
		}
	}
	stop()
	c, _, _ = serveWith(t, cfg, world)
	if out := inside(t, c, ids[0], `echo "$http_proxy"`); !strings.Contains(out, as[0]+"@") {
		t.Errorf("the next server has another key: %q, former %q", out, as[0])
	}
}

// TestACPSharesAWorkspace: real agents of two sessions work in one box, each with a port of its own to the model.
func TestACPSharesAWorkspace(t *testing.T) {
	testkit.Long(t)
	for name, tool := range acpAgents {
		t.Run(name, func(t *testing.T) {
			c, _ := serve(t, withRuntimes(t, name))
			if _, err := c.CreateWorkspace(t.Context(), holdfast.CreateWorkspace{ID: "site"}); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				s, err := c.CreateSession(t.Context(), holdfast.CreateSession{Runtime: "acp:" + name, Workspace: "site"}, "")
				if err != nil {
					t.Fatal(err)
				}
				for _, text := range []string{`<script>[{"tool":"` + tool + `","input":{"command":"echo here >> common","description":"d"}},{"say":"done"}]</script>`, "two"} {
					if end := turn(t, c, s.ID, text); !strings.HasSuffix(end.Result, "done") && !strings.Contains(end.Result, "You have sent 2 messages") {
						t.Errorf("%s: %+v", text, end)
					}
				}
			}
			list, err := c.Containers(t.Context())
			if err != nil || len(list) != 1 {
				t.Errorf("boxes %+v, %v; want one", list, err)
			}
		})
	}
}
