package egress_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/egress"
)

// TestKeysOfSessions: each session has a key, the same one with the same secret.
func TestKeysOfSessions(t *testing.T) {
	one := egress.Keys(strings.Repeat("a", 32))
	if k := one.Of("s"); len(k) != 32 || k != one.Of("s") || k == one.Of("t") || k == egress.Keys(strings.Repeat("b", 32)).Of("s") {
		t.Errorf("keys %q, %q", k, one.Of("t"))
	}
}

// TestRequestsCarryTheKey: a port that others can connect to serves only requests with the session's key, as clients of
// proxies and of model APIs send it.
func TestRequestsCarryTheKey(t *testing.T) {
	const key = "0123456789abcdef0123456789abcdef"
	r := broker(t, newTurn("anthropic/x"), upstream(t).URL(), nil)
	keyed := &http.Client{Transport: reaching(t, func(id holdfast.SessionID, c net.Conn) { r.b.Serve(id, key, c) })}
	basic := func(password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte("holdfast:"+password))
	}
	for i, c := range []struct {
		name, value string
		want        bool
	}{
		{"X-Api-Key", key, true},
		{"Authorization", "Bearer " + key, true},
		{"Proxy-Authorization", basic(key), true},
		{"X-Api-Key", key + "0", false},
		{"X-Api-Key", "", false},
		{"Authorization", key[:31], false},
		{"Authorization", "Bearer", false},
		{"Proxy-Authorization", basic(""), false},
		{"Proxy-Authorization", key, false},
		{"Cookie", key, false},
	} {
		req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://localhost/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(c.name, c.value)
		resp, err := keyed.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if got := resp.StatusCode != http.StatusUnauthorized; got != c.want {
			t.Errorf("%d, %s %q: status %d", i, c.name, c.value, resp.StatusCode)
		}
	}
}

// TestAProxyAsksForTheKey: a request to a proxy without the session's key is 407, which programs take for what it is.
func TestAProxyAsksForTheKey(t *testing.T) {
	w := newWorld(t, "")
	for _, line := range []string{"GET http://a.example/ HTTP/1.1", "CONNECT a.example:443 HTTP/1.1"} {
		here, there := pipe(t)
		w.p.Serve(session, "key", there)
		if _, err := fmt.Fprintf(here, "%s\r\nHost: a.example\r\nConnection: close\r\n\r\n", line); err != nil {
			t.Fatal(err)
		}
		resp := make([]byte, 512)
		n, _ := here.Read(resp)
		if got := string(resp[:n]); !strings.HasPrefix(got, "HTTP/1.1 407 ") || !strings.Contains(got, "Proxy-Authenticate: Basic") {
			t.Errorf("%s: %q", line, got)
		}
		_ = here.Close()
	}
}
