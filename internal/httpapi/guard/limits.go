package guard

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// DefaultRate is how many requests a key may send per second if nothing else is set.
const DefaultRate = 10_000

// maxTracked bounds how many callers a limit remembers one by one.
const maxTracked = 4096

// limits is a rate limit for each of many callers. It forgets the callers that it has not
// seen lately when there are too many of them. The zero value limits nobody.
type limits struct {
	mu        sync.Mutex
	every     rate.Limit
	burst     int
	now, past map[string]*rate.Limiter
}

// newLimits allows each caller n requests in a period, all at once or spread over it. For
// n below 1 there is no limit.
func newLimits(n int, period time.Duration) *limits {
	if n < 1 {
		return &limits{}
	}
	return &limits{every: rate.Limit(float64(n) / period.Seconds()), burst: n, now: map[string]*rate.Limiter{}}
}

// take counts one request of a caller. If the caller has no request left, it returns how
// long to wait for the next one.
func (l *limits) take(who string, at time.Time) (wait time.Duration) {
	if l.burst == 0 {
		return 0
	}
	r := l.of(who).ReserveN(at, 1)
	if wait = r.DelayFrom(at); wait > 0 {
		r.CancelAt(at)
	}
	return wait
}

func (l *limits) of(who string) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lim, ok := l.now[who]; ok {
		return lim
	}
	if len(l.now) >= maxTracked {
		l.past, l.now = l.now, map[string]*rate.Limiter{}
	}
	lim, ok := l.past[who]
	if !ok {
		lim = rate.NewLimiter(l.every, l.burst)
	}
	l.now[who] = lim
	return lim
}

// address returns the address that a request comes from, for limits: all addresses of an
// IPv6 network count as one, since one owner has all of them.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Is4() || ip.Is4In6() {
		return host
	}
	p, err := ip.WithZone("").Prefix(64)
	if err != nil {
		return host
	}
	return p.String()
}
