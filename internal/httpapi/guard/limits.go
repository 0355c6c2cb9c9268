package guard

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// DefaultRate is the default of the most requests of one key per second.
const DefaultRate = 10_000

// maxTracked is the most callers in one of the two generations that a limits remembers.
const maxTracked = 4096

// limits is a rate limit for each of many callers. When they become too many it forgets those
// without a recent request. The zero value sets no limit.
type limits struct {
	mu        sync.Mutex
	every     rate.Limit
	burst     int
	now, past map[string]*rate.Limiter
}

// newLimits returns limits that allow each caller n requests in a period, all at once or spread
// over it. For n below 1 it sets no limit.
func newLimits(n int, period time.Duration) *limits {
	if n < 1 {
		return &limits{}
	}
	return &limits{every: rate.Limit(float64(n) / period.Seconds()), burst: n, now: map[string]*rate.Limiter{}}
}

// take uses up one request of a caller's limit and returns 0. If the caller has none left, take
// returns how long to wait until the next one is allowed.
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
