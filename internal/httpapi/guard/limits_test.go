package guard

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
)

func TestRateLimitPerKey(t *testing.T) {
	now := time.Now().Add(time.Hour) // deadlines of connections are real
	srv := serve(t, func(c *Config) {
		c.Rate, c.Now = 3, func() time.Time { return now }
		c.Keys = keyring{"one": {ID: "1", Scopes: []holdfast.Scope{holdfast.ScopeRead}}, "two": {ID: "2", Scopes: []holdfast.Scope{holdfast.ScopeRead}}}
	})
	secrets := []string{"one", "two"}
	get := func(secret string) int {
		resp, body := ask(t, srv, "GET", "/v1/things", bearer(secret))
		if resp.StatusCode == 429 {
			refused(t, resp, body, 429, holdfast.KindBusy)
			if resp.Header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After %q", resp.Header.Get("Retry-After"))
			}
		}
		return resp.StatusCode
	}
	var got []int
	for range 5 {
		got = append(got, get(secrets[0]))
	}
	if !slices.Equal(got, []int{200, 200, 200, 429, 429}) {
		t.Errorf("one key: %v", got)
	}
	if got := get(secrets[1]); got != 200 {
		t.Errorf("another key: %d", got)
	}
	if resp, _ := ask(t, srv, "GET", "/healthz", bearer(secrets[0])); resp.StatusCode != 200 {
		t.Errorf("a public route: %d", resp.StatusCode)
	}
	now = now.Add(time.Second)
	if got := get(secrets[0]); got != 200 {
		t.Errorf("a second later: %d", got)
	}
}

// TestFailedAuthenticationIsLimited, and only that: a good token from the same
// address goes through.
func TestFailedAuthenticationIsLimited(t *testing.T) {
	now := time.Now().Add(time.Hour) // deadlines of connections are real
	srv := serve(t, func(c *Config) {
		c.Failures, c.Now = 6, func() time.Time { return now }
	})
	try := func() int {
		resp, body := ask(t, srv, "GET", "/v1/things", bearer("wrong"))
		if resp.StatusCode == 429 {
			refused(t, resp, body, 429, holdfast.KindBusy)
			if after := resp.Header.Get("Retry-After"); after != "10" && after != "9" {
				t.Errorf("Retry-After %q", after)
			}
		}
		return resp.StatusCode
	}
	var got []int
	for range 8 {
		got = append(got, try())
	}
	if !slices.Equal(got, []int{401, 401, 401, 401, 401, 401, 429, 429}) {
		t.Errorf("%v", got)
	}
	if resp, body := ask(t, srv, "GET", "/v1/things", nil); resp.StatusCode != 200 {
		t.Errorf("the right token: %d %s", resp.StatusCode, body)
	}
	now = now.Add(11 * time.Second)
	if got := []int{try(), try()}; !slices.Equal(got, []int{401, 429}) {
		t.Errorf("later: %v", got)
	}
}

func TestLimitsTellAddressesApart(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:5": "192.0.2.1", "[2001:db8:1:2:3::4]:5": "2001:db8:1:2::/64", "[2001:db8:1:2:ffff::]:5": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:5": "fe80::/64", "[::ffff:192.0.2.1]:5": "::ffff:192.0.2.1", "odd": "odd",
	} {
		if got := address(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%s is %s", remote, got)
		}
	}
	// Many addresses cost bounded memory, and do not make one of them new.
	l := newLimits(1, time.Hour)
	at := time.Unix(1_700_000_000, 0)
	l.take("me", at)
	for i := range 3 * maxTracked {
		l.take(string(rune(i)), at)
		if i%1000 == 0 && l.take("me", at) == 0 {
			t.Fatalf("forgotten after %d others", i)
		}
	}
	if n := len(l.now) + len(l.past); n > 2*maxTracked {
		t.Errorf("%d limiters", n)
	}
}

// TestDefaultLimitIsAboveTheGates: one key may do what the bench promises, 2,000
// creations and 600 turns a second with a stream each, all day long.
func TestDefaultLimitIsAboveTheGates(t *testing.T) {
	l := newLimits(DefaultRate, time.Second)
	at := time.Unix(1_700_000_000, 0)
	const perSecond = 2_000 + 2*600
	for i := range 60 * perSecond {
		if wait := l.take("", at.Add(time.Duration(i)*time.Second/perSecond)); wait > 0 {
			t.Fatalf("request %d waits %s", i, wait)
		}
	}
}
