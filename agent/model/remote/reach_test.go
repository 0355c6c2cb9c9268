package remote

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

// TestBrokenNamesHostAndCause: a call that got no connection says to which host and why,
// and nothing else of the address.
//
// FH-8, FH-55.
func TestBrokenNamesHostAndCause(t *testing.T) {
	dial := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	for want, err := range map[string]error{
		"cannot reach api.example: no such host":                    dial(&net.DNSError{Err: "no such host", Name: "api.example", Server: "10.0.0.1:53", IsNotFound: true}),
		"cannot reach api.example: the name server does not answer": &net.DNSError{Err: "i/o timeout", IsTimeout: true},
		"cannot reach api.example: server misbehaving":              dial(&net.DNSError{Err: "server misbehaving"}),
		"cannot reach api.example: connection refused":              dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)),
		"cannot reach api.example: network is unreachable":          dial(os.NewSyscallError("connect", syscall.ENETUNREACH)),
		"cannot reach api.example: no answer in time":               dial(os.ErrDeadlineExceeded),
		"no answer: read tcp: connection reset by peer":             &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET},
		"no answer: x509: certificate is not valid for any names":   errors.New("x509: certificate is not valid for any names"),
	} {
		f := Broken(t.Context(), &url.Error{Op: "Post", URL: "https://api.example/v1/messages?key=secret", Err: fmt.Errorf("wrapped: %w", err)}, "no answer")
		if got := f.Message; got != want && got != "no answer: wrapped: "+want[len("no answer: "):] || !f.Retryable {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
