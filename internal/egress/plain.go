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

// dialPassage connects a plain request to an address that was checked for it.
func (p *Proxy) dialPassage(ctx context.Context, _, _ string) (net.Conn, error) {
	one := ctx.Value(passageKey{}).(*passage)
	conn, addr, err := p.dial(ctx, one.addrs, one.port)
	one.address = addr
	return conn, err
}

// hopByHop are headers of one connection, which end here.
var hopByHop = []string{
	"Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade",
}

// endToEnd is a copy of headers without those of one connection.
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

// pass sends a plain request on and its answer back. The request is written anew: its
// frame, and the host it names, are ours.
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
		return holdfast.Errorf(holdfast.KindUnavailable, "proxy", "%s does not answer", holdfast.Quote(one.host))
	}
	defer resp.Body.Close()
	for name, values := range endToEnd(resp.Header) {
		w.Header()[name] = values
	}
	w.WriteHeader(resp.StatusCode)
	rc := http.NewResponseController(w)
	body := &counting{resp.Body, &one.received}
	buf := make([]byte, 32<<10)
	for {
		n, err := body.Read(buf)
		if n > 0 {
			_ = rc.SetWriteDeadline(p.cfg.Now().Add(writeTimeout))
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

// counting counts what is read.
type counting struct {
	io.ReadCloser
	n *atomic.Int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.n.Add(int64(n))
	return n, err
}
