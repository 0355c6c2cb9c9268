package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-run/holdfast"
	"github.com/holdfast-run/holdfast/internal/httpapi/guard"
	"github.com/holdfast-run/holdfast/internal/httpapi/problem"
)

// send writes bytes to a server and reads one answer; nil when it only hung up.
func send(t testing.TB, addr, raw string) (*http.Response, string) {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, raw); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(raw, " ")
	resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return nil, ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%.80q: %v", raw, err)
	}
	return resp, string(body)
}

const (
	local = "Host: 127.0.0.1\r\n"
	end   = "Connection: close\r\n\r\n"
)

// tricks are ways to ask for a route that a careless guard takes for another, or
// for one that needs nothing.
func tricks() map[string]func(method, path string) string {
	line := func(change func(string) string, headers ...string) func(string, string) string {
		return func(m, p string) string {
			return m + " " + change(p) + " HTTP/1.1\r\n" + local + strings.Join(headers, "") + end
		}
	}
	same := func(p string) string { return p }
	out := map[string]func(method, path string) string{
		"http/1.0":        func(m, p string) string { return m + " " + p + " HTTP/1.0\r\n" + local + "\r\n" },
		"http/1.0 bare":   func(m, p string) string { return m + " " + p + " HTTP/1.0\r\n\r\n" },
		"absolute form":   line(func(p string) string { return "http://127.0.0.1" + p }),
		"absolute, https": line(func(p string) string { return "https://127.0.0.1" + p }),
		"absolute, other": line(func(p string) string { return "http://evil.example" + p }),
		"absolute, user":  line(func(p string) string { return "http://owner:x@127.0.0.1" + p }),
		"two hosts":       func(m, p string) string { return m + " " + p + " HTTP/1.1\r\n" + local + "Host: localhost\r\n" + end },
		"rebinding":       func(m, p string) string { return m + " " + p + " HTTP/1.1\r\nHost: evil.example\r\n" + end },
		"dot host":        func(m, p string) string { return m + " " + p + " HTTP/1.1\r\nHost: localhost.\r\n" + end },
		"pipelined": func(m, p string) string {
			return m + " " + p + " HTTP/1.1\r\n" + local + "Content-Length: 0\r\nTransfer-Encoding: chunked\r\n" + end + "0\r\n\r\n"
		},
	}
	for name, change := range map[string]func(string) string{
		"plain":            same,
		"double slash":     func(p string) string { return "/" + p },
		"inner slashes":    func(p string) string { return strings.ReplaceAll(p, "/", "//") },
		"dot":              func(p string) string { return "/." + p },
		"from healthz":     func(p string) string { return "/healthz/.." + p },
		"encoded dots":     func(p string) string { return "/healthz/%2e%2e" + p },
		"encoded slash":    func(p string) string { return "/" + strings.ReplaceAll(p[1:], "/", "%2f") },
		"encoded letters":  func(p string) string { return strings.Replace(p, "/v1", "/%76%31", 1) },
		"encoded first":    func(p string) string { return strings.Replace(p, "/v1", "/%2e/v1", 1) },
		"upper case":       func(p string) string { return strings.Replace(p, "/v1", "/V1", 1) },
		"trailing slash":   func(p string) string { return p + "/" },
		"trailing dot":     func(p string) string { return p + "." },
		"trailing space":   func(p string) string { return p + "%20" },
		"trailing nul":     func(p string) string { return p + "%00" },
		"newline":          func(p string) string { return p + "%0a" },
		"suffix":           func(p string) string { return p + ".json" },
		"matrix":           func(p string) string { return p + ";/healthz" },
		"fragment":         func(p string) string { return p + "%23/healthz" },
		"query of healthz": func(p string) string { return p + "?/healthz" },
		"backslash":        func(p string) string { return strings.ReplaceAll(p, "/", `\`) },
		"docs before":      func(p string) string { return "/docs" + p },
		"token in query":   func(p string) string { return p + "?token=" + testToken + "&access_token=" + testToken },
	} {
		out["path: "+name] = line(change)
	}
	for name, h := range map[string]string{
		"override get": "X-HTTP-Method-Override: GET\r\nX-Method-Override: GET\r\nX-HTTP-Method: GET\r\n", "original url": "X-Original-URL: /healthz\r\nX-Rewrite-URL: /healthz\r\n",
		"forwarded": "X-Forwarded-For: 127.0.0.1\r\nX-Real-IP: 127.0.0.1\r\nForwarded: for=127.0.0.1\r\nX-Forwarded-Host: localhost\r\n",
		"websocket": "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
		"h2c":       "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n",
		"no token":  "Authorization:\r\n", "empty bearer": "Authorization: Bearer \r\n", "null": "Authorization: Bearer null\r\n", "undefined": "Authorization: Bearer undefined\r\n",
		"basic": "Authorization: Basic " + testToken + "\r\n", "digest": "Authorization: Digest username=\"owner\"\r\n", "scheme twice": "Authorization: Bearer Bearer " + testToken + "\r\n",
		"half": "Authorization: Bearer " + testToken[:5] + "\r\n", "list": "Authorization: Bearer x, Bearer " + testToken + "\r\n", "two": "Authorization: Bearer x\r\nAuthorization: Bearer " + testToken + "\r\n",
		"cookie": "Cookie: token=" + testToken + "; Authorization=Bearer " + testToken + "\r\n", "other header": "X-Api-Key: " + testToken + "\r\nX-Authorization: Bearer " + testToken + "\r\nProxy-Authorization: Bearer " + testToken + "\r\n",
		"nul": "Authorization: Bearer \x00" + testToken + "\r\n", "origin": "Origin: http://127.0.0.1\r\n", "foreign origin": "Origin: https://evil.example\r\n",
		"stream": "Accept: text/event-stream\r\nLast-Event-ID: 0\r\n", "folded": "Authorization: Bearer\r\n " + testToken + "x\r\n",
	} {
		out["header: "+name] = line(same, h)
	}
	for _, m := range []string{"HEAD", "OPTIONS", "TRACE", "CONNECT", "PRI", "get", "PROPFIND", "QUERY"} {
		out["method: "+m] = func(_, p string) string { return m + " " + p + " HTTP/1.1\r\n" + local + end }
	}
	return out
}

// TestNoTrickReachesARouteWithoutAToken walks every route by every trick. What
// comes back is a refusal, or a public page; no call reaches what is behind.
//
// WS-N15.
func TestNoTrickReachesARouteWithoutAToken(t *testing.T) {
	f, srv := start(t, func(c *Config) { c.Bounds.Failures = -1 })
	id := string(createOne(t, srv))
	addr := strings.TrimPrefix(srv.URL, "http://")
	f.mu.Lock()
	f.files["canary"] = []byte("canary of a file")
	f.boxes = []holdfast.Container{{ID: "canary"}}
	f.last = nil
	f.mu.Unlock()
	n := 0
	for pattern, rule := range rules {
		if rule.Scope == guard.Public {
			continue
		}
		method, path, _ := strings.Cut(pattern, " ")
		path = strings.NewReplacer("{id}", id, "{path...}", "canary", "{name}", "canary", "{turn}", id).Replace(path)
		for name, trick := range tricks() {
			n++
			resp, body := send(t, addr, trick(method, path))
			if resp == nil {
				continue
			}
			public := resp.StatusCode == 200 && (strings.Contains(body, `"pid":1`) || strings.Contains(body, "<!doctype html>"))
			if (resp.StatusCode < 400 || resp.StatusCode >= 500) && !public {
				t.Errorf("%s by %s: %d %.200s", pattern, name, resp.StatusCode, body)
			}
			if name == "path: plain" && resp.StatusCode != 401 {
				t.Errorf("%s: %d", pattern, resp.StatusCode)
			}
			if strings.Contains(body, "canary of") || strings.Contains(body, testToken) || resp.Header.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s by %s: %v %.200s", pattern, name, resp.Header, body)
			}
			f.mu.Lock()
			if f.last != nil {
				t.Errorf("%s by %s reached the engine: %+v", pattern, name, f.last)
				f.last = nil
			}
			f.mu.Unlock()
		}
	}
	if n < 1000 {
		t.Errorf("%d attempts", n)
	}
	t.Logf("%d attempts", n)
}

func TestOptionsForTheServerIsAProblem(t *testing.T) {
	srv := NewServer(newFake().config())
	hs := httptest.NewUnstartedServer(srv.Handler)
	hs.Config.DisableGeneralOptionsHandler, hs.Config.MaxHeaderBytes = srv.DisableGeneralOptionsHandler, srv.MaxHeaderBytes
	hs.Start()
	defer hs.Close()
	addr := strings.TrimPrefix(hs.URL, "http://")
	resp, body := send(t, addr, "OPTIONS * HTTP/1.1\r\n"+local+end)
	if resp == nil || resp.StatusCode != 400 || resp.Header.Get("Content-Type") != problem.MediaType {
		t.Errorf("%+v %s", resp, body)
	}
	resp, _ = send(t, addr, "GET /healthz HTTP/1.1\r\n"+local+"X-A: "+strings.Repeat("a", 80<<10)+"\r\n"+end)
	if resp == nil || resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 80 KiB: %+v", resp)
	}
	if srv.ReadHeaderTimeout <= 0 || srv.ReadHeaderTimeout > 30*time.Second || srv.IdleTimeout <= 0 {
		t.Errorf("a connection that sends nothing lives for ever: %v %v", srv.ReadHeaderTimeout, srv.IdleTimeout)
	}
}
