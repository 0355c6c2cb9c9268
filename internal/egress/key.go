package egress

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"

	"github.com/holdfast-run/holdfast"
)

// Keys makes the keys of sessions whose ports to the proxy and the broker others can connect to: those in a shared box
// or on the host. It is 32 random bytes. It stays the same across starts of the server, because agents in boxes outlive
// the server.
type Keys []byte

// Of returns the key of a session, 32 hexadecimal digits.
func (k Keys) Of(id holdfast.SessionID) string {
	mac := hmac.New(sha256.New, k)
	_, _ = mac.Write([]byte("port\x00" + id)) // writing to an HMAC never fails
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// admits reports whether a request may use the connection: the connection needs no key, or the request
// carries the key as the password for a proxy or as the key of a model API.
func (c *boxConn) admits(r *http.Request) bool {
	if c.key == "" {
		return true
	}
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	is := func(given string) bool { return subtle.ConstantTimeCompare([]byte(given), []byte(c.key)) == 1 }
	return is(proxyPassword(r)) || is(r.Header.Get("X-Api-Key")) || is(bearer)
}

// proxyPassword returns the password that a request sends to a proxy, or "" if it sends none.
func proxyPassword(r *http.Request) string {
	as := http.Request{Header: http.Header{"Authorization": r.Header.Values("Proxy-Authorization")}}
	_, password, _ := as.BasicAuth()
	return password
}

// refuseStranger answers a request that does not carry the key of its connection.
func refuseStranger(w http.ResponseWriter, r *http.Request) {
	status := http.StatusUnauthorized
	if r.Method == http.MethodConnect || r.URL.IsAbs() {
		status = http.StatusProxyAuthRequired
		w.Header().Set("Proxy-Authenticate", `Basic realm="holdfast"`)
	}
	http.Error(w, "holdfast: this port belongs to another session of the box; yours is in your own environment", status)
}
