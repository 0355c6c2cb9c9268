package egress

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/holdfast-run/holdfast"
)

type passageKey struct{}

// dialPassage connects to one of the checked addresses of the passage (the proxied request) in ctx. The
// proxy's transport calls it for plain HTTP requests.
func (p *Proxy) dialPassage(ctx context.Context, _, _ string) (net.Conn, error) {
	one := ctx.Value(passageKey{}).(*passage)
	conn, addr, err := p.dial(ctx, one.addrs, one.port)
	one.address = addr
	return conn, err
}

// hopByHop are headers that apply to a single connection; the proxy does not pass them on.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// endToEnd returns a copy of the headers h without those that apply to a single connection.
func endToEnd(h http.Header) http.Header {
	out := h.Clone()
	for _, list := range h.Values("Connection") {
		for name := range strings.SplitSeq(list, ",") {
			out.Del(strings.TrimSpace(name))
		}
	}
	for _, name := range hopByHop {
		out.Del(name)
	}
	return out
}

// pass sends a plain HTTP request of a box to its host, and the host's answer to the box. It builds a new
// request, whose framing and Host header are set by the proxy, not by the box.
func (p *Proxy) pass(ctx context.Context, w http.ResponseWriter, r *http.Request, one *passage) error {
	out := r.Clone(context.WithValue(ctx, passageKey{}, one))
	out.RequestURI, out.Header, out.Close = "", endToEnd(r.Header), false
	out.Host = r.URL.Host
	out.TransferEncoding, out.Trailer = nil, nil
	if r.ContentLength == 0 {
		out.Body = nil
	} else {
		out.Body = &counting{r.Body, &one.sent}
	}
	resp, err := p.transport.RoundTrip(out)
	if err != nil {
		if ctx.Err() != nil {
			return http.ErrAbortHandler
		}
		return holdfast.Errorf(holdfast.KindUnavailable, "proxy", "the host %s does not answer the request", holdfast.Quote(one.host))
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 999 {
		// net/http panics on a status below 100 or above 999, and would not end an answer with a status below 200.
		return holdfast.Errorf(holdfast.KindUnavailable, "proxy", "the host %s answered with the unexpected HTTP status %d", holdfast.Quote(one.host), resp.StatusCode)
	}
	for name, values := range endToEnd(resp.Header) {
		w.Header()[name] = values
	}
	patient(w, p.cfg.Now())
	w.WriteHeader(resp.StatusCode)
	rc := http.NewResponseController(w)
	body := &counting{resp.Body, &one.received}
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		patient(w, p.cfg.Now())
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil || rc.Flush() != nil {
				return http.ErrAbortHandler
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return http.ErrAbortHandler
		}
	}
}

// counting is a reader that adds the number of bytes read to n.
type counting struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}
