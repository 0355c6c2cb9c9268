package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/holdfast-run/holdfast"
)

// maxTracked bounds how many callers a limit remembers one by one.
const maxTracked = 4096

// limits is a rate limit for each of many callers. When there are too many, those
// not seen lately start anew. The zero value limits nobody.
type limits struct {
	mu        sync.Mutex
	every     rate.Limit
	burst     int
	now, past map[string]*rate.Limiter
}

// newLimits allows n in each period, all at once or spread; none for n below 1.
func newLimits(n int, period time.Duration) *limits {
	if n < 1 {
		return &limits{}
	}
	return &limits{every: rate.Limit(float64(n) / period.Seconds()), burst: n, now: map[string]*rate.Limiter{}}
}

// take counts one of a caller's; otherwise it says when there is one again.
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

// address is where a request comes from, as far as a limit tells addresses
// apart: an IPv6 network is one, since its owner has all of them.
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

// tooMany refuses what is over a limit and says when to come back.
func tooMany(what string, wait time.Duration) error {
	return &waiting{
		err:  holdfast.Errorf(holdfast.KindBusy, "request", "too many %s", what).WithHint("try again in %s", wait.Round(time.Millisecond)),
		wait: wait,
	}
}

// waiting is a refusal that knows when it is over.
type waiting struct {
	err  *holdfast.Error
	wait time.Duration
}

// Error is the refusal.
func (w *waiting) Error() string { return w.err.Error() }

// Unwrap gives the refusal to those who look for a holdfast.Error.
func (w *waiting) Unwrap() error { return w.err }
